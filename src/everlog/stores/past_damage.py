"""A log read past its damage: what is there is given, what is lost is reported, and nothing is written or kept.

It is a store that has no shelf, so that views fold in memory for one answer and keep nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager

from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, ReadOnly
from everlog.stores.contract import Claim, Claimed, Identity, Note, Problem, Store, Writer


class PastDamage:
    def __init__(self, store: Store, report: Callable[[Damaged], None]) -> None:
        """`report` is called with each damage that a read goes past, each time."""
        self._store = store
        self._report = report

    @property
    def identity(self) -> Identity:
        return self._store.identity

    @property
    def hides_events(self) -> bool:
        return True  # what is damaged is left out

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        while limit is None or limit > 0:
            try:
                for recorded in self._store.read(
                    query, after=after, upto=upto, limit=limit, newest_first=newest_first
                ):
                    limit = None if limit is None else limit - 1
                    if newest_first:
                        upto = Position(recorded.position - 1)
                    else:
                        after = recorded.position
                    yield recorded
                return
            except Damaged as error:
                below, above = error.details.get("position", 0) - 1, error.details.get("after", START)
                if newest_first and below >= 0 and (upto is None or below < upto):
                    upto = Position(below)
                elif not newest_first and above > after:
                    after = above
                else:
                    raise  # it is not known where to go on
                self._report(error)

    def get(self, event_id: EventId) -> Recorded | None:
        return self._store.get(event_id)

    def head(self) -> Position:
        return self._store.head()

    def purges(self, *, after: Position = START) -> list[Purge]:
        return self._store.purges(after=after)

    def claimed(self, name: bytes) -> Claim | None:
        return self._store.claimed(name)

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        return self._store.claimed_among(names)

    def noted(self, key: str) -> str | None:
        return self._store.noted(key)

    def notes(self, prefix: str, *, limit: int | None = None, newest_first: bool = False) -> dict[str, str]:
        return self._store.notes(prefix, limit=limit, newest_first=newest_first)

    def packed(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        return self._store.packed(after=after)

    def clock(self) -> int:
        return self._store.clock()

    def kept(self) -> Iterator[Note | Claimed]:
        return self._store.kept()

    def check(self) -> Iterator[Problem]:
        return self._store.check()

    def write(self) -> AbstractContextManager[Writer]:
        raise ReadOnly(
            "a log that is read past its damage takes no writes",
            why="what is decided on an incomplete history may be wrong",
            hint="leave --past-damage out",
        )

    def close(self) -> None:
        self._store.close()
