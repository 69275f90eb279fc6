"""The catalog: which event types a log knows, what their payloads hold, and how old ones are read.

    @catalog.event("workpackage.moved", version=2)
    class Moved(msgspec.Struct):
        came_from: str
        went_to: str

    @catalog.upcaster("workpackage.moved", from_version=1)
    def name_the_lanes(old: dict[str, Any]) -> dict[str, Any]:
        return {"came_from": old["old_status"], "went_to": old["new_status"]}

An append is checked against the latest version; a read brings older versions up to it, one step at a time. What is
stored never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from everlog.catalog.models import PayloadModel, doc_of, ready, refuse_unusable
from everlog.catalog.nearest import did_you_mean
from everlog.catalog.schema import DEFINITIONS, DIALECT, FieldInfo, field_infos, resolve, with_prefix
from everlog.catalog.transitions import Transitions
from everlog.core.event import Event
from everlog.core.fields import require_shape
from everlog.errors import SchemaBroken, UnknownType

Upcaster = Callable[[dict[str, Any]], Mapping[str, Any]]
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
        self._beyond_first: set[str] = set()  # types whose latest version is not their first
        self._upcasters: dict[str, dict[int, Upcaster]] = {}
        self._rules: dict[tuple[str, str], Transitions] = {}
        self._ready: dict[tuple[str, int], PayloadModel] = {}
        self._checks: dict[str, tuple[int, Callable[[Any], dict[str, Any]]]] = {}
        self._later: dict[str, Callable[[], Catalog]] = {}
        self._lent: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        from everlog.catalog.travelling import packed

        models = {name: {at: packed(name, model) for at, model in of.items()} for name, of in self._models.items()}
        return _arrived, (models, self._upcasters, list(self._rules.values()))

    @classmethod
    def reading(cls, readings: Iterable[tuple[str, int, Iterable[tuple[int, Upcaster]]]]) -> Catalog:
        """A catalog that can only read: it upcasts as the one does whose `readings` these are, and has no models."""
        catalog = cls()
        for event_type, latest, upcasters in readings:
            catalog._latest[event_type] = latest
            catalog._upcasters[event_type] = dict(upcasters)
            if latest > 1:
                catalog._beyond_first.add(event_type)
        return catalog

    # ---- registering

    def event(self, event_type: str, *, version: int = 1) -> Callable[[_Model], _Model]:
        """Register a payload model: a msgspec Struct or a pydantic model. Older versions may be registered too."""
        require_shape("type", event_type)
        _require_version(event_type, version)

        def register(model: _Model) -> _Model:
            refuse_unusable(event_type, model)
            self._refuse_other_model(event_type, version, model)
            self._add_model(event_type, version, model)
            return model

        return register

    def upcaster(self, event_type: str, *, from_version: int) -> Callable[[_Function], _Function]:
        """Register a pure function from the payload of one version to the payload of the next."""
        require_shape("type", event_type)
        _require_version(event_type, from_version)

        def register(function: _Function) -> _Function:
            self._refuse_other_upcaster(event_type, from_version, function)
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
    ) -> Transitions:
        """Allow only these moves in streams of a kind; the field `field` of `type` names the state that is next.

        With `causal` the state is that of the greatest `(lamport, id)`, as it is for causal views: in a log that was
        merged, the last event to arrive may be an old one.
        """
        require_shape("type", type)
        require_shape("stream", f"{kind}/any")
        moves = {state: tuple(targets) for state, targets in allowed.items()}
        rule = Transitions(kind=kind, type=type, field=field, initial=initial, allowed=moves, causal=causal)
        self._refuse_other_rule(rule)
        self._rules[kind, type] = rule
        return rule

    def include(self, other: Catalog) -> None:
        """Take over everything that another catalog knows; a contradiction is an error and then nothing is taken."""
        other._load_all()
        for event_type, models in other._models.items():
            for version, model in models.items():
                self._refuse_other_model(event_type, version, model)
        for event_type, upcasters in other._upcasters.items():
            for version, function in upcasters.items():
                self._refuse_other_upcaster(event_type, version, function)
        for rule in other._rules.values():
            self._refuse_other_rule(rule)
        for event_type, models in other._models.items():
            for version, model in models.items():
                self._add_model(event_type, version, model)
        for event_type, upcasters in other._upcasters.items():
            self._upcasters.setdefault(event_type, {}).update(upcasters)
        self._rules.update(other._rules)
        self._lent |= other._lent

    def include_later(self, types: Iterable[str], load: Callable[[], Catalog]) -> bool:
        """Know these types from now on, and load what they hold when one of them is first needed.

        They are lent: usable as any other, but not of this catalog's own, which is what its schema and its lock are
        about. False, and nothing is known, when one of the names is taken: an own type goes first.
        """
        names = tuple(types)
        if any(name in self._latest or name in self._later for name in names):
            return False
        self._later.update(dict.fromkeys(names, load))
        self._lent.update(names)
        return True

    # ---- appending

    def validate(self, event_type: str, payload: Any) -> tuple[int, dict[str, Any]]:
        """The latest version, and the payload as a JSON-ready dict of its own with the defaults filled in."""
        try:
            version, check = self._checks.get(event_type) or self._prepared(event_type)
        except TypeError:
            require_shape("type", event_type)  # past the type checker: something that is no text at all
            raise
        return version, check(payload)

    def transition_rule(self, kind: str, event_type: str) -> Transitions | None:
        """The rule for events of this type in streams of this kind."""
        return self._rules.get((kind, event_type))

    # ---- reading

    def upcast(self, event: Event) -> Event:
        """The event as the latest version of its type says it.

        An event of an unknown type, or of a version that only a newer program knows, is returned as it is.
        """
        latest = self._latest.get(event.type)
        if latest is None and event.type in self._later:
            latest = self._loaded(event.type)
        if latest is None or event.version >= latest:
            return event
        if not event.salt and not event.payload:
            return event  # its payload was erased: there is nothing left to bring up to date
        return self._upcast(event, latest)

    def upcast_all(self, events: list[Event]) -> list[Event]:
        """The same for many. Mostly nothing is to be done, and that is found out without a call for each."""
        # Versions count from 1: of a type that is still at 1 there is nothing older.
        if self._beyond_first.isdisjoint({event.type for event in events}):
            return events
        return [self.upcast(event) for event in events]

    def typed(self, event: Event) -> Any:
        """The payload as an instance of the latest model, with the defaults of fields that came after the event."""
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

    # ---- asking

    def knows(self, event_type: str) -> bool:
        return event_type in self._latest or event_type in self._later

    def type_of_model(self, model: type[Any]) -> str:
        """The event type whose latest payloads are of this class."""
        for event_type, latest in self._latest.items():
            if self._models[event_type][latest] is model:
                return event_type
        raise UnknownType(
            f"{_name(model)} is not the payload of an event type",
            why="only the model of a type's latest version can be recorded",
            hint="register it with @catalog.event",
        )

    def types(self, *, lent: bool = False) -> list[TypeInfo]:
        """Every event type of its own, by name; and with `lent` those that were included to be loaded later."""
        return [self._info(event_type) for event_type in self._names(lent)]

    def readings(self, types: Collection[str] = ()) -> list[tuple[str, int, list[tuple[int, Upcaster]]]]:
        """What decides how events are read: of these types, or of all, the latest version and the upcasters."""
        self._load_all(types)
        return [
            (event_type, latest, sorted(self._upcasters.get(event_type, {}).items(), key=lambda item: item[0]))
            for event_type, latest in sorted(self._latest.items())
            if not types or event_type in types
        ]

    def types_with_rules(self) -> Collection[str]:
        """The event types that a transition rule is about: most catalogs have none, which spares every event."""
        return {event_type for _, event_type in self._rules} if self._rules else ()

    def rules(self) -> list[Transitions]:
        """Every transition rule, by stream kind and event type."""
        self._load_all()
        return [self._rules[key] for key in sorted(self._rules)]

    def json_schema(
        self, event_type: str | None = None, *, version: int | None = None, lent: bool = False
    ) -> dict[str, Any]:
        """JSON Schema 2020-12 of one type's payload, or of whole events of all types that `types` lists."""
        if event_type is None:
            return self._schema_of_all(self._names(lent))
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
        """What is wrong with the catalog itself, one sentence each; nothing when it is sound."""
        self._load_all()
        return [
            *self._unusable_models(),
            *self.gaps(),
            *(
                f"{event_type}: the upcaster from version {version} leads beyond the latest model"
                for event_type, latest in sorted(self._latest.items())
                for version in sorted(self._upcasters.get(event_type, {}))
                if version >= latest
            ),
            *(
                f"{event_type}: there are upcasters, but no model is registered"
                for event_type in sorted(self._upcasters.keys() - self._latest.keys())
            ),
            *(problem for rule in self.rules() for problem in self._rule_problems(rule)),
        ]

    def gaps(self) -> list[str]:
        """The steps between versions that no upcaster takes, one sentence each."""
        self._load_all()
        return [
            f"{event_type}: no upcaster leads from version {version} to {version + 1}"
            for event_type, latest in sorted(self._latest.items())
            for version in range(1, latest)
            if version not in self._upcasters.get(event_type, {})
        ]

    # ---- inside

    def _add_model(self, event_type: str, version: int, model: type[Any]) -> None:
        self._models.setdefault(event_type, {})[version] = model
        self._latest[event_type] = max(version, self._latest.get(event_type, 0))
        if version > 1:
            self._beyond_first.add(event_type)
        self._checks.pop(event_type, None)

    def _refuse_other_model(self, event_type: str, version: int, model: type[Any]) -> None:
        known = self._models.get(event_type, {}).get(version)
        if known is not None and known is not model:
            raise SchemaBroken(
                f"{event_type} version {version} is registered twice",
                why=f"once as {_name(known)}, once as {_name(model)}",
                hint=f"give the new model version={self._latest[event_type] + 1}, or another type name",
                type=event_type,
                version=version,
            )

    def _refuse_other_upcaster(self, event_type: str, from_version: int, function: Upcaster) -> None:
        known = self._upcasters.get(event_type, {}).get(from_version)
        if known is not None and known is not function:
            raise SchemaBroken(
                f"{event_type} has two upcasters from version {from_version}",
                why=f"{_name(known)} and {_name(function)}",
                hint="keep one of them",
                type=event_type,
                version=from_version,
            )

    def _refuse_other_rule(self, rule: Transitions) -> None:
        if rule.initial not in rule.allowed and rule.allowed:
            raise SchemaBroken(
                f"the transitions of {rule.kind} start at {rule.initial}, from where nothing is allowed",
                why=f"the states with a way out are {', '.join(rule.allowed)}",
                hint=f"add {rule.initial!r} to allowed, or name another initial state",
                type=rule.type,
            )
        known = self._rules.get((rule.kind, rule.type))
        if known is not None and known != rule:
            raise SchemaBroken(
                f"the transitions of {rule.kind} by {rule.type} are given twice",
                why="a stream kind has one rule per event type",
                hint="keep one of them",
                type=rule.type,
            )

    def _prepared(self, event_type: str) -> tuple[int, Callable[[Any], dict[str, Any]]]:
        version = self._known_version(event_type)
        prepared = (version, self._model(event_type, version).check)
        self._checks[event_type] = prepared
        return prepared

    def _model(self, event_type: str, version: int) -> PayloadModel:
        found = self._ready.get((event_type, version))
        if found is None:
            found = self._ready[event_type, version] = ready(event_type, self._models[event_type][version])
        return found

    def _known_version(self, event_type: str) -> int:
        version = self._latest.get(event_type)
        if version is not None:
            return version
        if event_type in self._later:
            return self._loaded(event_type)
        require_shape("type", event_type)
        meant = did_you_mean(event_type, {*self._latest, *self._later})
        raise UnknownType(
            f"the event type {event_type} is not known",
            why="a log accepts only the event types in its catalog",
            hint=f"{meant} " * bool(meant)
            + f"see everlog schema list, or add it: everlog schema add {event_type} name:type …",
            type=event_type,
        )

    def _upcast(self, event: Event, latest: int) -> Event:
        upcasters = self._upcasters.get(event.type, {})
        # A copy through and through: an upcaster that changes its argument must not change what a store holds.
        payload: dict[str, Any] = msgspec.to_builtins(event.payload)
        for version in range(event.version, latest):
            upcaster = upcasters.get(version)
            if upcaster is None:
                raise self._cannot_upcast(
                    event, version, "there is no upcaster for this step", "register one with @catalog.upcaster"
                )
            try:
                payload = dict(upcaster(payload))
            except Exception as error:
                why = f"{_name(upcaster)} raised {type(error).__name__}: {error}"
                raise self._cannot_upcast(
                    event, version, why, "make the upcaster accept every payload of its version"
                ) from error
        return msgspec.structs.replace(event, version=latest, payload=payload)

    def _cannot_upcast(self, event: Event, version: int, why: str, hint: str) -> SchemaBroken:
        return SchemaBroken(
            f"event {event.id} cannot be read: {event.type} version {version} does not lead to version {version + 1}",
            why=why,
            hint=hint,
            type=event.type,
            id=event.id,
            from_version=version,
            to_version=version + 1,
            event_version=event.version,
            latest_version=self._latest[event.type],
        )

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
        """The latest version of a type that was only known by name; all that comes with it is loaded too."""
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

    def _schema_of_all(self, names: Iterable[str]) -> dict[str, Any]:
        definitions: dict[str, Any] = {}
        events: list[dict[str, Any]] = []
        for event_type in names:
            version = self._latest[event_type]
            # Models of two types often share a name (Created, Moved): each type's own go under its name.
            schema = with_prefix(self._model(event_type, version).schema(), f"{event_type}:")
            nested = schema.pop("$defs", {})
            definitions[event_type] = {"title": event_type, "x-event-version": version, **schema}
            definitions.update({f"{event_type}:{name}": part for name, part in nested.items()})
            named = {
                "type": {"enum": [event_type]},
                "version": {"enum": [version]},
                "payload": {"$ref": DEFINITIONS + event_type},
            }
            events.append({"type": "object", "properties": named, "required": ["type", "version", "payload"]})
        whole: dict[str, Any] = {"$schema": DIALECT, "title": "events", "$defs": definitions}
        return {**whole, "oneOf": events} if events else whole

    def _unusable_models(self) -> list[str]:
        problems = []
        for event_type, models in sorted(self._models.items()):
            for version in sorted(models):
                try:
                    self._model(event_type, version)
                except SchemaBroken as error:
                    problems.append(f"{event_type} version {version}: {error}")
        return problems

    def _rule_problems(self, rule: Transitions) -> list[str]:
        named = f"the transitions of {rule.kind} by {rule.type}"
        if rule.type not in self._latest:
            return [f"{named}: no model is registered for the type"]
        schema = self._model(rule.type, self._latest[rule.type]).schema()
        field = schema.get("properties", {}).get(rule.field)
        if field is None:
            return [f"{named}: the model has no field {rule.field}"]
        choices = resolve(field, schema.get("$defs", {})).get("enum")
        unknown = sorted(rule.states().difference(choices)) if choices else []
        return [f"{named}: the field {rule.field} never says {', '.join(unknown)}"] if unknown else []


def _arrived(
    models: Mapping[str, Mapping[int, Any]], upcasters: dict[str, dict[int, Upcaster]], rules: list[Transitions]
) -> Catalog:
    """The catalog that `Catalog.__reduce__` took apart."""
    from everlog.catalog.travelling import unpacked

    catalog = Catalog()
    for event_type, versions in models.items():
        for version, model in versions.items():
            catalog._add_model(event_type, version, unpacked(event_type, model))
    catalog._upcasters.update(upcasters)
    catalog._rules.update({(rule.kind, rule.type): rule for rule in rules})
    return catalog


def _require_version(event_type: str, version: int) -> None:
    if type(version) is not int or version < 1:
        raise SchemaBroken(
            f"{event_type} has the version {version!r}",
            why="versions are whole numbers from 1",
            hint="start with version=1",
            type=event_type,
        )


def _name(registered: Upcaster | type[Any]) -> str:
    name = getattr(registered, "__qualname__", None)
    return f"{registered.__module__}.{name}" if name else repr(registered)
