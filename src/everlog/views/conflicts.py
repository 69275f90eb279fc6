"""Conflicts: two origins changed one stream, and neither knew of the other's change.

An event knows the events of another origin up to the number that its own chain stated before it, in `origin.knows`.
The view `conflicts` has per stream what that is decided from: the changes of each origin, what an origin stated, and
what was recorded about a pair. It is causal, so a set of events has one list of conflicts, in whatever order they
arrived. The greater `(lamport, id)` wins, unless somebody decided otherwise.

Of changes that one origin made without knowing of the other's, the last one counts: a day of work on two laptops is
one conflict per stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from everlog.catalog.builtin import DETECTED, KNOWS, NO_CHANGES, RESOLVED
from everlog.core.canonical import NUMBER_MAX
from everlog.core.event import Event
from everlog.log.write.knows import STREAMS
from everlog.views.view import CAUSAL, View

PAIRS = "conflict/"
"""What is recorded about two events is on the stream `conflict/ID-ID`, the lower id first."""


class Conflicts(View):
    """One row per stream, with up to three parts.

    changes     origin: type: [[number, lamport, id], ...]      as long as only one origin is here, the last
    knows       origin: [[number, end], ...]                    from that number on its chain knew that end
    pair        detected, winner                                what was recorded about two events
    """

    name = "conflicts"
    order = CAUSAL

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if event.type == KNOWS:
            if event.stream == STREAMS + event.origin:  # nobody speaks for another origin
                _learn(state.setdefault("knows", {}), event)
        elif event.type == DETECTED:
            state.setdefault("pair", {})["detected"] = True
        elif event.type == RESOLVED:
            state.setdefault("pair", {})["winner"] = event.payload.get("winner")
        elif event.type not in NO_CHANGES:
            _add(state.setdefault("changes", {}), event)
        return state


def _learn(knows: dict[str, list[list[int]]], event: Event) -> None:
    ends, since = event.payload.get("ends"), event.payload.get("since")  # of another node, and so of any shape
    number = since if type(since) is int and 0 < since < event.origin_seq else event.origin_seq
    for origin, end in sorted(ends.items()) if isinstance(ends, dict) else ():
        if type(end) is int and 0 < end <= NUMBER_MAX:
            stated = knows.setdefault(origin, [])
            if not stated or (number >= stated[-1][0] and end > stated[-1][1]):
                stated.append([number, end])


def _add(changes: dict[str, dict[str, list[Any]]], event: Event) -> None:
    of_type = changes.setdefault(event.origin, {}).setdefault(event.type, [])
    if len(changes) == 1:
        # In causal order, whatever is concurrent with an earlier change comes later, and is concurrent with this one.
        of_type.clear()
    of_type.append([event.origin_seq, event.lamport, event.id])


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two concurrent changes of one stream."""

    conflict: str  # its name: both ids, the lower one first
    stream: str
    winner: str
    loser: str
    winner_origin: str
    loser_origin: str
    detected: bool = False  # the origin of the change that lost by its clock has recorded it
    resolved: bool = False  # somebody decided which one wins


class _Change(NamedTuple):
    number: int
    lamport: int
    id: str


Changes = Mapping[str, Sequence[_Change]]
"""The changes of one stream, by origin and in order of their numbers."""


def changes_in(state: Mapping[str, Any], merge_of: Callable[[str], str]) -> Changes:
    """Return the changes of a row that may be in conflict: not those of a type that declares another way to merge."""
    changes = state.get("changes", {})
    if len(changes) < 2:
        return {}
    found = {
        origin: sorted(_Change(*one) for name, some in types.items() if not merge_of(name) for one in some)
        for origin, types in sorted(changes.items())
    }
    return {origin: some for origin, some in found.items() if some}


def conflicts_of(stream: str, changes: Changes, knows: Mapping[str, Mapping[str, Any]]) -> Iterator[Conflict]:
    """Return the conflicts of one stream. `knows` has what each origin stated, as in its row."""
    for first, second in combinations(changes, 2):
        of_first, of_second = knows.get(first, {}).get(second, ()), knows.get(second, {}).get(first, ())
        for one, other in concurrent(changes[first], changes[second], of_first, of_second):
            loses, wins = (one, first), (other, second)
            if one[1:] > other[1:]:
                loses, wins = wins, loses
            yield Conflict(
                conflict="-".join(sorted((one.id, other.id))),
                stream=stream,
                winner=wins[0].id,
                winner_origin=wins[1],
                loser=loses[0].id,
                loser_origin=loses[1],
            )


def concurrent(
    ours: Sequence[_Change],
    theirs: Sequence[_Change],
    we_knew: Sequence[Sequence[int]],
    they_knew: Sequence[Sequence[int]],
) -> Iterator[tuple[_Change, _Change]]:
    """Return the pairs of concurrent changes of two origins: the last ones before either knew of the other.

    Both sides are in order of their numbers. `we_knew` are our numbers with the ends of their chain.
    """
    they_knew_then = [_known_at(they_knew, one.number) for one in theirs]
    for place, one in enumerate(ours):
        # What they know only grows. So the changes that were made without knowing ours come first: the last of them.
        last = bisect_right(they_knew_then, one.number - 1) - 1
        if last < 0 or theirs[last].number <= _known_at(we_knew, one.number):
            continue
        after = ours[place + 1 : place + 2]
        if not after or _known_at(we_knew, after[0].number) >= theirs[last].number:
            yield one, theirs[last]


def _known_at(stated: Sequence[Sequence[int]], number: int) -> int:
    """Return the end that a chain knew at one of its numbers."""
    place = bisect_right(stated, number, key=lambda entry: entry[0])
    return stated[place - 1][1] if place else 0


def with_records(one: Conflict, pair: Mapping[str, Any]) -> Conflict:
    """Return a conflict with what was recorded about it."""
    winner, detected = pair.get("winner"), bool(pair.get("detected"))
    if winner not in (one.winner, one.loser):
        return msgspec.structs.replace(one, detected=detected)
    if winner == one.loser:
        one = msgspec.structs.replace(
            one,
            winner=one.loser,
            loser=one.winner,
            winner_origin=one.loser_origin,
            loser_origin=one.winner_origin,
        )
    return msgspec.structs.replace(one, detected=detected, resolved=True)
