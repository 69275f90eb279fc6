"""The chains of origins as frames show them.

Nearly every write adds to a chain without holes: then the number, hash and position of its last event of an origin
are all that there is to know. Where that is not so, because a number is missing, comes twice or filled a hole, the
write has the whole chain in `Rest.chains`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from everlog.core.chain import Chain, Run
from everlog.core.event import Position, Purged
from everlog.core.group import GroupFacts
from everlog.stores.segments.format.frame import PURGING, Frame

Ends = dict[str, Run]
"""The last event of each origin, as a run from the first one on."""


def add_group(ends: Ends, facts: GroupFacts, last: Position) -> None:
    """Add the last event of a group, which is at the position `last`."""
    if facts.hash:
        _add(ends, facts.origin, Run(1, b"", facts.first_seq + facts.count - 1, facts.hash, last))


def add_purged(ends: Ends, purged: Iterable[Purged]) -> None:
    """Add events that were purged before they came here."""
    for gone in purged:
        _add(ends, gone.origin, Run(1, b"", gone.origin_seq, gone.hash, gone.position))


def _add(ends: Ends, origin: str, run: Run) -> None:
    known = ends.get(origin)
    if known is None or run.last > known.last:
        ends[origin] = run


def unshown(ends: Ends, chains: Mapping[str, Chain]) -> dict[str, Chain]:
    """Return the chains that a write must store, because its events do not show them."""
    found = {}
    for origin, chain in chains.items():
        run = ends.get(origin)
        if run is None or chain.forks or len(chain.runs) != 1 or chain.runs[0] != run:
            found[origin] = chain
    return found


class ShownChains:
    """The chains after the frames that were added, of the origins that they add to."""

    def __init__(self) -> None:
        self._chains: dict[str, Chain] = {}
        self._ends: Ends = {}  # of simple chains; the chains themselves are made when they are asked for

    def add(self, frame: Frame, last: Position) -> None:
        """Add a frame; the last event of its group is at the position `last`."""
        rest = frame.rest
        if rest.purged and rest.kind != PURGING:  # what is purged here was in its chain before
            add_purged(self._ends, rest.purged)
        if frame.facts is not None:
            add_group(self._ends, frame.facts, last)
        for origin, chain in rest.chains.items():
            self._ends.pop(origin, None)
            self._chains[origin] = chain

    def all(self) -> Mapping[str, Chain]:
        for origin, run in self._ends.items():
            self._chains[origin] = Chain((run,))
        self._ends = {}
        return self._chains


def last_position(facts: GroupFacts, first: tuple[int, int] | None, before: Position) -> Position:
    """Return the position of the last event of a group, which may be purged: those of a group are contiguous.

    `first` are the position and the number of its first event that is not purged, and `before` the head before it.
    """
    position, number = first or (before + 1, facts.first_seq)
    return Position(position + facts.first_seq + facts.count - 1 - number)
