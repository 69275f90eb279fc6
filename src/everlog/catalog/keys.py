"""What a payload says that JSON would change in silence: keys that are no texts, and numbers that are none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from everlog.catalog.defects import Defect
from everlog.core.paths import below

_DEPTH_MAX = 64  # deeper values are refused anyway, where the payload is encoded


def silent_changes(
    value: Any, *, typed_keys: bool, numbers: bool = True, path: str = "$", depth: int = 0
) -> Iterator[Defect]:
    """The places of a payload that would be stored as something else.

    Two keys that are the same as JSON, such as 1 and "1", would become one. Any other key that is no text is refused
    as well, unless the model itself says what its keys are (`typed_keys`): then it is read back as it was. With
    `numbers`, NaN and infinities are found, too; where nothing turns them into null, the encoder refuses them.
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
    """A key as it is spelled in JSON."""
    if isinstance(key, bool):
        return "true" if key else "false"
    try:
        (found,) = msgspec.to_builtins({key: None}, str_keys=True)
    except (TypeError, ValueError):
        return str(key)
    return str(found)
