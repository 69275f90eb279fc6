"""Typed columns for the payload of one event type, as its model declares them.

    str, enum of texts      string               list[T]            list of T
    int, enum of numbers    int64                object of T        map of text to T
    float                   double               a model            struct of its fields
    bool                    bool                 T or null          T
    datetime, date          timestamp (UTC), date
    anything else           string: canonical JSON, as in `Any`, unions, models that hold themselves

Characters that Delta forbids in a name (" ,;{}()=") become `_`. A name that is taken, for instance by a column of the
envelope, gets a `_` at its end; Delta does not distinguish Name from name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa

from everlog.catalog.schema import DEFINITIONS, resolve
from everlog.core.canonical import canonical

INSTANT = pa.timestamp("us", tz="UTC")
_FORBIDDEN = re.compile(r"[ ,;{}()\n\t=.`]")
_PLAIN = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
_NUMBERS = (int, float)

_Convert = Callable[[Any], Any]


class Column(NamedTuple):
    """A field of the payload as a column: `convert` makes an Arrow value of a JSON value, if they differ."""

    field: str
    name: str
    type: pa.DataType
    convert: _Convert | None

    def array(self, payloads: Sequence[Mapping[str, Any] | None]) -> pa.Array:
        """Return the column of these payloads; null for one that was erased."""
        field, convert = self.field, self.convert
        values = [None if payload is None else payload.get(field) for payload in payloads]
        if convert is not None:
            values = [None if value is None else convert(value) for value in values]
        return pa.array(values, self.type)


def columns_of(schema: Mapping[str, Any], *, taken: Iterable[str] = ()) -> list[Column]:
    """Return the columns of a payload's JSON Schema, with names that differ from those in `taken`."""
    definitions = schema.get("$defs", {})
    properties = schema.get("properties", {})
    names = _names(properties, taken)
    return [Column(field, names[field], *_typed(part, definitions, ())) for field, part in properties.items()]


def _names(fields: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    used = {name.lower() for name in taken}
    found = {}
    for field in fields:
        name = _FORBIDDEN.sub("_", field) or "_"
        while name.lower() in used:
            name += "_"
        used.add(name.lower())
        found[field] = name
    return found


def _typed(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> tuple[pa.DataType, _Convert | None]:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(DEFINITIONS)
        if name in within:
            return _JSON
        return _typed(resolve(schema, definitions), definitions, (*within, name))
    if "enum" in schema:
        return _of_choices(schema["enum"])
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        some = [part for part in alternatives if part.get("type") != "null"]
        return _typed(some[0], definitions, within) if len(some) == 1 else _JSON
    match schema.get("type"):
        case "string":
            return _of_text(schema.get("format", ""))
        case "array":
            return _of_list(schema.get("items"), definitions, within)
        case "object":
            return _of_object(schema, definitions, within)
        case str(name) if name in _PLAIN:
            # JSON has one kind of number: 1 is a float where the model says so.
            return _PLAIN[name], float if name == "number" else None
        case _:
            return _JSON


def _of_choices(choices: Sequence[Any]) -> tuple[pa.DataType, _Convert | None]:
    there = [choice for choice in choices if choice is not None]
    if there and all(isinstance(choice, str) for choice in there):
        return pa.string(), None
    if there and all(type(choice) is int for choice in there):
        return pa.int64(), None
    if there and all(type(choice) is bool for choice in there):
        return pa.bool_(), None
    return _JSON


def _of_text(form: str) -> tuple[pa.DataType, _Convert | None]:
    if form == "date-time":
        return INSTANT, _instant
    if form == "date":
        return pa.date32(), date.fromisoformat
    return pa.string(), None


def _of_list(items: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> tuple[pa.DataType, _Convert]:
    if not isinstance(items, Mapping) or not items:
        return _JSON
    inner, convert = _typed(items, definitions, within)
    if convert is None:
        return pa.list_(inner), list
    return pa.list_(inner), lambda values: [None if value is None else convert(value) for value in values]


def _of_object(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> tuple[pa.DataType, _Convert]:
    properties, values = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        return _of_model(properties, definitions, within)
    if not isinstance(values, Mapping) or not values:
        return _JSON
    inner, convert = _typed(values, definitions, within)

    def pairs(found: Mapping[str, Any]) -> list[tuple[str, Any]]:
        if convert is None:
            return list(found.items())
        return [(key, None if value is None else convert(value)) for key, value in found.items()]

    return pa.map_(pa.string(), inner), pairs


def _of_model(
    properties: Mapping[str, Any], definitions: Mapping[str, Any], within: tuple[str, ...]
) -> tuple[pa.DataType, _Convert]:
    names = _names(properties)
    parts = {field: _typed(part, definitions, within) for field, part in properties.items()}
    type_ = pa.struct([pa.field(names[field], inner) for field, (inner, _) in parts.items()])

    def convert(found: Mapping[str, Any]) -> dict[str, Any]:
        return {
            names[field]: value if value is None or inner is None else inner(value)
            for field, (_, inner) in parts.items()
            for value in (found.get(field),)
        }

    return type_, convert


def _as_json(value: Any) -> str:
    return canonical(value).decode()


def _instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


_JSON: tuple[pa.DataType, _Convert] = (pa.string(), _as_json)
