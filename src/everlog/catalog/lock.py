"""The schema lock: the event types as they were last agreed on, as text for version control.

Event types evolve additively: a field that was promised stays, with its type, for as long as its version is
readable. With the lock a program detects that it is about to break that promise, before it can no longer read an
event.

    {"format": 1,
     "types": {"workpackage.moved": {"version": 2, "upcasts_from": [1],
                                     "versions": {"2": {"fields": {"went_to": {"required": true, "schema": {…}}}}}}}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.schema import resolve, type_text
from everlog.core.text import counted
from everlog.errors import InvalidSettings, NewerFormat, SchemaBroken

FORMAT = 1
LOCK_FILE = "schema.lock.json"

Schema = Mapping[str, Any]
DifferenceKind = Literal[
    "removed_field", "new_required_field", "now_required", "changed_type", "narrowed", "new_field"
]

_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_PATTERNS = ("pattern", "format", "multipleOf", "contentEncoding", "prefixItems", "uniqueItems", "propertyNames")


class SchemaChange(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between the lock and the catalog."""

    kind: str
    type: str
    version: int
    field: str = ""
    text: str

    def __str__(self) -> str:
        field = f", field {self.field}" if self.field else ""
        return f"{self.type} version {self.version}{field}: {self.text}"


class Breach(SchemaChange, frozen=True, kw_only=True):
    """A change that old events, or the programs that wrote them, cannot follow."""


class Addition(SchemaChange, frozen=True, kw_only=True):
    """A change that only adds."""


