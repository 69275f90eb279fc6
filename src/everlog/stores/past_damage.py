"""A log read past its damage: events that can be read are returned, and each gap is reported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager

from everlog.core.chain import Chain
from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, ReadOnly
from everlog.stores.contract import Ends, Identity, Problem, Store, Stored
from everlog.stores.open_write import OpenWrite


class PastDamage:
    """A log as stored, for reading."""

    def __init__(self, store: Stored, report: Callable[[Damaged], None]) -> None:
        """`report` is called with each damage that a read goes past, each time."""
        self._stored = store
        self._report = report

    @property
    def identity(self) -> Identity:
        return self._stored.identity

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
                for recorded in self._stored.read(
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
                    raise  # it is not known where to continue
                self._report(error)

    def get(self, event_id: EventId) -> Recorded | None:
        return self._stored.get(event_id)

    def head(self) -> Position:
        return self._stored.head()

    def purges(self, *, after: Position = START) -> list[Purge]:
        return self._stored.purges(after=after)

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        return self._stored.slots(after=after)

    def ends(
        self,
        *,
        streams: Collection[str] = (),
        origins: Collection[str] = (),
        ids: Collection[EventId] = (),
        purging: str = "",
    ) -> Ends:
        return self._stored.ends(streams=streams, origins=origins, ids=ids, purging=purging)

    def chains(self) -> dict[str, Chain]:
        return self._stored.chains()

    def check(self) -> Iterator[Problem]:
        return self._stored.check()


class StorePastDamage(PastDamage):
    """A whole store that is read past its damage. It takes no writes, and its views keep nothing on the disk."""

    def __init__(self, store: Store, report: Callable[[Damaged], None]) -> None:
        super().__init__(store, report)
        self._store = store
        self.small_state = store.small_state.kept_in_memory()
        self.origins = store.origins

    def open_write(self) -> AbstractContextManager[OpenWrite]:
        raise ReadOnly(
            "a log that is read past its damage takes no writes",
            why="what is decided on an incomplete history may be wrong",
            hint="leave --past-damage out",
        )

    def watch(self, callback: Callable[[], None]) -> None:
        self._store.watch(callback)

    def close(self) -> None:
        self._store.close()
