"""The chain of one origin, as one log knows it.

An origin numbers its events from 1, and each carries the hash of the one before it. A log gets the events of another
origin in any order, and perhaps never all of them. So a chain is kept as runs:

    1 ... 40            41 is missing              42 ... 57     is missing      90
    the contiguous end is 40                       a run beyond a hole           another

Two different events with one number are a fork. The first to arrive is in a run; the other is listed in `forks`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

import msgspec

from everlog.core.event import BEGINNING, START, Link, Position

FORKS_MAX = 1_000
"""How many events of forks are listed per origin. One is enough to know that an origin forked its chain."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events of one origin without a missing number, each linked to the one before it."""

    first: int
    previous: bytes  # what the first one carries as the hash of the event before it
    last: int
    hash: bytes
    position: Position  # of the last one


class Fork(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event whose number another event of the same origin had before."""

    origin_seq: int
    hash: bytes
    position: Position


class Chain(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Runs in order of their numbers, and forks in order of their arrival."""

    runs: tuple[Run, ...] = ()
    forks: tuple[Fork, ...] = ()

    @property
    def end(self) -> Link:
        """The contiguous end."""
        for run in self.runs:  # not `contiguous`: this is asked for in every append
            return Link(run.last, run.hash) if run.first == 1 and not run.previous else BEGINNING
        return BEGINNING

    @property
    def contiguous(self) -> Run | None:
        """The run that begins with the first event."""
        return self.runs[0] if self.runs and self.runs[0].first == 1 and not self.runs[0].previous else None

    @property
    def greatest(self) -> Link:
        """The event with the greatest number, whatever is missing before it."""
        return Link(self.runs[-1].last, self.runs[-1].hash) if self.runs else BEGINNING

    @property
    def simple(self) -> bool:
        """Whether nothing lies beyond a hole, and there is no fork."""
        return not self.forks and (not self.runs or (len(self.runs) == 1 and self.contiguous is not None))

    @property
    def holes(self) -> list[tuple[int, int]]:
        """The missing numbers up to the greatest known one: the first and the last of each hole."""
        found, before = [], 0
        for run in self.runs:
            if run.first > before + 1:
                found.append((before + 1, run.first - 1))
            before = run.last
        return found

    def has(self, origin_seq: int) -> bool:
        """Return whether an event with this number is here."""
        return self.run_with(origin_seq) is not None

    def run_with(self, origin_seq: int) -> Run | None:
        """Return the run that has the event with this number, if it is here."""
        for run in self.runs:
            if run.first <= origin_seq <= run.last:
                return run
        return None

    def extended(self, origin_seq: int, previous: bytes, hash: bytes, position: Position) -> Chain:
        """Return the chain with one more event."""
        return self.joined(Run(origin_seq, previous, origin_seq, hash, position))

    def joined(self, new: Run) -> Chain:
        """Return the chain with a run of new events."""
        runs = list(self.runs)
        if runs and new.first == runs[-1].last + 1 and new.previous == runs[-1].hash:  # as nearly always
            before = runs[-1]
            runs[-1] = Run(before.first, before.previous, new.last, new.hash, new.position)
            return Chain(tuple(runs), self.forks)
        place = bisect_right(runs, new.first, key=lambda run: run.first)
        overlaps = (place > 0 and runs[place - 1].last >= new.first) or (
            place < len(runs) and runs[place].first <= new.last
        )
        if overlaps:
            fork = Fork(new.last, new.hash, new.position)
            return Chain(self.runs, (*self.forks, fork) if len(self.forks) < FORKS_MAX else self.forks)
        if place < len(runs) and _follows(runs[place], new):
            after = runs.pop(place)
            new = Run(new.first, new.previous, after.last, after.hash, after.position)
        if place > 0 and _follows(new, runs[place - 1]):
            before = runs[place - 1]
            runs[place - 1] = Run(before.first, before.previous, new.last, new.hash, new.position)
        else:
            runs.insert(place, new)
        return Chain(tuple(runs), self.forks)


NO_CHAIN = Chain()


def _follows(run: Run, before: Run) -> bool:
    return run.first == before.last + 1 and run.previous == before.hash


def simple_chains(links: Mapping[str, Link]) -> dict[str, Chain]:
    """Return the chains of origins of which every event up to the end is here."""
    return {origin: simple_chain(link, START) for origin, link in links.items()}


def simple_chain(link: Link, position: Position) -> Chain:
    """Return the chain of an origin of which every event up to the end is here."""
    return Chain((Run(1, b"", link.origin_seq, link.hash, position),)) if link.origin_seq else NO_CHAIN
