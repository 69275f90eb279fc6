"""The differences between two states, by path: for people (`everlog diff`) and for incremental snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.core.text import PathParts, path_of


class Difference(msgspec.Struct, frozen=True):
    """A value that changed, was added or was removed; in the last two cases one side is UNSET."""

    parts: PathParts
    was: Any = msgspec.UNSET
    now: Any = msgspec.UNSET

    @property
    def path(self) -> str:
        return path_of(self.parts)


def differences(was: Any, now: Any, *, into_lists: bool = True, parts: PathParts = ()) -> Iterator[Difference]:
    """Yield the changed paths, in order of their names; lists by index, or as a whole."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in sorted(was.keys() | now.keys()):
            here = (*parts, name)
            if name not in now:
                yield Difference(here, was=was[name])
            elif name not in was:
                yield Difference(here, now=now[name])
            else:
                yield from differences(was[name], now[name], into_lists=into_lists, parts=here)
    elif into_lists and isinstance(was, list) and isinstance(now, list):
        yield from _of_lists(was, now, parts)
    elif not same(was, now):
        yield Difference(parts, was, now)


def _of_lists(was: Sequence[Any], now: Sequence[Any], parts: PathParts) -> Iterator[Difference]:
    for place in range(max(len(was), len(now))):
        here = (*parts, place)
        if place >= len(now):
            yield Difference(here, was=was[place])
        elif place >= len(was):
            yield Difference(here, now=now[place])
        else:
            yield from differences(was[place], now[place], parts=here)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON: true is not 1, but 1.0 is 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def value_at(state: Any, parts: PathParts) -> Any:
    """Return the value at a path, or UNSET."""
    for part in parts:
        inside = isinstance(state, list) and isinstance(part, int) and part < len(state)
        if not inside and not (isinstance(state, dict) and part in state):
            return msgspec.UNSET
        state = state[part]
    return state


def leaves(state: Any, parts: PathParts = ()) -> Iterator[tuple[str, Any]]:
    """Yield every path with the value at it; an empty object or list is a value."""
    if isinstance(state, dict) and state:
        for name in state:
            yield from leaves(state[name], (*parts, name))
    elif isinstance(state, list) and state:
        for place, value in enumerate(state):
            yield from leaves(value, (*parts, place))
    else:
        yield path_of(parts), state
