"""What the recorded history says of every origin: the standing, with forks and successions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.stores.open_write import OpenWrite
from everlog.trust.forks import ForkProof
from everlog.trust.keys import is_key
from everlog.trust.standing import Rights, Standing
from everlog.trust.succession import successions_in, with_successors
from everlog.trust.verdicts import forks_in


class HistoryRights:
    """Reads the events that decide, and remembers what followed from them."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._known: tuple[object, Rights] | None = None

    @property
    def deciding(self) -> Collection[str]:
        return self._standing.deciding

    def begin(self, events: Iterable[Event]) -> bool:
        """Return whether one of the events can begin the history."""
        return any(map(self._standing.begins, events))

    def counts_whole(self, write: OpenWrite, origin: str) -> bool:
        """Return whether the chain of an origin counts up to its end, as the write leaves it."""
        limit = self.rights(write, forks_in(write)).limit(origin)
        return limit is None or write.link(origin).origin_seq <= limit.upto

    def names(self, write: OpenWrite, origin: str) -> tuple[bool, bool]:
        """Return whether the history names an origin, and whether its chain counts without an end."""
        forks = forks_in(write)
        rights = self.rights(write, forks)
        return origin in rights.named, rights.limit(origin) is None and origin not in forks

    def may_remove(self, write: OpenWrite, record: Event) -> bool:
        """Return whether what a record lists is removed here, too."""
        return self.rights(write, forks_in(write)).may_remove(record)

    def rights(self, write: OpenWrite, forks: Mapping[str, ForkProof], waiting: Sequence[Event] = ()) -> Rights:
        """Return what the history says now. It is read again only if it changed.

        `waiting` are events that decide, and that only their own standing keeps from being recorded. They belong to
        the history: whether they arrived before what revokes their author must not matter.
        """
        forked = {origin: fork.origin_seq for origin, fork in forks.items()}
        return with_successors(self._rights(write, forked, waiting), successions_in(write), forked)

    def _rights(self, write: OpenWrite, ends: Mapping[str, int], waiting: Sequence[Event]) -> Rights:
        if not self.deciding:
            return self._standing.rights(())
        query = Query(types=frozenset(self.deciding))
        last = next(write.read(query, limit=1, newest_first=True), None)
        position = 0 if last is None else last.position
        ids = tuple(sorted(event.id for event in waiting))
        key = (write.epoch, position, len(write.purges()), tuple(sorted(ends.items())), ids)
        if self._known is None or self._known[0] != key:
            events = [recorded.event for recorded in write.read(query)] + list(waiting)
            counted = [
                event
                for event in events
                if is_key(event.origin) and event.origin_seq < ends.get(event.origin, event.origin_seq + 1)
            ]
            self._known = (key, self._standing.rights(counted))
        return self._known[1]
