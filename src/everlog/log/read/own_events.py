"""A log as a caller sees it that is limited to a scope: only the events of that scope exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from everlog.core.chain import Chain
from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query, in_scope, narrowed
from everlog.stores.contract import Ends, Identity, Problem, Stored


class OwnEvents:
    """A log in which only the events of one scope exist. Only what pages need of it is limited."""

    hides_events = True

    def __init__(self, stored: Stored, within: str) -> None:
        self._stored = stored
        self._within = within

    @property
    def whole(self) -> Stored:
        """The log with everything that is hidden here."""
        return self._stored

    @property
    def identity(self) -> Identity:
        return self._stored.identity

    def head(self) -> Position:
        """Return the position of the newest event, or of the newest purge."""
        newest = next(self._stored.read(Query(scope=self._within), limit=1, newest_first=True), None)
        purged = max((purge.reserved for purge in self.purges()), default=START)
        return purged if newest is None else max(purged, newest.position)

    def purges(self, *, after: Position = START) -> list[Purge]:
        return [
            purge
            for purge in self._stored.purges(after=after)
            if any(in_scope(scope, self._within) for scope in purge.scopes)
        ]

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        own = narrowed(query, self._within)
        if own is None:
            return iter(())
        return self._stored.read(own, after=after, upto=upto, limit=limit, newest_first=newest_first)

    def get(self, event_id: EventId) -> Recorded | None:
        found = self._stored.get(event_id)
        return found if found is not None and in_scope(found.event.scope, self._within) else None

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        """Return what a purge of this scope left after a position, up to the first place that is something else."""
        own = {purge.reserved for purge in self.purges()}
        for place in self._stored.slots(after=after):
            if not isinstance(place, Purged) or place.reserved not in own:
                return
            yield place

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
