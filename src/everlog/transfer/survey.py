"""A summary by which two logs are compared: counts, and two digests over every slot.

`digest` is the one that `verify` prints, over the header hashes. `places` is over everything that a copy must keep:
positions, sequences, times of arrival, payloads, salts, signatures, purges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import chain, islice
from typing import TypeVar

import msgspec

from everlog.core.codec import Packed, header_hash
from everlog.core.event import START, Position, Purge, Purged
from everlog.log.verify.audit import Verifier
from everlog.stores.contract import Problem, Store
from everlog.stores.formats import FORMAT
from everlog.stores.staged_group import Record

Slot = Packed | Purged | Purge

_encode = msgspec.msgpack.Encoder().encode  # of a struct: a map with the names of its fields
_Item = TypeVar("_Item")
_BATCH = 1_000


class Summary(msgspec.Struct, frozen=True):
    """A log in a few numbers. Equal logs have equal summaries."""

    events: int
    purged: int
    purges: int
    head: Position
    digest: str
    places: str


class BytesSurvey:
    """Takes every slot once, in order, and has the summary at the end. It compares bytes and judges nothing."""

    def __init__(self) -> None:
        self._places = hashlib.sha256()
        self._digest = hashlib.sha256()
        self._events = self._purged = self._purges = 0
        self.head = START
        self.last_old = START  # the last position that was purged in an older format

    def take(self, slot: Slot) -> None:
        self.take_all((slot,))

    def take_all(self, slots: Sequence[Slot], known: Sequence[Record] | None = None) -> None:
        """Take slots; `known` are the records in them, if they are decoded already."""
        hashes = []
        decoded = None if known is None else iter(known)
        for slot in slots:
            if isinstance(slot, Packed):
                self._events += 1
                hashes.append(header_hash(slot.header) if decoded is None else next(decoded)[1].hash)
            elif isinstance(slot, Purged):
                self._purged += 1
                hashes.append(slot.hash)
                if slot.hash_format != FORMAT:
                    self.last_old = slot.position
            else:
                self._purges += 1
        if slots:
            self._digest.update(b"".join(hashes))
            self._places.update(b"".join([_encode(slot) for slot in slots]))
            self.head = position_of(slots[-1])

    def end(self) -> Summary:
        return Summary(
            self._events,
            self._purged,
            self._purges,
            self.head,
            self._digest.hexdigest(),
            self._places.hexdigest(),
        )


class Survey(BytesSurvey):
    """A survey that also has the problems of the log at the end."""

    def __init__(self, origin: str, purges: list[Purge]) -> None:
        super().__init__()
        self._audit = Verifier(origin, purges)

    def take_all(self, slots: Sequence[Slot], known: Sequence[Record] | None = None) -> None:
        super().take_all(slots, known)
        decoded = None if known is None else iter(known)
        for slot in slots:
            if isinstance(slot, Packed) and decoded is not None:
                _, encoded = next(decoded)
                self._audit.take_decoded(slot, encoded.event, encoded.hash)
            elif not isinstance(slot, Purge):
                self._audit.take(slot)

    def end(self) -> Summary:
        self._audit.end(self.head)
        self._audit.close()
        return super().end()

    @property
    def problems(self) -> list[Problem]:
        return self._audit.problems


def survey(store: Store, *, progress: Callable[[int], None] = lambda position: None) -> Summary:
    """Return the summary of a log, read from its bytes. Nothing may write to the log meanwhile."""
    seen = BytesSurvey()
    for some in batches(slots_of(store, store.purges()), _BATCH):
        seen.take_all(some)
        progress(seen.head)
    return seen.end()


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


def slot_batches(slots: Iterable[Slot], size: int) -> Iterator[list[Slot]]:
    """Yield the slots in lists of at least `size`, except the last. What was signed together is in one list."""
    some: list[Slot] = []
    last_group = (0, 0)
    for slot in slots:
        group = (0, 0) if isinstance(slot, Purge) else slot.signed_with
        if len(some) >= size and (group != last_group or group == (0, 0)):
            yield some
            some = []
        some.append(slot)
        last_group = group
    if some:
        yield some
