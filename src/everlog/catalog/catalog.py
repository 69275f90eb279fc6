"""The catalog: which event types a log knows, what their payloads hold, and how old ones are read.

    @catalog.event("workpackage.moved", version=2)
    class Moved(msgspec.Struct):
        came_from: str
        went_to: str

    @catalog.upcaster("workpackage.moved", from_version=1)
    def name_the_lanes(old: dict[str, Any]) -> dict[str, Any]:
        return {"came_from": old["old_status"], "went_to": old["new_status"]}

An append is checked against the latest version. A read converts older versions to it, one step at a time. Stored
events never change.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from everlog.catalog.left_out import LeftOut
from everlog.catalog.merging import refuse_other_merge
from everlog.catalog.models import (
    CheckAll,
    PayloadModel,
    doc_of,
    name_of,
    packed,
    ready,
    refuse_other_model,
    refuse_unusable,
    require_version,
    unpacked,
)
from everlog.catalog.personal import SEALED, STAND_IN, Personal, has_personal
from everlog.catalog.schema import DIALECT, FieldInfo, events_schema, field_infos
from everlog.catalog.transitions import Transitions, refuse_other_rule, rule_problems
from everlog.catalog.upcasting import Upcaster, brought_up, idle_upcasters, missing_upcasters, refuse_other_upcaster
from everlog.core.event import Event
from everlog.core.fields import require_shape
from everlog.core.text import counted, did_you_mean
from everlog.errors import InvalidPayload, SchemaBroken, UnknownType

OpenSealed = Callable[[str, str, str], Any]
"""Returns the value that is sealed in a field of an event type, or UNSET if its key is not here."""

_Model = TypeVar("_Model", bound=type[Any])
_Function = TypeVar("_Function", bound=Upcaster)


class TypeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one event type, for people and for the schema lock."""

    type: str
    version: int
    versions: tuple[int, ...]
    upcasts_from: tuple[int, ...]
    model: str
    doc: str
    fields: tuple[FieldInfo, ...]


