"""Positions that a read without a filter passes over: a purge explains them, or they are damage.

Every store checks this itself and knows the place exactly. This is the check that needs nothing but the positions,
so that no store, and no mistake in one, can pass over a position of a log in which too little was purged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purged, Recorded
from everlog.stores.contract import HidesEvents, Stored, offers
from everlog.stores.lost import first_gap, lost


class Accounting:
    """Counts the positions from `after` on that no event was given for. It never reads ahead of the reader."""

    def __init__(self, store: Stored, after: Position) -> None:
        self._store = store
        self._hides = _hides(store)
        self.last = self._start = after
        self._passed_over = 0

    def take(self, last: Position, count: int) -> None:
        """`count` events were read, up to the position `last`."""
        missing = last - self.last - count
        if missing:
            self._pass_over(missing, Position(self.last + 1), Position(last - 1))
        self.last = last

    def end(self, upto: Position) -> None:
        """There is no event from here up to a position, which is not above the head."""
        if upto > self.last:
            self._pass_over(upto - self.last, Position(self.last + 1), upto)

    def _pass_over(self, count: int, first: Position, last: Position) -> None:
        self._passed_over += count
        if self._hides:
            return
        # Asked after the events were read: a purge in between only explains more. What a purge removed lies before
        # its own position, so an earlier one explains nothing here.
        purges = self._store.purges(after=self._start)
        if self._passed_over > sum(purge.count for purge in purges) + len(purges):
            places = Places(self._store, after=Position(first - 1), upto=last)
            deque(places, maxlen=0)
            places.raise_if_lost()


class Places:
    """The places of a log in order, with an eye on the first positions that nothing accounts for."""

    def __init__(self, store: Stored, *, after: Position = START, upto: Position | None = None) -> None:
        self._store = store
        self._after = after
        self._upto = store.head() if upto is None else upto
        self._hides = _hides(store)
        self._reserved = {purge.reserved for purge in store.purges(after=after)}
        self._lost: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[Packed | Purged]:
        following = self._after + 1
        for place in self._store.slots(after=self._after):
            if place.position > self._upto:
                break
            if place.position != following:
                self._look_at(following, place.position - 1)
            following = place.position + 1
            yield place
        self._look_at(following, self._upto)

    def raise_if_lost(self) -> None:
        """When all were taken: Damaged if a position is neither an event, nor purged, nor reserved by a purge."""
        if self._lost is not None:
            raise lost(*self._lost)

    def _look_at(self, first: int, last: int) -> None:
        if self._lost is None and first <= last and not self._hides:
            self._lost = first_gap(self._reserved, first - 1, last)


def _hides(store: Stored) -> bool:
    return offers(store, HidesEvents) and store.hides_events  # type: ignore[type-abstract]


def accounted_slots(store: Stored, after: Position = START) -> Iterator[Packed | Purged]:
    """Return every place up to the head. Raise Damaged where a position is not accounted for."""
    places = Places(store, after=after)
    for place in places:
        places.raise_if_lost()
        yield place
    places.raise_if_lost()


def accounted(store: Stored, records: Iterable[Recorded], after: Position) -> Iterator[Recorded]:
    """Records that were read without a filter, up to a position that nothing accounts for."""
    accounting, following = Accounting(store, after), after + 1
    for recorded in records:
        if recorded.position != following:
            accounting.last = Position(following - 1)
            accounting.take(recorded.position, 1)
            following = recorded.position
        following += 1
        yield recorded