def lock_text(catalog: Catalog) -> str:
    """Return the lock of a catalog: sorted and indented, the same text for the same types."""
    locked = {"format": FORMAT, "types": _types_of(catalog)}
    return json.dumps(locked, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def compare(locked: str, catalog: Catalog) -> list[Breach]:
    """Return the changes that break the lock."""
    return [change for change in _changes(locked, catalog) if isinstance(change, Breach)]


def additions(locked: str, catalog: Catalog) -> list[Addition]:
    """Return the changes that only add to the lock."""
    return [change for change in _changes(locked, catalog) if isinstance(change, Addition)]


def require_compatible(locked: str, catalog: Catalog) -> None:
    """Refuse a catalog that breaks the lock, and name every breach."""
    breaches = compare(locked, catalog)
    if not breaches:
        return
    raise SchemaBroken(
        f"{counted(len(breaches), 'change of the event types breaks', 'changes break')} the schema lock",
        why="; ".join(map(str, breaches)),
        hint="bump the version and add an upcaster; if no log has such events: everlog schema lock",
        breaches=[msgspec.to_builtins(breach) for breach in breaches],
    )


def _types_of(catalog: Catalog) -> dict[str, Any]:
    return {
        info.type: {
            "version": info.version,
            "upcasts_from": list(info.upcasts_from),
            "versions": {
                str(version): _locked_version(catalog.json_schema(info.type, version=version))
                for version in info.versions
            },
        }
        for info in catalog.types()
    }


def _locked_version(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in schema["properties"].items():
        bare = {keyword: value for keyword, value in field.items() if keyword not in ("default", "description")}
        fields[name] = {"required": name in schema["required"], "schema": bare}
        if "default" in field:
            fields[name]["default"] = field["default"]
    found: dict[str, Any] = {"fields": fields}
    if schema["additionalProperties"] is not False:
        found["open"] = True
    if "$defs" in schema:
        found["defs"] = schema["$defs"]
    return found


def _schema_of(version: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a locked version."""
    fields = version["fields"]
    return {
        "type": "object",
        "properties": {name: field["schema"] for name, field in fields.items()},
        "required": [name for name, field in fields.items() if field["required"]],
        "additionalProperties": bool(version.get("open")),
        "$defs": version.get("defs", {}),
    }


def _changes(locked: str, catalog: Catalog) -> Iterator[SchemaChange]:
    was, now = _read(locked), _types_of(catalog)
    for event_type in sorted(was.keys() | now.keys()):
        if event_type not in now:
            version = was[event_type]["version"]
            yield Breach(kind="removed_type", type=event_type, version=version, text="the type is gone")
        elif event_type not in was:
            version = now[event_type]["version"]
            yield Addition(kind="new_type", type=event_type, version=version, text="the type is new")
        else:
            yield from _changes_of_type(event_type, was[event_type], now[event_type])


def _changes_of_type(event_type: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[SchemaChange]:
    for version in _promised(was):
        if version > now["version"] or (version == now["version"] and str(version) not in now["versions"]):
            yield Breach(kind="removed_version", type=event_type, version=version, text="the version is gone")
        elif version < now["version"] and version not in now["upcasts_from"]:
            yield _no_upcaster(event_type, version, was)
        if str(version) in was["versions"] and str(version) in now["versions"]:
            yield from _changes_of_version(event_type, version, was, now)
    for version in range(was["version"] + 1, now["version"] + 1):
        if version < now["version"] and version not in now["upcasts_from"]:
            yield _no_upcaster(event_type, version, was)
        elif version == now["version"] and version - 1 in now["upcasts_from"]:
            yield Addition(kind="new_version", type=event_type, version=version, text="the version is new")


def _promised(was: Mapping[str, Any]) -> list[int]:
    """Return every version that was readable: those with a model and those with an upcaster."""
    return sorted({int(version) for version in was["versions"]} | set(was["upcasts_from"]))


def _no_upcaster(event_type: str, version: int, was: Mapping[str, Any]) -> Breach:
    lost = version in was["upcasts_from"]
    text = f"{'the upcaster is gone' if lost else 'there is no upcaster'} that leads to version {version + 1}"
    return Breach(kind="removed_upcaster" if lost else "no_upcaster", type=event_type, version=version, text=text)


def _changes_of_version(
    event_type: str, version: int, was: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[SchemaChange]:
    old, new = _schema_of(was["versions"][str(version)]), _schema_of(now["versions"][str(version)])
    for found in differences(old, new):
        made = Addition if found.kind == "new_field" else Breach
        yield made(kind=found.kind, type=event_type, version=version, field=found.path, text=found.text)


class _LockedField(msgspec.Struct):
    required: bool
    schema: dict[str, Any]
    default: Any = None


class _LockedVersion(msgspec.Struct, omit_defaults=True):
    fields: dict[str, _LockedField]
    open: bool = False
    defs: dict[str, dict[str, Any]] = {}


class _LockedType(msgspec.Struct):
    version: int
    upcasts_from: list[int]
    versions: dict[int, _LockedVersion]


class _Lock(msgspec.Struct):
    format: int
    types: dict[str, _LockedType]


def _read(locked: str) -> dict[str, Any]:
    """Return the types of a lock's text; a lock that cannot be read is never treated as empty."""
    try:
        stated = msgspec.json.decode(locked, type=dict[str, Any])
        if isinstance(stated.get("format"), int) and stated["format"] > FORMAT:
            raise NewerFormat(
                f"the schema lock has format {stated['format']}",
                why=f"this version of everlog reads up to format {FORMAT}",
                hint="update everlog",
            )
        found: dict[str, Any] = msgspec.to_builtins(
            msgspec.convert(stated, _Lock, str_keys=True).types, str_keys=True
        )
    except msgspec.MsgspecError as error:
        raise InvalidSettings(
            "the schema lock cannot be read",
            why=str(error),
            hint="restore it from version control, or write a new one: everlog schema lock",
        ) from error
    return found


# ---- what a changed JSON Schema no longer accepts
#
# An old schema and a new one of the same version are compared. Widening is additive (a field that may now be null, a
# new choice). Narrowing is a breach, because events that were accepted before would no longer be.


class Difference(msgspec.Struct, frozen=True):
    """One difference within a payload, at a path such as `items[].name`."""

    kind: DifferenceKind
    path: str
    text: str


def differences(old: Schema, new: Schema) -> Iterator[Difference]:
    """Return every difference between two schemas of a payload, each with its own `$defs`."""
    return _Comparison(old.get("$defs", {}), new.get("$defs", {})).of(old, new, "")


class _Comparison:
    """One comparison; it remembers the pairs it has compared, because a model may refer to itself."""

    def __init__(self, old_definitions: Schema, new_definitions: Schema) -> None:
        self._old_definitions = old_definitions
        self._new_definitions = new_definitions
        self._met: set[tuple[str, str]] = set()

    def of(self, old: Schema, new: Schema, path: str) -> Iterator[Difference]:
        if "$ref" in old and "$ref" in new:
            pair = (old["$ref"], new["$ref"])
            if pair in self._met:
                return
            self._met.add(pair)
        now = _alternatives(new, self._new_definitions)
        if {} in now:
            return  # anything is accepted now
        for before in _alternatives(old, self._old_definitions):
            matching = [schema for schema in now if _kind(schema) == _kind(before)]
            if not matching:
                yield Difference("changed_type", path, self._type_change(old, new))
                return
            found = [list(self._of_one_kind(before, schema, path)) for schema in matching]
            # Of several alternatives of one kind (two object types), the most similar one is compared.
            yield from min(found, key=len)

    def _of_one_kind(self, old: Schema, new: Schema, path: str) -> Iterator[Difference]:
        yield from _narrower_choice(old, new, path)
        yield from _narrower_bounds(old, new, path)
        if "items" in new:
            yield from self.of(old.get("items") or {}, new["items"] or {}, f"{path}[]")
        if "properties" in old or "properties" in new:
            yield from self._of_fields(old, new, path)
        values = new.get("additionalProperties", True)
        if isinstance(values, Mapping):
            before = old.get("additionalProperties", True)
            yield from self.of(before if isinstance(before, Mapping) else {}, values, f"{path}.*" if path else "*")
        elif values is False and old.get("additionalProperties", True) is not False:
            yield Difference("narrowed", path, "it no longer accepts fields of any name")

    def _of_fields(self, old: Schema, new: Schema, path: str) -> Iterator[Difference]:
        was, now = old.get("properties", {}), new.get("properties", {})
        was_required, is_required = old.get("required", ()), new.get("required", ())
        for name, schema in was.items():
            place = f"{path}.{name}" if path else name
            if name not in now:
                yield Difference("removed_field", place, "the field is gone")
                continue
            if name in is_required and name not in was_required:
                yield Difference("now_required", place, "the field could be left out and is now required")
            yield from self.of(schema, now[name], place)
        for name in now.keys() - was.keys():
            place = f"{path}.{name}" if path else name
            if name in is_required:
                yield Difference("new_required_field", place, "the new field has no default")
            else:
                yield Difference("new_field", place, "the field is new and has a default")

    def _type_change(self, old: Schema, new: Schema) -> str:
        was, now = type_text(old, self._old_definitions), type_text(new, self._new_definitions)
        return f"the type was {was} and is now {now}"


def _alternatives(schema: Schema, definitions: Schema) -> list[Schema]:
    """Return the alternatives of a schema; an empty schema accepts anything."""
    schema = resolve(schema, definitions)
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return [found for part in several for found in _alternatives(part, definitions)]
    bare = {key: value for key, value in schema.items() if key not in ("description", "default", "$defs")}
    return [bare]


def _kind(schema: Schema) -> str:
    """Return the JSON type of a schema; of a choice, the type of its values."""
    if "enum" in schema:
        kinds = {_kind_of_value(value) for value in schema["enum"]}
        return kinds.pop() if len(kinds) == 1 else "mixed"
    return str(schema.get("type", "any"))


def _kind_of_value(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case str():
            return "string"
        case _:
            return "other"


def _narrower_choice(old: Schema, new: Schema, path: str) -> Iterator[Difference]:
    if "enum" not in new:
        return
    if "enum" not in old:
        listed = ", ".join(map(str, new["enum"]))
        yield Difference("narrowed", path, f"it could be anything of its type and must now be one of {listed}")
        return
    gone = [str(value) for value in old["enum"] if value not in new["enum"]]
    if gone:
        yield Difference("narrowed", path, f"it may no longer be {' or '.join(gone)}")


def _narrower_bounds(old: Schema, new: Schema, path: str) -> Iterator[Difference]:
    for bound in _LOWER_BOUNDS:
        if bound in new and (bound not in old or new[bound] > old[bound]):
            yield Difference("narrowed", path, _bound_text(bound, old, new))
    for bound in _UPPER_BOUNDS:
        if bound in new and (bound not in old or new[bound] < old[bound]):
            yield Difference("narrowed", path, _bound_text(bound, old, new))
    for rule in _PATTERNS:
        if rule in new and new[rule] != old.get(rule):
            yield Difference("narrowed", path, _bound_text(rule, old, new))


def _bound_text(rule: str, old: Schema, new: Schema) -> str:
    return f"{rule} was {old.get(rule, 'not set')} and is now {new[rule]}"