class Catalog:
    """A set of event types. Build one per subject and `include` them in the one that a log is opened with."""

    def __init__(self) -> None:
        self._models: dict[str, dict[int, type[Any]]] = {}
        self._latest: dict[str, int] = {}
        self._as_it_is: dict[str, int] = {}  # the version from which events of a type are read as they are stored
        self._sealed: dict[str, dict[str, Any]] = {}  # of types with personal fields: what a reader without keys gets
        self.open_sealed: OpenSealed | None = None  # opens personal fields; set by the log that has the keys
        self._upcasters: dict[str, dict[int, Upcaster]] = {}
        self._rules: dict[tuple[str, str], Transitions] = {}
        self.ruled: set[str] = set()  # the event types with a transition rule: most catalogs have none
        self._merges: dict[str, str] = {}  # of types that declare how concurrent changes merge
        self._ready: dict[tuple[str, int], PayloadModel] = {}
        self._checks: dict[str, tuple[int, Callable[[Any], dict[str, Any]]]] = {}
        self.quick: set[str] = set()  # types that were used, and whose check runs no user code
        self.at_once: dict[str, tuple[int, CheckAll]] = {}  # of types that were used: see `PayloadModel.check_all`
        self.personal: dict[str, Mapping[str, Personal]] = {}  # of types that were used: the fields that are sealed
        self._defaults: dict[str, dict[str, Any]] = {}  # of the latest models, once an old event was read
        self._types_of_models: dict[type[Any], str] = {}  # a cache of `type_of_model`
        self.contracts: dict[str, str] = {}  # what the lake does with types that are not here: see declared.py
        self._later: dict[str, Callable[[], Catalog]] = {}
        self._lent: set[str] = set()
        self.left_out = LeftOut()

    def __reduce__(self) -> tuple[Any, ...]:
        models = {name: {at: packed(name, model) for at, model in of.items()} for name, of in self._models.items()}
        return _arrived, (models, self._upcasters, list(self._rules.values()), self._merges, self.contracts)

    @classmethod
    def reading(
        cls,
        readings: Iterable[tuple[str, int, Iterable[tuple[int, Upcaster]]]],
        defaults: Mapping[str, dict[str, Any]] | None = None,
        stand_ins: Mapping[str, dict[str, Any]] | None = None,
    ) -> Catalog:
        """Return a catalog without models that only upcasts, like the one that has these `readings`, `defaults` and
        `stand_ins`."""
        catalog = cls()
        catalog._sealed.update(stand_ins or {})
        catalog._defaults.update(defaults or {})
        for event_type, latest, upcasters in readings:
            catalog._latest[event_type] = latest
            catalog._upcasters[event_type] = dict(upcasters)
        return catalog

    # ---- registering

    def event(self, event_type: str, *, version: int = 1, merge: str = "") -> Callable[[_Model], _Model]:
        """Register a payload model: a msgspec Struct or a pydantic model. Older versions may be registered too.

        `merge` is how concurrent changes of a stream merge: "union", "counter" or "keep-both". Without it the greater
        `(lamport, id)` wins, and they are a conflict.
        """
        require_shape("type", event_type)
        require_version(event_type, version)
        if merge:
            refuse_other_merge(event_type, merge, self._merges.get(event_type, ""))

        def register(model: _Model) -> _Model:
            refuse_unusable(event_type, model)
            refuse_other_model(event_type, version, model, self._models.get(event_type, {}))
            self._add_model(event_type, version, model)
            if merge:
                self._merges[event_type] = merge
            return model

        return register

    def upcaster(self, event_type: str, *, from_version: int) -> Callable[[_Function], _Function]:
        """Register a pure function from the payload of one version to the payload of the next."""
        require_shape("type", event_type)
        require_version(event_type, from_version)

        def register(function: _Function) -> _Function:
            refuse_other_upcaster(event_type, from_version, function, self._upcasters.get(event_type, {}))
            self._upcasters.setdefault(event_type, {})[from_version] = function
            return function

        return register

    def transitions(
        self,
        kind: str,
        *,
        type: str,
        field: str,
        initial: str,
        allowed: Mapping[str, Iterable[str]],
        causal: bool = False,
        also: Mapping[str, str] | None = None,
    ) -> Transitions:
        """Allow only these moves in streams of a kind; the field `field` of `type` names the state that is next.

        With `causal` the state is that of the event with the greatest `(lamport, id)`, as for causal views: in a
        merged log the last event to arrive may be an old one. `also` maps types of events imported from another
        program to the field with the state: the last of them by time counts until there is an event of `type`.
        """
        require_shape("type", type)
        require_shape("stream", f"{kind}/any")
        moves = {state: tuple(targets) for state, targets in allowed.items()}
        rule = Transitions(
            kind=kind, type=type, field=field, initial=initial, allowed=moves, causal=causal, also=also or {}
        )
        refuse_other_rule(rule, self._rules.get((rule.kind, rule.type)))
        self._rules[kind, type] = rule
        self.ruled.add(type)
        return rule

    def include(self, other: Catalog) -> None:
        """Add everything that another catalog has; if the two contradict each other, raise and add nothing."""
        other._load_all()
        for event_type, models in other._models.items():
            for version, model in models.items():
                refuse_other_model(event_type, version, model, self._models.get(event_type, {}))
        for event_type, upcasters in other._upcasters.items():
            for version, function in upcasters.items():
                refuse_other_upcaster(event_type, version, function, self._upcasters.get(event_type, {}))
        for rule in other._rules.values():
            refuse_other_rule(rule, self._rules.get((rule.kind, rule.type)))
        for event_type, merge in other._merges.items():
            refuse_other_merge(event_type, merge, self._merges.get(event_type, ""))
        for event_type, models in other._models.items():
            for version, model in models.items():
                self._add_model(event_type, version, model)
        for event_type, upcasters in other._upcasters.items():
            self._upcasters.setdefault(event_type, {}).update(upcasters)
        self._rules.update(other._rules)
        self._merges.update(other._merges)
        self.contracts.update(other.contracts)
        self.ruled |= other.ruled
        self._lent |= other._lent

    def include_later(self, types: Iterable[str], load: Callable[[], Catalog]) -> bool:
        """Know these types from now on, and load their models when one of them is first needed.

        They are lent: usable as any other, but not of this catalog's own, which is what its schema and its lock are
        about. False, and nothing is known, when one of the names is taken: an own type goes first.
        """
        names = tuple(types)
        if any(name in self._latest or name in self._later for name in names):
            return False
        self._later.update(dict.fromkeys(names, load))
        for name in names:
            self._as_it_is.pop(name, None)
        self._lent.update(names)
        return True

    def declared_otherwise(self, other: Catalog) -> list[str]:
        """Return the types that another catalog has, too, with other models."""
        return [name for name, models in other._models.items() if self._models.get(name, models) != models]

    def withdraw(self, types: Iterable[str]) -> None:
        """Forget these types, none of which was used yet: a program that is left out has rules for them."""
        for event_type in types:
            for part in (self._models, self._latest, self._upcasters, self._merges):
                part.pop(event_type, None)
            self._rules = {key: rule for key, rule in self._rules.items() if rule.type != event_type}
            self.ruled.discard(event_type)

    def latest(self, event_type: str) -> int:
        """Return the latest version of a type."""
        return self._known_version(event_type)

    def lends(self, event_type: str) -> bool:
        """Return whether a type was included by `include_later`."""
        return event_type in self._lent

    # ---- appending

    def validate(self, event_type: str, payload: Any) -> tuple[int, dict[str, Any]]:
        """Return the latest version, and the payload as a new JSON-ready dict with its defaults."""
        try:
            version, check = self._checks.get(event_type) or self._prepared(event_type)
        except TypeError:
            require_shape("type", event_type)  # past the type checker: not a text
            raise
        return version, check(payload)

    def refuse_unfit(self, event: Event, *, more_fields: bool = False) -> None:
        """Refuse a payload from elsewhere that does not fit its type, as `validate` would.

        A type that is unknown here fits, and so does a newer version. An older version fits if its own model takes
        it, or if the latest one takes what the upcasters make of it. What an import could not place (`_imported`) is
        passed over, and with `more_fields` every field that the type does not have.
        """
        if not self.knows(event.type) or event.version > (latest := self._known_version(event.type)):
            return
        event = self._opened(event)  # an envelope is a text, whatever type the value has
        payload = {name: value for name, value in event.payload.items() if name != "_imported"}
        if event.version == latest and not more_fields:
            self.validate(event.type, payload)
            return
        try:
            if event.version in self._models[event.type]:
                self._model(event.type, event.version).build(payload)
                return
        except ValueError as error:
            if event.version == latest:
                raise InvalidPayload(event.type, [("$", str(error))]) from error
        try:
            self.typed(msgspec.structs.replace(event, payload=payload))
        except SchemaBroken as error:
            raise InvalidPayload(event.type, [("$", error.why)]) from error

    def transition_rule(self, kind: str, event_type: str) -> Transitions | None:
        """Return the rule for events of this type in streams of this kind."""
        return self._rules.get((kind, event_type))

    def merge_of(self, event_type: str) -> str:
        """Return how concurrent changes of this type merge; nothing if one of them wins."""
        if event_type in self._later:
            self._loaded(event_type)
        return self._merges.get(event_type, "")

    # ---- reading

    def upcast(self, event: Event) -> Event:
        """Return the event in the latest version of its type.

        An event of an unknown type, or of a version that only a newer program knows, is returned as it is.
        """
        as_it_is = self._as_it_is.get(event.type)
        if as_it_is is None:
            as_it_is = self._learn(event.type)
        if event.version >= as_it_is:
            return event
        if not event.salt and not event.payload:
            return event  # its payload was erased: there is nothing to convert
        if event.type in self._sealed:
            event = self._opened(event)
            if event.version >= self._latest[event.type]:
                return event
        latest = self._latest[event.type]
        return brought_up(event, latest, self._upcasters.get(event.type, {}), self._defaults_of(event.type))

    def reads_as_stored(self, event_type: str, version: int) -> bool:
        """Return whether the payloads of this version are read as they are stored: no upcaster, nothing sealed."""
        as_it_is = self._as_it_is.get(event_type)
        return version >= (self._learn(event_type) if as_it_is is None else as_it_is)

    def upcast_all(self, events: list[Event]) -> list[Event]:
        """Upcast many events. Usually there is nothing to do, which is detected without a call for each event."""
        # Versions count from 1: a type that is read as it is from version 1 on has nothing to convert.
        as_it_is = self._as_it_is
        if all(as_it_is.get(event_type, 2) <= 1 for event_type in {event.type for event in events}):
            return events
        return [self.upcast(event) for event in events]

    def typed(self, event: Event) -> Any:
        """Return the payload as an instance of the latest model, with the defaults of fields that are newer than the
        event."""
        event = self.upcast(event)
        try:
            return self._model(event.type, self._known_version(event.type)).build(event.payload)
        except ValueError as error:  # msgspec's and pydantic's ValidationError alike
            raise SchemaBroken(
                f"the payload of event {event.id} does not fit {event.type} version {self._latest[event.type]}",
                why=str(error),
                hint="bump the version and add an upcaster for payloads of this shape",
                type=event.type,
                id=event.id,
                version=event.version,
            ) from error

    def _learn(self, event_type: str) -> int:
        """Return the version from which events of a type are read as they are stored; all of them, if it is 0."""
        latest = self._latest.get(event_type)
        if latest is None and event_type in self._later:
            latest = self._loaded(event_type)
        found = 0 if latest is None else latest
        stand_ins: dict[str, Any] = dict(self._sealed.get(event_type, {}))
        for version, model in sorted(self._models.get(event_type, {}).items()):
            if has_personal(model):  # preparing every model would delay the first read of a log
                stand_ins |= {name: mark.stand_in for name, mark in self._model(event_type, version).personal.items()}
        if stand_ins:
            self._sealed[event_type] = stand_ins
            found = sys.maxsize
        self._as_it_is[event_type] = found
        return found

    def opened(self, event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Return a stored payload with its sealed fields opened; those whose key is not here have their stand-ins."""
        if event_type not in self._as_it_is:
            self._learn(event_type)
        if event_type not in self._sealed:
            return payload
        found: dict[str, Any] = {}
        for name, value in payload.items():
            if type(value) is str and value.startswith(SEALED):
                found[name] = msgspec.UNSET if self.open_sealed is None else self.open_sealed(event_type, name, value)
                if found[name] is msgspec.UNSET:
                    found[name] = self._sealed[event_type].get(name, STAND_IN)
        return {**payload, **found} if found else payload

    def personal_fields(self) -> dict[str, dict[str, Personal]]:
        """Return the personal fields of every type that has some, of all its versions."""
        self._load_all()
        found: dict[str, dict[str, Personal]] = {}
        for event_type, models in self._models.items():
            for version, model in sorted(models.items()):
                if has_personal(model):
                    found.setdefault(event_type, {}).update(self._model(event_type, version).personal)
        return found

    def personal_in(self, event_type: str, version: int) -> Mapping[str, Personal]:
        """Return the personal fields of one version of a type; nothing if that version is not declared."""
        self._load_all()
        model = self._models.get(event_type, {}).get(version)
        return {} if model is None or not has_personal(model) else self._model(event_type, version).personal

    def _opened(self, event: Event) -> Event:
        payload = self.opened(event.type, event.payload)
        return event if payload is event.payload else msgspec.structs.replace(event, payload=payload)

    def stand_ins(self, types: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return what a reader without keys gets for the personal fields of these types, or of all, by type."""
        self._load_all(types)
        for event_type in types or self._latest:
            self._learn(event_type)
        return {name: fields for name, fields in self._sealed.items() if not types or name in types}

    def without_keys(self) -> Catalog:
        """Return the same catalog for a reader that must not open personal fields, such as the lake."""
        found = Catalog()
        found.__dict__.update(self.__dict__)
        found.open_sealed = None
        return found

    # ---- looking up

    def knows(self, event_type: str) -> bool:
        return event_type in self._latest or event_type in self._later

    def contract(self, event_type: str) -> str:
        """Return what the lake does with a type that is not in this catalog: evolve, freeze or ask."""
        return self.contracts.get(event_type) or self.contracts.get("*", "evolve")

    def type_of_model(self, model: type[Any]) -> str:
        """Return the event type whose latest model is this class."""
        found = self._types_of_models.get(model)
        if found is None:
            if self._later:
                self._load_all()
            types = [name for name, latest in self._latest.items() if self._models[name].get(latest) is model]
            if len(types) != 1:
                raise _no_type_of(model, types)
            found = self._types_of_models[model] = types[0]
        return found

    def types(self, *, lent: bool = False) -> list[TypeInfo]:
        """Return every event type of this catalog, by name; with `lent`, also those from `include_later`."""
        return [self._info(event_type) for event_type in self._names(lent)]

    def readings(self, types: Collection[str] = ()) -> list[tuple[str, int, list[tuple[int, Upcaster]]]]:
        """Return the latest version and the upcasters of these types, or of all: they define how events are read."""
        self._load_all(types)
        return [
            (event_type, latest, sorted(self._upcasters.get(event_type, {}).items(), key=lambda item: item[0]))
            for event_type, latest in sorted(self._latest.items())
            if not types or event_type in types
        ]

    def defaults(self, types: Collection[str]) -> dict[str, dict[str, Any]]:
        """Return the defaults that old events of these types get, by type."""
        return {event_type: self._defaults_of(event_type) for event_type in types}

    def rules(self) -> list[Transitions]:
        """Return every transition rule, by stream kind and event type."""
        self._load_all()
        return [self._rules[key] for key in sorted(self._rules)]

    def json_schema(
        self, event_type: str | None = None, *, version: int | None = None, lent: bool = False
    ) -> dict[str, Any]:
        """Return the JSON Schema 2020-12 of the payload of one type, or of whole events of all types."""
        if event_type is None:
            known = ((name, self._latest[name]) for name in self._names(lent))
            return events_schema((name, latest, self._model(name, latest).schema()) for name, latest in known)
        version = self._known_version(event_type) if version is None else version
        if version not in self._models.get(event_type, {}):
            self._known_version(event_type)
            raise UnknownType(
                f"{event_type} has no model for version {version}",
                why=f"its models are for version {', '.join(map(str, sorted(self._models[event_type])))}",
                hint=f"everlog schema show {event_type}",
                type=event_type,
            )
        schema = self._model(event_type, version).schema()
        return {"$schema": DIALECT, "title": event_type, "x-event-version": version, **schema}

    def check(self) -> list[str]:
        """Return the problems of the catalog itself, one sentence each; an empty list if there are none."""
        self._load_all()
        return [
            *self._unusable_models(),
            *self.gaps(),
            *idle_upcasters(self._latest, self._upcasters),
            *(
                problem
                for rule in self.rules()
                for problem in rule_problems(rule, self.json_schema(rule.type) if rule.type in self._latest else None)
            ),
        ]

    def gaps(self) -> list[str]:
        """Return the steps between versions without an upcaster, one sentence each."""
        self._load_all()
        return missing_upcasters(self._latest, self._upcasters)

    # ---- internal

    def _add_model(self, event_type: str, version: int, model: type[Any]) -> None:
        self._models.setdefault(event_type, {})[version] = model
        self._latest[event_type] = max(version, self._latest.get(event_type, 0))
        self._as_it_is.pop(event_type, None)
        self._sealed.pop(event_type, None)
        self._types_of_models.clear()
        self._checks.pop(event_type, None)
        self._defaults.pop(event_type, None)
        self.quick.discard(event_type)
        self.at_once.pop(event_type, None)
        self.personal.pop(event_type, None)

    def _prepared(self, event_type: str) -> tuple[int, Callable[[Any], dict[str, Any]]]:
        version = self._known_version(event_type)
        model = self._model(event_type, version)
        self._checks[event_type] = prepared = (version, model.check)
        if model.personal:
            self.personal[event_type] = model.personal
        elif not model.runs_user_code:
            self.quick.add(event_type)
        if model.check_all is not None:
            self.at_once[event_type] = (version, model.check_all)
        return prepared

    def _model(self, event_type: str, version: int) -> PayloadModel:
        found = self._ready.get((event_type, version))
        if found is None:
            found = self._ready[event_type, version] = ready(event_type, self._models[event_type][version])
        return found

    def _defaults_of(self, event_type: str) -> dict[str, Any]:
        found = self._defaults.get(event_type)
        if found is None:
            latest = self._latest[event_type]
            found = {} if event_type not in self._models else self._model(event_type, latest).defaults()
            self._defaults[event_type] = found
        return found

    def _known_version(self, event_type: str) -> int:
        version = self._latest.get(event_type)
        if version is not None:
            return version
        if event_type in self._later:
            return self._loaded(event_type)
        require_shape("type", event_type)
        meant = did_you_mean(event_type, {*self._latest, *self._later})
        raise self.left_out.unknown_type(event_type, meant)

    def _info(self, event_type: str) -> TypeInfo:
        version = self._latest[event_type]
        model = self._models[event_type][version]
        return TypeInfo(
            type=event_type,
            version=version,
            versions=tuple(sorted(self._models[event_type])),
            upcasts_from=tuple(sorted(self._upcasters.get(event_type, {}))),
            model=model.__qualname__,
            doc=doc_of(model),
            fields=field_infos(self._model(event_type, version).schema()),
        )

    def _loaded(self, event_type: str) -> int:
        """Return the latest version of a type from `include_later`, after loading its catalog."""
        load = self._later[event_type]
        for name in [name for name, other in self._later.items() if other is load]:
            del self._later[name]
        self.include(load())
        return self._latest[event_type]

    def _load_all(self, types: Collection[str] = ()) -> None:
        for event_type in [name for name in self._later if not types or name in types]:
            if event_type in self._later:
                self._loaded(event_type)

    def _names(self, lent: bool) -> list[str]:
        if lent:
            self._load_all()
        return sorted(self._latest if lent else self._latest.keys() - self._lent)

    def _unusable_models(self) -> list[str]:
        problems = []
        for event_type, models in sorted(self._models.items()):
            for version in sorted(models):
                try:
                    self._model(event_type, version)
                except SchemaBroken as error:
                    problems.append(f"{event_type} version {version}: {error}")
        return problems


def _no_type_of(model: type[Any], types: list[str]) -> UnknownType:
    if types:
        return UnknownType(
            f"{name_of(model)} is the payload of {counted(len(types), 'event type')}",
            why=f"it is registered for {', '.join(types)}",
            hint="name the event type: append(type, payload=…), read(Query(types={type}))",
        )
    return UnknownType(
        f"{name_of(model)} is not the payload of an event type",
        why="only the model of a type's latest version in the catalog of this log can be used",
        hint="register it with @catalog.event, and open the log with that catalog",
    )


def _arrived(
    models: Mapping[str, Mapping[int, Any]],
    upcasters: dict[str, dict[int, Upcaster]],
    rules: list[Transitions],
    merges: dict[str, str],
    contracts: dict[str, str],
) -> Catalog:
    """Return the catalog that `Catalog.__reduce__` pickled."""
    catalog = Catalog()
    for event_type, versions in models.items():
        for version, model in versions.items():
            catalog._add_model(event_type, version, unpacked(event_type, model))
    catalog._upcasters.update(upcasters)
    catalog._rules.update({(rule.kind, rule.type): rule for rule in rules})
    catalog.ruled.update(rule.type for rule in rules)
    catalog._merges.update(merges)
    catalog.contracts.update(contracts)
    return catalog
