"""Every defect of a payload, as (path, reason).

msgspec stops at the first defect. That is fast, but a person wants to correct all of them at once: so a payload that
failed is examined again here, field by field. A field that a model would drop silently (an unknown one, which is most
often a typo) is a defect too.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import msgspec

from everlog.core.text import below, did_you_mean

Defect: TypeAlias = tuple[str, str]

_PLACE = re.compile(r"(?P<reason>.*?)(?: - at (?P<key>`key` in )?`\$(?P<below>[^`]*)`)?", re.DOTALL)
_ARRAYS = (list, set, frozenset, collections.abc.Sequence, collections.abc.Collection, collections.abc.Set)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS = (list, tuple)
_SCALARS = frozenset((str, int, float, bool, types.NoneType))

_DEPTH_MAX = 64  # deeper values are refused anyway, where the payload is encoded

MISSING = "it is missing"


def no_such_field(name: str, known: Iterable[str]) -> str:
    """Return why an unknown field is refused, with the field that was probably meant."""
    names = list(known)
    meant = did_you_mean(name, names)
    if meant or not names:
        return f"there is no such field; {meant}" if meant else "there is no such field"
    return f"there is no such field; the fields are {', '.join(names)}"


def struct_defects(model: type[msgspec.Struct], payload: Any) -> list[Defect]:
    """Return every defect of a payload that `model` refused."""
    found = list(_defects(payload, model, "$"))
    return found or [(path, reason) for path, reason in _unencodable(payload, "$")]


def strays(given: Any, kept: Any, steps: tuple[str | int, ...] = ()) -> Iterator[Defect]:
    """Yield the members of `given` that the conversion to `kept` dropped because no model names them."""
    # This runs for every append of a nested model, so it skips scalars and builds a path only if needed.
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
    """Return the named members of what a JSON object was converted to."""
    if isinstance(kept, msgspec.Struct):
        members = dict(zip(kept.__struct_encode_fields__, msgspec.structs.astuple(kept), strict=True))
        tag_field = kept.__struct_config__.tag_field
        return {**members, tag_field: None} if tag_field else members
    if dataclasses.is_dataclass(kept):
        return {field.name: getattr(kept, field.name) for field in dataclasses.fields(kept)}
    return kept if isinstance(kept, dict) else None


def _defects(value: Any, expected: Any, path: str) -> Iterator[Defect]:
    inside = list(_defects_inside(value, expected, path))
    # A rule about the whole (the length of a list, a check of the model) applies only when every part is right.
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
            yield where, f"it is not {described}"  # a regular expression does not help a person
            return
        yield where, f"{'a key: ' if place['key'] else ''}{reason[:1].lower()}{reason[1:]}"


def _description(expected: Any) -> str:
    """Return the description of a field, from its Meta."""
    metas = get_args(expected)[1:] if get_origin(expected) is Annotated else ()
    return next((meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description), "")


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
    """Return the one member of a union that a value was probably meant for; None when that is not clear."""
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
    """Return the values of a Literal or an enum, also of one that may be null."""
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
    # The value is not quoted: refusals are recorded, and a refused value must not get into the log that way.
    return f"it is not one of {listed}{'; ' if meant else ''}{meant}"


def _unencodable(value: Any, path: str) -> Iterator[Defect]:
    """Yield the values without a JSON form, in fields that accept any value."""
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


def silent_changes(
    value: Any, *, typed_keys: bool, numbers: bool = True, path: str = "$", depth: int = 0
) -> Iterator[Defect]:
    """Yield the values of a payload that JSON would change silently.

    Two keys that are the same as JSON, such as 1 and "1", would become one. Any other key that is not a text is
    refused as well, unless the model defines the type of its keys (`typed_keys`): then it is read back unchanged.
    With `numbers`, NaN and infinities are found too; where nothing turns them into null, the encoder refuses them.
    """
    if depth > _DEPTH_MAX:
        return
    kind = type(value)
    if kind is str or value is None or kind is bool or kind is int:
        return
    if isinstance(value, float):
        if numbers and not math.isfinite(value):
            yield path, f"{value} is not a JSON number"
        return
    if isinstance(value, Mapping):
        names: set[str] = set()
        for key, item in value.items():
            name = key if type(key) is str else _as_json(key)
            place = below(path, name)
            if name in names:
                yield place, f"two keys are {name!r:.60} as JSON, so that one of them would be lost"
            elif type(key) is not str and not isinstance(key, str) and not typed_keys:
                yield place, f"the key {key!r:.60} is a {type(key).__name__}, not a string"
            names.add(name)
            if type(item) is not str:
                yield from silent_changes(item, typed_keys=typed_keys, numbers=numbers, path=place, depth=depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            if type(item) is not str:
                place = below(path, index)
                yield from silent_changes(item, typed_keys=typed_keys, numbers=numbers, path=place, depth=depth + 1)


def _as_json(key: Any) -> str:
    """Return the JSON text of a key."""
    if isinstance(key, bool):
        return "true" if key else "false"
    try:
        (found,) = msgspec.to_builtins({key: None}, str_keys=True)
    except (TypeError, ValueError):
        return str(key)
    return str(found)
