"""What a changed JSON Schema no longer accepts: the difference that breaks old events, and the one that does not.

Compared are an old schema and a new one of the same version. To widen is additive (a field that may now be null, one
more choice); to narrow is a breach, because events that were accepted would no longer be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from everlog.catalog.schema import resolve, type_text

Schema = Mapping[str, Any]
Kind = Literal["removed_field", "new_required_field", "now_required", "changed_type", "narrowed", "new_field"]

_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_PATTERNS = ("pattern", "format", "multipleOf", "contentEncoding", "prefixItems", "uniqueItems", "propertyNames")


class Difference(msgspec.Struct, frozen=True):
    """One difference within a payload, at a path such as `items[].name`."""

    kind: Kind
    path: str
    text: str


def differences(old: Schema, new: Schema) -> Iterator[Difference]:
    """Every difference between two schemas of a payload, each with its own `$defs`."""
    return _Comparison(old.get("$defs", {}), new.get("$defs", {})).of(old, new, "")


class _Comparison:
    """One comparison; it remembers which pairs it has met, because a model may refer to itself."""

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
            # Several alternatives of a kind (two object types): the one that fits best is the one that it became.
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
    """The schemas of which a value must fit one; an empty schema stands for anything."""
    schema = resolve(schema, definitions)
    several = schema.get("anyOf") or schema.get("oneOf")
    if several:
        return [found for part in several for found in _alternatives(part, definitions)]
    bare = {key: value for key, value in schema.items() if key not in ("description", "default", "$defs")}
    return [bare]


def _kind(schema: Schema) -> str:
    """The JSON type that a schema is about; a choice is about the type of its values."""
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
