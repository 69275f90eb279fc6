"""One JSON form for every value (RFC 8785), and a refusal of any value that has none.

A value that two JSON programs could read differently is rejected, never repaired: duplicate keys, NaN and infinities,
numbers beyond ±(2^53-1), lone surrogates, anything deeper than 64. The refusal names the path of the value.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import msgspec

from everlog.core.text import below
from everlog.errors import NotCanonical

DEPTH_MAX = 64
NUMBER_MAX = 2**53 - 1

encode_plain = msgspec.json.Encoder(order="sorted").encode
"""The canonical bytes of a value that is known to be plain: no floats, no number too large, no name beyond the Basic
Multilingual Plane, whose names ECMAScript sorts as if by code point."""


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 bytes of a JSON value made of dict, list, str, int, float, bool and None."""
    try:
        return encode_plain(value if _is_plain(value, 1) else _with_floats_printed(value, 1))
    except (_Unusual, UnicodeEncodeError):  # rare, or refused: a slower walk, which knows the path for the message
        _refuse(value, "$", 1)
    import rfc8785

    return rfc8785.dumps(value)


_Int = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
_Flat = list[dict[str, str | _Int | bool | None]]


def canonical_all(values: list[dict[str, Any]]) -> list[bytes]:
    """Return the canonical bytes of many objects. If all are flat and plain, it costs a third."""
    try:
        if "".join(set().union(*values)).isascii():  # names
            return list(map(encode_plain, msgspec.convert(values, _Flat)))
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError):
        pass  # at least one of them is not, or is refused below
    return list(map(canonical, values))


def stored_form(value: Any) -> Any:
    """Return the value as a reader of its canonical form gets it: fields in order, and 1 in place of 1.0."""
    return msgspec.json.decode(canonical(value))


def canonical_pair(value: Any) -> tuple[bytes, Any]:
    """Return the canonical bytes of a value, and the value that a reader of them gets, with the same types.

    A plain value is returned as it is. A value with floats is not: 1.0 is stored as 1, and -0.0 as 0.
    """
    if _is_plain(value, 1):
        try:
            return encode_plain(value), value
        except UnicodeEncodeError:  # refused below, with a message
            pass
    body = canonical(value)
    return body, msgspec.json.decode(body)


