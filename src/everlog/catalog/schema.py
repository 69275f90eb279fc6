"""One form of JSON Schema 2020-12 for every model of either library, and what can be derived from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from everlog.catalog.grammar import choice_text

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DEFINITIONS = "#/$defs/"

_MAPS = frozenset(("properties", "$defs", "patternProperties"))
_LISTS = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_SINGLES = frozenset(("items", "additionalProperties", "contains", "not", "propertyNames"))
_WORDS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "null"}


class FieldInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a payload, for people."""

    name: str
    type: str
    required: bool
    default: Any = None
    doc: str = ""


def object_schema(top: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a payload: an object with its `properties`, the definitions it refers to under `$defs`."""
    schema = normal(top)
    named = {name: normal(definition) for name, definition in definitions.items()}
    used = _reachable(schema, named)
    if used:
        schema["$defs"] = {name: named[name] for name in sorted(used)}
    return schema


def normal(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same schema without differences between libraries that have no meaning.

    A generated title goes; a constant is an enum of one; an enum needs no type and no order; an object with named
    properties is closed, because a payload with an unknown field is refused whatever the model would do with it.
    """
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _MAPS:
            found[keyword] = {name: normal(part) for name, part in value.items()}
        elif keyword in _LISTS:
            found[keyword] = [normal(part) for part in value]
        elif keyword in _SINGLES and isinstance(value, Mapping):
            found[keyword] = normal(value)
        elif keyword == "const":
            found["enum"] = [value]
        elif keyword == "required":
            found[keyword] = sorted(value)
        elif keyword == "enum":
            found[keyword] = sorted(value, key=lambda choice: (type(choice).__name__, str(choice)))
        elif keyword != "title":
            found[keyword] = value
    if "enum" in found:
        found.pop("type", None)
    if "properties" in found:
        found.setdefault("required", [])
        found.setdefault("additionalProperties", False)
    return found


def with_prefix(schema: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the schema with `prefix` added to the name in every reference."""
    found: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "$ref":
            found[keyword] = f"{DEFINITIONS}{prefix}{value.removeprefix(DEFINITIONS)}"
        elif keyword in _MAPS:
            found[keyword] = {name: with_prefix(part, prefix) for name, part in value.items()}
        elif keyword in _LISTS:
            found[keyword] = [with_prefix(part, prefix) for part in value]
        elif keyword in _SINGLES and isinstance(value, Mapping):
            found[keyword] = with_prefix(value, prefix)
        else:
            found[keyword] = value
    return found


def events_schema(payloads: Iterable[tuple[str, int, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the schema of whole events, given (type, version, schema of the payload) of each type."""
    definitions: dict[str, Any] = {}
    events: list[dict[str, Any]] = []
    for event_type, version, payload in payloads:
        # Models of two types often share a name (Created, Moved), so each is prefixed with its type.
        schema = with_prefix(payload, f"{event_type}:")
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


def resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema that a reference points to."""
    seen: set[str] = set()
    while "$ref" in schema:
        name = schema["$ref"].removeprefix(DEFINITIONS)
        if name in seen or name not in definitions:
            return {}
        seen.add(name)
        schema = definitions[name]
    return schema


def parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and every schema written within it."""
    yield schema
    for keyword, value in schema.items():
        if keyword in _MAPS:
            within = list(value.values())
        elif keyword in _LISTS:
            within = value
        elif keyword in _SINGLES and isinstance(value, Mapping):
            within = [value]
        else:
            continue
        for part in within:
            yield from parts(part)


def field_infos(schema: Mapping[str, Any]) -> tuple[FieldInfo, ...]:
    """Return the fields of an object's schema, in the order in which the model declares them."""
    definitions = schema.get("$defs", {})
    required = schema.get("required", ())
    return tuple(
        FieldInfo(
            name=name,
            type=type_text(field, definitions) + (f" personal of {of}" if (of := field.get("x-personal-of")) else ""),
            required=name in required,
            default=field.get("default"),
            doc=field.get("description", ""),
        )
        for name, field in schema.get("properties", {}).items()
    )


def type_text(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """Return a schema in the words of the declared types: `str`, `list[int]`, `planned | doing`, `int?`."""
    if "$ref" in schema:
        target = resolve(schema, definitions)
        return type_text(target, definitions) if "enum" in target else schema["$ref"].removeprefix(DEFINITIONS)
    if "enum" in schema:
        return " | ".join(choice_text(choice) for choice in schema["enum"])
    alternatives = schema.get("anyOf") or schema.get("oneOf")
    if alternatives:
        words = [type_text(part, definitions) for part in alternatives]
        nullable = "null" in words
        return " | ".join(word for word in words if word != "null") + ("?" if nullable else "")
    match schema.get("type"):
        case "array":
            return f"list[{type_text(schema['items'], definitions)}]" if schema.get("items") else "list"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {type_text(values, definitions)}" if isinstance(values, dict) and values else "object"
        case str(name):
            return _WORDS.get(name, name)
        case _:
            return "any"


def _reachable(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> set[str]:
    """Return the names of the definitions that a schema refers to, directly or through another one."""
    found: set[str] = set()
    ahead = list(_references(schema))
    while ahead:
        name = ahead.pop()
        if name not in found and name in definitions:
            found.add(name)
            ahead.extend(_references(definitions[name]))
    return found


def _references(schema: Mapping[str, Any]) -> Iterator[str]:
    return (part["$ref"].removeprefix(DEFINITIONS) for part in parts(schema) if "$ref" in part)
