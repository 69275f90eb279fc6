"""The shape of values that were seen: what a type that nobody declared is read as.

    null        nothing but null so far
    bool int float text time
    list        of one shape; object: a shape for each field
    json        values that contradict each other, or more fields than a table should have columns

`merged` is commutative and associative, so payloads can be looked at in any order and by any number of processes. A
shape only grows: what fitted once fits ever after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import msgspec

NULL, TEXT, TIME, LIST, OBJECT, JSON = "null", "text", "time", "list", "object", "json"
NULLS = "[]"
FIELDS_MAX = 300
"""The fields that an object may have; one with more is JSON."""

COLUMNS_MAX = 1000
"""The columns that a table may have, with those inside of other columns."""

_SCALARS = {bool: "bool", int: "int", float: "float"}
_WIDER = {frozenset({"int", "float"}): "float", frozenset({TEXT, TIME}): TEXT}
# No more digits than a timestamp has: converting it must not lose any.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    TEXT: {"type": "string"},
    TIME: {"type": "string", "format": "date-time"},
}
_WORDS = {"bool": "bool", "int": "int", "float": "float", TEXT: "str", TIME: "str", OBJECT: "object", LIST: "list"}


class Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    item: Shape | None = None
    fields: dict[str, Shape] = {}
    optional: frozenset[str] = frozenset()  # fields that were missing or null once; NULLS, if an item was


def shape_of(value: Any) -> Shape:
    """Return the shape of one JSON value."""
    kind = _kind(value)
    if kind == LIST:
        return Shape(LIST, merged_all(map(shape_of, value)), optional=frozenset({NULLS} if None in value else ()))
    if kind == OBJECT:
        fields = {name: shape_of(part) for name, part in value.items()}
        optional = frozenset(name for name, part in value.items() if part is None)
        return Shape(OBJECT, fields=fields, optional=optional) if len(fields) <= FIELDS_MAX else Shape(JSON)
    return Shape(kind)


def merged_all(shapes: Iterable[Shape]) -> Shape | None:
    found = iter(shapes)
    first = next(found, None)
    return None if first is None else reduce(merged, found, first)


def united(shapes: Iterable[Shape], onto: Shape | None = None) -> Shape | None:
    """Merge shapes of payloads, the first before the others, without those that would make too many columns."""
    for shape in shapes:
        wider = shape if onto is None else merged(onto, shape)
        if wider.kind == OBJECT and _columns(wider) <= COLUMNS_MAX:
            onto = wider
    return onto


def _columns(shape: Shape) -> int:
    if shape.item is not None:
        return _columns(shape.item)
    return sum(map(_columns, shape.fields.values())) or 1


def merged(one: Shape, other: Shape) -> Shape:
    """Return the shape that values of both have."""
    kind = _common(one.kind, other.kind)
    if kind == one.kind != other.kind:
        return one
    if kind == other.kind != one.kind:
        return other
    if kind == LIST:
        items = [item for item in (one.item, other.item) if item is not None]
        return Shape(LIST, merged_all(items), optional=one.optional | other.optional)
    if kind == OBJECT:
        fields = {**one.fields, **other.fields}
        for name in one.fields.keys() & other.fields.keys():
            fields[name] = merged(one.fields[name], other.fields[name])
        if len(fields) > FIELDS_MAX:
            return Shape(JSON)
        missing = one.fields.keys() ^ other.fields.keys()
        return Shape(OBJECT, fields=dict(sorted(fields.items())), optional=one.optional | other.optional | missing)
    return Shape(kind)


def misfit(shape: Shape, value: Any, path: str = "$") -> str:
    """Return where a value does not fit a shape; empty if it does. A field may be missing."""
    kind = _kind(value)
    if kind == NULL or shape.kind == JSON:
        return ""
    if _common(kind, shape.kind) != shape.kind:
        return path
    if kind == LIST:
        item = shape.item or Shape(NULL)
        return next((found for part in value if (found := misfit(item, part, f"{path}[]"))), "")
    if kind == OBJECT:
        for name, part in value.items():
            if name not in shape.fields:
                return f"{path}.{name}"
            if found := misfit(shape.fields[name], part, f"{path}.{name}"):
                return found
    return ""


def json_schema(shape: Shape) -> dict[str, Any]:
    """Return a shape as a JSON Schema. One without a `type` is for values that contradict each other."""
    if shape.kind == LIST and shape.item is not None:
        return {"type": "array", "items": json_schema(shape.item)}
    if shape.kind == OBJECT:
        return {"type": "object", "properties": {name: json_schema(part) for name, part in shape.fields.items()}}
    return _SCHEMAS.get(shape.kind, {})


def declaration(shape: Shape) -> dict[str, str]:
    """Return the fields of a shape as types.toml declares them: those that were missing once may be left out."""
    return {name: _word(part) + "?" * (name in shape.optional) for name, part in shape.fields.items()}


def _word(shape: Shape) -> str:
    if shape.kind == LIST and shape.item is not None and (inner := _word(shape.item)) not in ("any", "object"):
        return f"list[{inner}{'?' * (NULLS in shape.optional)}]"
    return _WORDS.get(shape.kind, "any")


def _kind(value: Any) -> str:
    if value is None:
        return NULL
    if isinstance(value, str):
        return TIME if _is_time(value) else TEXT
    if isinstance(value, Mapping):
        return OBJECT
    return LIST if isinstance(value, list) else _SCALARS[type(value)]


def _is_time(text: str) -> bool:
    if not _TIME.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return False  # no such day or zone, or not between the years 1 and 9999 in UTC
    return True


def _common(one: str, other: str) -> str:
    if one == other or other == NULL:
        return one
    return other if one == NULL else _WIDER.get(frozenset({one, other}), JSON)
