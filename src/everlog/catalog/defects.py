"""Everything that is wrong with a payload, each defect as (path, reason).

msgspec stops at the first defect, which is right for speed and wrong for a person who must mend the payload: so a
payload that failed is walked again here, field by field. What a model would drop in silence (an unknown field, which
is most often a typo) is a defect too.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from everlog.catalog.nearest import did_you_mean
from everlog.core.paths import below

Defect: TypeAlias = tuple[str, str]

_PLACE = re.compile(r"(?P<reason>.*?)(?: - at (?P<key>`key` in )?`\$(?P<below>[^`]*)`)?", re.DOTALL)
_ARRAYS = (list, set, frozenset, collections.abc.Sequence, collections.abc.Collection, collections.abc.Set)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS = (list, tuple)
_SCALARS = frozenset((str, int, float, bool, types.NoneType))

MISSING = "it is missing"


def no_such_field(name: str, known: Iterable[str]) -> str:
    """Why an unknown field is refused, with the field that was probably meant."""
    names = list(known)
    meant = did_you_mean(name, names)
    if meant or not names:
        return f"there is no such field; {meant}" if meant else "there is no such field"
    return f"there is no such field; the fields are {', '.join(names)}"


def struct_defects(model: type[msgspec.Struct], payload: Any) -> list[Defect]:
    """Every defect of a payload that `model` refused."""
    found = list(_defects(payload, model, "$"))
    return found or [(path, reason) for path, reason in _unencodable(payload, "$")]


def strays(given: Any, kept: Any, steps: tuple[str | int, ...] = ()) -> Iterator[Defect]:
    """The members of `given` that the conversion to `kept` dropped because no model names them."""
    # Every append of a nested model comes by here: scalars are passed over, and a path is spelled out only if needed.
    if isinstance(given, _LISTS):
        if isinstance(kept, _LISTS) and len(given) == len(kept):
            for index, value in enumerate(given):
                if type(value) not in _SCALARS:
                    yield from strays(value, kept[index], (*steps, index))
        return
    members = _members(kept) if isinstance(given, Mapping) else None
    if members is None:
        return
    for key, value in given.items():
        if key in members:
            if type(value) not in _SCALARS:
                yield from strays(value, members[key], (*steps, key))
        elif not isinstance(kept, dict) or len(given) > len(kept):
            yield reduce(below, (*steps, str(key)), "$"), no_such_field(str(key), map(str, members))


def _members(kept: Any) -> Mapping[Any, Any] | None:
    """The named members of what a JSON object was converted to."""
    if isinstance(kept, msgspec.Struct):
        members = dict(zip(kept.__struct_encode_fields__, msgspec.structs.astuple(kept), strict=True))
        tag_field = kept.__struct_config__.tag_field
        return {**members, tag_field: None} if tag_field else members
    if dataclasses.is_dataclass(kept):
        return {field.name: getattr(kept, field.name) for field in dataclasses.fields(kept)}
    return kept if isinstance(kept, dict) else None


def _defects(value: Any, expected: Any, path: str) -> Iterator[Defect]:
    inside = list(_defects_inside(value, expected, path))
    # A rule about the whole (a list's length, a model's own check) speaks only when every part is right.
    yield from inside or _defect_of_the_whole(value, expected, path)


def _defects_inside(value: Any, expected: Any, path: str) -> Iterator[Defect]:
    inner = _without_annotation(expected)
    if get_origin(inner) in (Union, types.UnionType):
        inner = _fitting_member(value, get_args(inner))
    origin, arguments = get_origin(inner), get_args(inner)
    if isinstance(value, Mapping):
        if _is_object_struct(inner):
            yield from _defects_of_fields(value, inner, path)
        elif origin in _OBJECTS and len(arguments) == 2:
            for key, item in value.items():
                yield from _defect_of_the_whole(key, arguments[0], below(path, str(key)))
                yield from _defects(item, arguments[1], below(path, str(key)))
    elif isinstance(value, list | tuple) and _is_array(origin, arguments):
        for index, item in enumerate(value):
            yield from _defects(item, arguments[0], below(path, index))


def _defects_of_fields(value: Mapping[Any, Any], model: type[msgspec.Struct], path: str) -> Iterator[Defect]:
    known: dict[str, Any] = {}
    for field in msgspec.structs.fields(model):
        known[field.encode_name] = field.type
        if field.encode_name in value:
            yield from _defects(value[field.encode_name], field.type, below(path, field.encode_name))
        elif field.required:
            yield below(path, field.encode_name), MISSING
    tag_field, tag = model.__struct_config__.tag_field, model.__struct_config__.tag
    for name in value:
        if name == tag_field:
            if value[name] != tag:
                yield below(path, str(name)), f"expected {tag!r}"
        elif name not in known:
            yield below(path, str(name)), no_such_field(str(name), known)


def _defect_of_the_whole(value: Any, expected: Any, path: str) -> Iterator[Defect]:
    try:
        msgspec.convert(value, expected, str_keys=True)
    except msgspec.ValidationError as error:
        choices = _choices(expected)
        if choices and isinstance(value, str | int):
            yield path, _not_a_choice(value, choices)
            return
        place = _PLACE.fullmatch(str(error))
        assert place is not None  # the pattern matches every text
        reason = place["reason"].replace("`", "")
        where = f"{path}{place['below'] or ''}"
        described = _description(expected)
        if described and "matching regex" in reason:
            yield where, f"it is not {described}"  # a pattern is for machines
            return
        yield where, f"{'a key: ' if place['key'] else ''}{reason[:1].lower()}{reason[1:]}"


def _description(expected: Any) -> str:
    """What a field says of itself: the words of its Meta."""
    said = get_args(expected)[1:] if get_origin(expected) is Annotated else ()
    return next((meta.description for meta in said if isinstance(meta, msgspec.Meta) and meta.description), "")


def _without_annotation(expected: Any) -> Any:
    return get_args(expected)[0] if get_origin(expected) is Annotated else expected


def _is_object_struct(expected: Any) -> bool:
    return (
        isinstance(expected, type)
        and issubclass(expected, msgspec.Struct)
        and not expected.__struct_config__.array_like
    )


def _is_array(origin: Any, arguments: tuple[Any, ...]) -> bool:
    if origin is tuple:
        return len(arguments) == 2 and arguments[1] is Ellipsis
    return origin in _ARRAYS and len(arguments) == 1


def _fitting_member(value: Any, members: tuple[Any, ...]) -> Any:
    """The one member of a union that a value was probably meant for; None when that is not clear."""
    plain = [_without_annotation(member) for member in members]
    if isinstance(value, Mapping):
        fitting = [m for m in plain if _is_object_struct(m) or get_origin(m) in _OBJECTS]
        tagged = [m for m in fitting if _is_object_struct(m) and _has_its_tag(value, m)]
        fitting = tagged or fitting
    else:
        fitting = [m for m in plain if _is_array(get_origin(m), get_args(m))]
    return fitting[0] if len(fitting) == 1 else None


def _has_its_tag(value: Mapping[Any, Any], model: Any) -> bool:
    tag_field = model.__struct_config__.tag_field
    return tag_field is not None and value.get(tag_field) == model.__struct_config__.tag


def _choices(expected: Any) -> list[Any]:
    """The values of a Literal or an enum, also of one that may be null."""
    inner = _without_annotation(expected)
    if get_origin(inner) in (Union, types.UnionType):
        others = [member for member in get_args(inner) if member is not types.NoneType]
        inner = _without_annotation(others[0]) if len(others) == 1 else None
    if get_origin(inner) is Literal:
        return [choice for choice in get_args(inner) if choice is not None]
    if isinstance(inner, type) and issubclass(inner, enum.Enum):
        return [member.value for member in inner]
    return []


def _not_a_choice(value: Any, choices: list[Any]) -> str:
    meant = did_you_mean(str(value), map(str, choices))
    listed = ", ".join(map(repr, choices))
    # The value itself is not quoted: a refusal is kept, and what was refused must not come into the log by it.
    return f"it is not one of {listed}{'; ' if meant else ''}{meant}"


def _unencodable(value: Any, path: str) -> Iterator[Defect]:
    """The values that have no JSON form at all, where the model asks for none in particular."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _unencodable(item, below(path, str(key)))
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield from _unencodable(item, below(path, index))
    else:
        try:
            msgspec.to_builtins(value)
        except TypeError:
            yield path, f"a {type(value).__name__} is not a JSON value"
