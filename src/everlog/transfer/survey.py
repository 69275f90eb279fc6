"""A summary by which two logs are compared: counts, and two digests over every slot.

`digest` is the one that `verify` prints, over the header hashes. `places` is over everything that a copy must keep:
positions, sequences, times of arrival, payloads, salts, signatures, purges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import TypeVar

import msgspec

from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged
from everlog.log.verify.audit import Verifier
from everlog.stores.contract import Problem, Store

Slot = Packed | Purged | Purge

_encode = msgspec.msgpack.Encoder().encode
_Item = TypeVar("_Item")


class Summary(msgspec.Struct, frozen=True):
    """A log in a few numbers. Equal logs have equal summaries."""

    events: int
    purged: int
    purges: int
    head: Position
    digest: str
    places: str


class Survey:
    """Takes every slot once, in order, and has the summary and the problems at the end."""

    def __init__(self, origin: str, purges: list[Purge]) -> None:
        self._audit = Verifier(origin, purges)
        self._places = hashlib.sha256()
        self._purges = 0
        self.head = START

    def take(self, slot: Slot) -> None:
        self._places.update(_encode((type(slot).__name__, msgspec.structs.astuple(slot))))
        self.head = position_of(slot)
        if isinstance(slot, Purge):
            self._purges += 1
        else:
            self._audit.take(slot)

    def end(self) -> Summary:
        self._audit.end(self.head)
        self._audit.close()
        return Summary(
            self._audit.events,
            self._audit.purged,
            self._purges,
            self.head,
            self._audit.digest.hexdigest(),
            self._places.hexdigest(),
        )

    @property
    def problems(self) -> list[Problem]:
        return self._audit.problems


def survey(store: Store, *, progress: Callable[[int], None] = lambda position: None) -> tuple[Summary, list[Problem]]:
    """Return the summary of a log, read from its bytes, and its problems. Nothing may write to the log meanwhile."""
    purges = store.purges()
    seen = Survey(store.identity.origin, purges)
    for slot in slots_of(store, purges):
        seen.take(slot)
        if seen.head % 1000 == 0:
            progress(seen.head)
    progress(seen.head)
    return seen.end(), seen.problems


def slots_of(store: Store, purges: list[Purge]) -> Iterator[Slot]:
    """Yield every slot of a log at one moment, with these purges at the positions that they reserved.

    The purges are asked for before, and must be asked for again afterwards: one in between fits neither.
    """
    places: Iterable[Slot] = store.slots()
    return merge(places, purges, key=position_of)


def position_of(slot: Slot) -> Position:
    return slot.reserved if isinstance(slot, Purge) else slot.position


def batches(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield the items in lists of at most `size`."""
    left = iter(items)
    for first in left:
        yield list(chain([first], islice(left, size - 1)))
