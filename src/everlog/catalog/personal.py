"""Personal fields: which fields of a payload are about a person, and which field names that person.

    class Registered(msgspec.Struct):
        customer: str
        email: Annotated[str, Personal(of="customer")]

The value of such a field is stored sealed, with a key of the person whom `customer` names (`everlog.trust.sealing`).
Only a field of the payload itself can be personal, and the field that names the person stays readable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec

SEALED = "sealed:1:"
KEY_ID_CHARS = 22
"""How a sealed value begins. It is a text, whatever the value was."""

STAND_IN = "[sealed]"
"""What a reader gets in place of a value whose key was destroyed, or is not here."""


@dataclasses.dataclass(frozen=True)
class Personal:
    """Marks a field as personal. `of` is the field that names the person.

    `stand_in` is what a reader without the key gets, if the text `[sealed]` does not fit the type of the field.
    """

    of: str
    stand_in: Any = STAND_IN


def personal_fields(
    model: type[Any], names: Mapping[str, str], fits: Callable[[Any, Any], bool]
) -> dict[str, Personal]:
    """Return the personal fields of a model by the names that payloads have; raise TypeError if one cannot work.

    `names` are the names in payloads by those in Python, and `fits` returns whether a value has a type.
    """
    found: dict[str, Personal] = {}
    for name, hint in get_type_hints(model, include_extras=True).items():
        marks = list(_marks(hint))
        if name not in names:
            continue
        if not marks:
            _refuse_within(name, hint, {model})
            continue
        of = names.get(marks[0].of)
        if of is None or marks[0].of == name:
            raise TypeError(f"the field {name} is personal of {marks[0].of!r}, which is no other field")
        stand_in = marks[0].stand_in
        if not fits(stand_in, hint) and stand_in == STAND_IN:
            stand_in = None  # for a field that may be null
        if not fits(stand_in, hint):
            raise TypeError(
                f"a reader without the key of {name} would get a value that does not fit; give one that does:"
                f' Personal(of="{marks[0].of}", stand_in=…)'
            )
        found[names[name]] = Personal(of, stand_in)
    for name, mark in found.items():
        if mark.of in found:
            raise TypeError(f"{mark.of} is personal, so it cannot name the person whom {name} is about")
    return found


def has_personal(model: type[Any]) -> bool:
    """Return whether a model has personal fields; a model that cannot be used has none."""
    try:
        return _is_marked(cast(Hashable, model))
    except (NameError, TypeError):
        return False


@lru_cache(maxsize=1_000)
def _is_marked(model: Any) -> bool:
    """Return whether a field has a mark. It is asked for with every exchange; a model that cannot be used is asked
    again."""
    return any(any(_marks(hint)) for hint in get_type_hints(model, include_extras=True).values())


def with_personal(schema: dict[str, Any], personal: Mapping[str, Personal]) -> dict[str, Any]:
    """Return the JSON Schema of a payload with its personal fields marked."""
    if not personal:
        return schema
    properties = dict(schema["properties"])
    for name, mark in personal.items():
        properties[name] = {**properties[name], "x-personal-of": mark.of}
    return {**schema, "properties": properties}


def _marks(hint: Any) -> Iterator[Personal]:
    """Return the marks of a field itself: of its type, or of one of the types that it may have."""
    if get_origin(hint) is Annotated:
        yield from (mark for mark in hint.__metadata__ if isinstance(mark, Personal))
        yield from _marks(get_args(hint)[0])
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _marks(part)


def _refuse_within(name: str, hint: Any, seen: set[Any]) -> None:
    """Refuse a mark further inside a field: a value within a list or another model cannot be sealed alone."""
    for part in (hint, *get_args(hint)):
        if part is not hint and any(_marks(part)):
            raise TypeError(f"something inside {name} is personal; mark the field {name} itself")
        if isinstance(part, type) and part not in seen and get_origin(part) is None:
            seen.add(part)
            if issubclass(part, msgspec.Struct) or dataclasses.is_dataclass(part) or hasattr(part, "model_fields"):
                for inner in get_type_hints(part, include_extras=True).values():
                    if any(_marks(inner)):
                        raise TypeError(f"something inside {name} is personal; mark the field {name} itself")
                    _refuse_within(name, inner, seen)
        elif part is not hint:
            _refuse_within(name, part, seen)