def parse_json(data: bytes | str, *, levels_around: int = 0, number_max: int = NUMBER_MAX) -> Any:
    """Return the value of JSON text from outside; refuse text that two readers could read differently.

    `levels_around` is the number of levels that an envelope adds around a payload, which may itself have the maximum
    depth. `number_max` is for envelopes of other programs, whose times may be counted in nanoseconds.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
    except UnicodeDecodeError as error:
        raise NotCanonical("$", f"byte {error.start} is not UTF-8") from error
    if "\\u" not in text:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass  # it is refused below, with a message
        else:
            # The decoder keeps the last of two equal keys. Every key has a colon after it, and the colons of a key
            # that is gone are found nowhere in the value.
            if _colons(value, 1 - levels_around) == text.count(":"):
                return value
    try:
        if text.startswith("\ufeff"):
            raise json.JSONDecodeError("unexpected byte order mark", text, 0)
        value = _decode_strictly(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        hint = 'quote the names and the texts, as in {"text": "hello"}'
        raise NotCanonical("$", f"it is not JSON: {error.msg} at {place}", hint=hint) from error
    except RecursionError as error:
        raise NotCanonical("$", f"it is nested deeper than {DEPTH_MAX}") from error
    # Most text is plain, and the walk that knows the path is much slower.
    if not _is_plain(value, 1 - levels_around) or _may_hold_surrogates(text):
        _refuse(value, "$", 1 - levels_around, number_max)
    return value


def parse_json_lines(data: bytes, *, levels_around: int = 0, lines_max: int) -> list[Any]:
    """Return the values of lines of JSON, at most one more than `lines_max`, without empty lines. See `parse_json`.

    Lines that are plain objects are read at once. After the end of an object within another one, there is a comma or
    a bracket: where each line ends with `}` and the next begins with `{`, a line has whole objects.
    """
    held = data.strip(b"\n")
    ends = held.count(b"\n")
    if held[:1] == b"{" and ends < lines_max and held.count(b"}\n{") == ends and b"\\u" not in held:
        try:
            values: list[Any] = _decode_shallow_lines(held)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            pass  # they are read one by one, and one of them may be refused, with a message
        else:
            # See `parse_json`: of two equal keys one is gone, and its colon is missing in the text of the values.
            if len(values) == ends + 1 and msgspec.json.encode(values).count(b":") == held.count(b":"):
                return values
    lines = [line for line in data.split(b"\n") if line.strip()]
    return [parse_json(line, levels_around=levels_around) for line in lines[: lines_max + 1]]


_Plain = str | _Int | bool | None
_Shallow = dict[str, _Plain | list[_Plain] | dict[str, _Plain | list[_Plain] | dict[str, _Plain]]]
_decode_shallow_lines = msgspec.json.Decoder(_Shallow).decode_lines


def _colons(value: Any, depth: int) -> int:
    """Return how many colons the JSON text of a value has; -1 if the value has more than texts, short whole numbers,
    true, false and null."""
    kind = type(value)
    if kind is str:
        return int(value.count(":"))
    if kind is dict:
        if depth > DEPTH_MAX:
            return -1
        total = len(value)
        for key, item in value.items():
            if ":" in key:
                total += key.count(":")
            if type(item) is str:
                total += item.count(":")
            else:
                inside = _colons(item, depth + 1)
                if inside < 0:
                    return -1
                total += inside
        return total
    if kind is list:
        if depth > DEPTH_MAX:
            return -1
        total = 0
        for item in value:
            inside = _colons(item, depth + 1)
            if inside < 0:
                return -1
            total += inside
        return total
    if kind is int:
        return 0 if -NUMBER_MAX <= value <= NUMBER_MAX else -1
    return 0 if value is None or kind is bool else -1


def _may_hold_surrogates(text: str) -> bool:
    """Return False when no string in this JSON text can hold a lone surrogate, neither directly nor as an escape."""
    if "\\ud" in text or "\\uD" in text:
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _is_plain(value: Any, depth: int) -> bool:
    """Return True when the fast encoder's output is already canonical, so that no other check is needed.

    The encoder itself refuses lone surrogates.
    """
    kind = type(value)
    if kind is str:
        return True
    if kind is int:
        return bool(-NUMBER_MAX <= value <= NUMBER_MAX)
    if kind is dict:
        if depth > DEPTH_MAX:
            return False
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or max(key) <= _BMP_MAX):
                return False
            # The most common leaf is tested here: a call for each would double the cost of a flat payload.
            if type(item) is not str and not _is_plain(item, depth + 1):
                return False
        return True
    if kind is list:
        return depth <= DEPTH_MAX and all(_is_plain(item, depth + 1) for item in value)
    return value is None or kind is bool


_BMP_MAX = "\uffff"


class _Unusual(Exception):
    """A value that the fast encoder does not handle."""


def _with_floats_printed(value: Any, depth: int) -> Any:
    """Return the same value with every float as the number that ECMAScript prints, so that the result is plain."""
    kind = type(value)
    if kind is float:
        if not -NUMBER_MAX <= value <= NUMBER_MAX:  # nor is NaN
            raise _Unusual
        return int(value) if value.is_integer() else msgspec.Raw(_printed(value))
    if kind is dict and depth <= DEPTH_MAX:
        copied = {}
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or max(key) <= _BMP_MAX):
                raise _Unusual
            copied[key] = item if type(item) is str else _with_floats_printed(item, depth + 1)
        return copied
    if kind is list and depth <= DEPTH_MAX:
        return [_with_floats_printed(item, depth + 1) for item in value]
    if kind is dict or kind is list or not _is_plain(value, depth):
        raise _Unusual
    return value


def _printed(number: float) -> bytes:
    """Return a number that is not an integer as ECMAScript prints it: 0.00001 where Python prints 1e-05."""
    text = repr(number)
    mantissa, marker, exponent = text.partition("e")
    if not marker:
        return text.encode()
    places = -int(exponent)  # a number that is not an integer never has a positive exponent
    if places > 6:
        return f"{mantissa}e-{places}".encode()
    sign, digits = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    return f"{sign}0.{'0' * (places - 1)}{digits.replace('.', '')}".encode()


def _refuse(value: Any, path: str, depth: int, number_max: int = NUMBER_MAX) -> None:
    """Raise for the first value below `path` that has no single JSON form."""
    match value:
        case None | bool():
            return
        case str():
            _refuse_surrogates(value, path)
        case int():
            if not -number_max <= value <= number_max:
                raise NotCanonical(path, "it is beyond ±(2^53-1), where JSON readers start to round")
        case float():
            if not math.isfinite(value):
                raise NotCanonical(path, f"{value} is not a JSON number")
            if abs(value) > NUMBER_MAX:
                raise NotCanonical(path, "it is beyond ±(2^53-1), where JSON readers start to round")
        case dict():
            _refuse_too_deep(path, depth)
            for key, item in value.items():
                if not isinstance(key, str):
                    raise NotCanonical(path, f"the key {key!r} is a {type(key).__name__}, not a string")
                _refuse_surrogates(key, f"a key of {path}")
                _refuse(item, below(path, key), depth + 1, number_max)
        case list() | tuple():
            _refuse_too_deep(path, depth)
            for index, item in enumerate(value):
                _refuse(item, below(path, index), depth + 1, number_max)
        case _Refused():
            raise NotCanonical(path, value.reason, hint=value.hint)
        case _:
            raise NotCanonical(path, f"a {type(value).__name__} is not a JSON value")


def _refuse_too_deep(path: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise NotCanonical(path, f"it is nested deeper than {DEPTH_MAX}")


def _refuse_surrogates(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NotCanonical(path, f"character {error.start} is a lone surrogate") from error


class _Refused:
    """A placeholder for a value that the parser cannot accept, until the walk names its path."""

    def __init__(self, reason: str, hint: str = "send it as a string, or leave it out") -> None:
        self.reason = reason
        self.hint = hint


_TWICE = _Refused("the key appears twice", "keep one of the two")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = _TWICE if key in found else value
    return found


def _bounded_int(digits: str) -> int | _Refused:
    if len(digits) > 20:  # longer than any accepted number; int() itself refuses absurd lengths
        return _Refused("it is beyond ±(2^53-1), where JSON readers start to round")
    return int(digits)


def _finite_float(digits: str) -> float | _Refused:
    value = float(digits)
    return value if math.isfinite(value) else _Refused(f"{digits[:30]} is too large for a JSON number")


_decode_strictly = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=lambda name: _Refused(f"{name} is not a JSON number"),
    parse_int=_bounded_int,
    parse_float=_finite_float,
).decode
