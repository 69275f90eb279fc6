"""Patches: the difference between two bodies as a JSON patch (RFC 6902), and its application.

A body is `{"rows": {…}, "places": {…}, "letters": {…}}`, where every value is held as its canonical JSON text: equal
values cost one comparison, and only changed ones are parsed. Any program that knows RFC 6902 can apply the patch to
the base.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.core.canonical import canonical
from everlog.core.differences import Difference, differences, same
from everlog.core.text import PathParts
from everlog.errors import Damaged

Body = dict[str, dict[str, bytes]]
SECTIONS = ("rows", "places", "letters")


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    op: str
    path: str
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder().decode
_encode_ops = msgspec.json.Encoder().encode
_decode_ops = msgspec.json.Decoder(list[Op]).decode


def make_patch(base: Body, body: Body) -> bytes:
    """Return the patch that makes a body from its base."""
    return _encode_ops([op for section in SECTIONS for op in _of_section(section, base[section], body[section])])


def apply_patch(base: Body, patch: bytes) -> Body:
    """Return the body that a patch makes from its base, which is not changed. Damaged if the patch does not fit."""
    body = {section: dict(values) for section, values in base.items()}
    open_values: dict[tuple[str, str], Any] = {}
    try:
        for op in _decode_ops(patch):
            section, key, *rest = _parts(op.path)
            values = body[section]
            if not rest:
                _set_member(values, key, op)
                continue
            place = (section, key)
            if place not in open_values:
                open_values[place] = _decode(values[key])
            _apply(open_values[place], rest, op)
        for (section, key), value in open_values.items():
            body[section][key] = canonical(value)
    except (KeyError, IndexError, ValueError, TypeError, msgspec.MsgspecError) as error:
        raise Damaged("the patch does not fit its base", why=f"{type(error).__name__}: {error}") from error
    return {section: dict(sorted(values.items())) for section, values in body.items()}


# ---- making


def _of_section(section: str, base: dict[str, bytes], now: dict[str, bytes]) -> Iterator[Op]:
    for key in base.keys() - now.keys():
        yield Op("remove", _pointer((section, key)))
    for key, text in now.items():
        before = base.get(key)
        if before is None:
            yield Op("add", _pointer((section, key)), msgspec.Raw(text))
        elif before != text:
            yield from _of_value((section, key), before, text)


def _of_value(parts: PathParts, before: bytes, text: bytes) -> list[Op]:
    """Compare the five values of a row one by one; lists in its state are compared as a whole."""
    ops = [op for found in _changes(_decode(before), _decode(text), parts) for op in _ops(found)]
    whole = [Op("replace", _pointer(parts), msgspec.Raw(text))]
    return ops if len(_encode_ops(ops)) < len(_encode_ops(whole)) else whole


def _changes(was: Any, now: Any, parts: PathParts) -> Iterator[Difference]:
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for place, (before, after) in enumerate(zip(was, now, strict=True)):
            yield from differences(before, after, into_lists=False, parts=(*parts, place))
    else:
        yield from differences(was, now, into_lists=False, parts=parts)


def _ops(found: Difference) -> list[Op]:
    path = _pointer(found.parts)
    if found.now is msgspec.UNSET:
        return [Op("remove", path)]
    was, now = found.was, found.now
    if isinstance(was, list) and isinstance(now, list) and len(was) < len(now) and same(was, now[: len(was)]):
        return [Op("add", path + "/-", _raw(value)) for value in now[len(was) :]]
    return [Op("add" if was is msgspec.UNSET else "replace", path, _raw(now))]


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(canonical(value))


def _pointer(parts: PathParts) -> str:
    """Return a JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


# ---- applying


def _parts(pointer: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _set_member(values: dict[str, bytes], key: str, op: Op) -> None:
    if op.op == "remove":
        del values[key]
    else:
        values[key] = bytes(_value(op))


def _apply(value: Any, path: Sequence[str], op: Op) -> None:
    for part in path[:-1]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    last = path[-1]
    if isinstance(value, list):
        if op.op == "add" and last == "-":
            value.append(_decode(_value(op)))
        elif op.op == "replace":
            value[int(last)] = _decode(_value(op))
        else:
            raise ValueError(f"{op.op} {op.path}")
    elif op.op == "remove":
        del value[last]
    elif op.op in ("add", "replace"):
        value[last] = _decode(_value(op))
    else:
        raise ValueError(f"{op.op} {op.path}")


def _value(op: Op) -> msgspec.Raw:
    if op.value is msgspec.UNSET:
        raise ValueError(f"{op.op} {op.path} without a value")
    return op.value
