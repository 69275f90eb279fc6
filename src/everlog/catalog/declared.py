"""Event types declared as data, without Python: the file `types.toml` in a log's folder.

    [types."workpackage.moved"]
    version = 1
    doc = "A work package went from one lane to another."
    fields = { came_from = "str", went_to = "planned | doing | done", reason = "str = ''", size = "int?" }
    transitions = { kind = "workpackage", field = "went_to", initial = "planned", allowed = { planned = ["doing"] } }

    [types."cart.item_added"]
    fields = { item = "str" }
    merge = "union"

    [contracts]                          # of types that are not declared: what the lake does with their payloads
    "shop.visited" = "freeze"            # a new shape is set aside
    "*" = "ask"                          # all are set aside; without this line, evolve: a new field is a new column

`grammar` defines the words of a field. All problems of a file are reported at once.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.catalog.defects import struct_defects
from everlog.catalog.grammar import Field, FieldError, parse_field
from everlog.core.fields import require_shape
from everlog.errors import EverlogError, InvalidField, InvalidSettings

FILE_NAME = "types.toml"

_FIELD_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class _Moves(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    field: str
    initial: str
    allowed: dict[str, list[str]]


class _Type(msgspec.Struct, forbid_unknown_fields=True):
    version: Annotated[int, msgspec.Meta(ge=1)] = 1
    doc: str = ""
    fields: dict[str, str] = {}
    merge: str = ""
    transitions: _Moves | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    types: dict[str, _Type] = {}
    contracts: dict[str, Literal["evolve", "freeze", "ask"]] = {}


def read_types(text: str, *, source: str = FILE_NAME) -> Catalog:
    """Return the catalog of the types that a TOML text declares; `source` names the text in errors."""
    declared = _parse(text, source)
    catalog = Catalog()
    catalog.contracts.update(declared.contracts)
    problems: list[str] = []
    for event_type, block in declared.types.items():
        _fields(event_type, block.fields, problems)
        if not problems:
            problems += _register(catalog, event_type, block)
    if not problems:
        # A version above 1 has its upcasters in Python, in another catalog; only this file is checked here.
        problems = [problem for problem in catalog.check() if problem not in catalog.gaps()]
    if problems:
        raise _unusable(source, problems)
    return catalog


def declare(text: str, event_type: str, fields: Mapping[str, str], doc: str = "", *, source: str = FILE_NAME) -> str:
    """Return the TOML text with one type added at its end, or unchanged if it has the type with the same fields."""
    before = _parse(text, source)
    problems: list[str] = []
    wanted = _fields(event_type, fields, problems)
    if problems:
        raise _unusable(f"the type {event_type}", problems)
    if event_type in before.types:
        _refuse_other_fields(
            event_type, _fields(event_type, before.types[event_type].fields, problems), wanted, source
        )
        return text
    added = text.rstrip("\n") + "\n\n" if text.strip() else text
    added += _block(event_type, wanted, doc)
    _require_parsed_back(added, before, event_type, wanted, doc, source)
    return added


def _parse(text: str, source: str) -> _File:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(
            f"{source} is not TOML", why=str(error), hint="correct that line", source=source
        ) from error
    try:
        return msgspec.convert(data, _File)
    except msgspec.ValidationError as error:
        problems = [f"{path.removeprefix('$.')}: {reason}" for path, reason in struct_defects(_File, data)]
        raise _unusable(source, problems) from error


def _unusable(source: str, problems: list[str]) -> InvalidSettings:
    return InvalidSettings(
        f"{source} cannot be used",
        why="; ".join(problems),
        hint='a field is declared as in: reason = "str = \'\'", lane = "planned | doing", size = "int?"',
        source=source,
        problems=problems,
    )


def _fields(event_type: str, fields: Mapping[str, str], problems: list[str]) -> dict[str, Field]:
    """Return the declared fields; problems with them are added to `problems`."""
    try:
        require_shape("type", event_type)
    except InvalidField as error:
        problems.append(f"{error}")
    found: dict[str, Field] = {}
    for name, words in fields.items():
        if _FIELD_NAME.fullmatch(name) is None:
            problems.append(f"{event_type}, field {name!r}: a name is letters, digits and _, starting with a letter")
            continue
        try:
            found[name] = parse_field(words)
        except FieldError as error:
            problems.append(f"{event_type}, field {name}: {words!r}: {error}")
    return found


def model_of(event_type: str, fields: Mapping[str, str], doc: str) -> type[Any]:
    """Return the payload model of declared fields. It keeps their text, so that another process can build it
    again."""
    return msgspec.defstruct(
        "".join(part.capitalize() for part in re.split(r"[._]", event_type)),
        [_member(name, parse_field(words)) for name, words in fields.items()],
        namespace={"__doc__": doc or None, "__declared__": dict(fields)},
        module=__name__,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def _register(catalog: Catalog, event_type: str, block: _Type) -> list[str]:
    try:
        model = model_of(event_type, block.fields, block.doc)
        catalog.event(event_type, version=block.version, merge=block.merge)(model)
        if block.transitions is not None:
            catalog.transitions(type=event_type, **msgspec.structs.asdict(block.transitions))
    except EverlogError as error:
        return [f"{event_type}: {error}"]
    return []


def _member(name: str, field: Field) -> tuple[str, Any] | tuple[str, Any, Any]:
    if field.required:
        return name, field.annotation()
    if isinstance(field.default, dict | list) and field.default:
        return name, field.annotation(), msgspec.field(default_factory=_copies_of(field.default))
    return name, field.annotation(), field.default


def _copies_of(value: Any) -> Callable[[], Any]:
    return lambda: copy.deepcopy(value)


def _refuse_other_fields(
    event_type: str, known: Mapping[str, Field], wanted: Mapping[str, Field], source: str
) -> None:
    if dict(known) == dict(wanted):
        return
    listed = ", ".join(f"{name}: {field}" for name, field in known.items())
    raise InvalidSettings(
        f"{source} declares {event_type} already",
        why=f"with other fields: {listed or 'none'}",
        hint=f"change it in {source}: a new field needs a default, any other change a new version",
        source=source,
        type=event_type,
    )


def _block(event_type: str, fields: Mapping[str, Field], doc: str) -> str:
    import tomlkit  # only a command that declares a type needs it

    block: dict[str, Any] = {"version": 1}
    if doc:
        block["doc"] = doc
    if fields:
        block["fields"] = {name: str(field) for name, field in fields.items()}
    text: str = tomlkit.dumps({"types": {event_type: block}})
    return text


def _require_parsed_back(
    added: str, before: _File, event_type: str, fields: Mapping[str, Field], doc: str, source: str
) -> None:
    """Refuse a text that does not read as the earlier types plus the new one."""
    expected = {**before.types, event_type: _Type(doc=doc, fields={name: str(f) for name, f in fields.items()})}
    try:
        added.encode()
        why = "" if _parse(added, source).types == expected else "the result reads differently"
    except InvalidSettings as error:
        why = error.why
    except UnicodeEncodeError:
        why = "it holds half of a character (a lone surrogate)"
    if why:
        raise InvalidSettings(
            f"{event_type} cannot be added to {source}",
            why=why,
            hint=f'write the types of {source} as blocks, [types."{event_type}"], and try again',
            source=source,
            type=event_type,
        )
