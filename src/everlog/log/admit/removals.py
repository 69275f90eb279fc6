"""The records that allow an event to be taken without its payload, or as the stub that a purge left.

A record is `stream.purged` or `subject.forgotten`, and its author must have the right to remove. It allows something
only if it is recorded here, or is recorded in the same write: otherwise a record that never gets into its chain would
be enough to keep the payloads of others from this log. It is often later in the very chain that the event is missing
from, so records that came or that wait are first assumed to count, and then those are dropped that the chains do not
reach.

There is one exception. The record may be so far ahead in the author's own chain that the events between cannot wait.
Then the author is believed about its own event: see docs/decisions/0043.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.log.records import PURGED, TYPES, events_listed
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite
from everlog.trust.keys import is_key

Place = tuple[str, int, bytes]
"""An event by its origin, number and hash."""


def place_of(encoded: Encoded) -> Place:
    return encoded.event.origin, encoded.event.origin_seq, encoded.hash


class _Record(NamedTuple):
    event: Event
    hash: bytes  # empty if it is recorded


class Removals:
    """What the records of removals list. Nothing is read before the first question."""

    def __init__(
        self,
        write: OpenWrite,
        waiting: Callable[[], Iterable[Encoded]] = lambda: (),
        *,
        counts: Callable[[Event], bool],
        cannot_wait: Callable[[Event], bool] = lambda record: False,
    ) -> None:
        """`waiting` are the events that came or wait, and `counts` says whether the author of a record may remove."""
        self._write = write
        self._waiting = waiting
        self._counts = counts
        self._cannot_wait = cannot_wait
        self._found: dict[tuple[str, Place], list[_Record]] | None = None
        self._coming: dict[bytes, Event] = {}
        self._recorded: set[bytes] = set()

    def lists(self, kind: str, place: Place) -> bool:
        """Return whether a record lists an event, whether or not it counts."""
        return (kind, place) in self._all()

    def allows(self, kind: str, place: Place) -> Event | None:
        """Return the record that allows the removal of an event."""
        found = [record.event for record in self._all().get((kind, place), ()) if self._holds(record, place)]
        return min(found, key=lambda record: record.id, default=None)

    def assume_all(self) -> None:
        """Take every record that came or waits for one that is going to be recorded, and whose author may remove:
        the right to it may be behind what it removed."""
        self._coming = {record.hash: record.event for records in self._all().values() for record in records}
        self._coming.pop(b"", None)  # what is recorded

    def keep(self, reached: Collection[bytes]) -> bool:
        """Assume only those that the chains reach and that count; return whether these are all that were assumed."""
        before, there = len(self._coming), {*reached, *self._recorded}
        self._coming = {hash: one for hash, one in self._coming.items() if hash in there and self._counts(one)}
        return len(self._coming) == before

    def now_recorded(self, hashes: Iterable[bytes]) -> None:
        self._recorded.update(hashes)

    def _holds(self, record: _Record, place: Place) -> bool:
        if record.hash in self._coming:
            return True
        if not self._counts(record.event):
            return False
        if not record.hash or record.hash in self._recorded:
            return True
        return record.event.origin == place[0] and self._cannot_wait(record.event)

    def _all(self) -> dict[tuple[str, Place], list[_Record]]:
        if self._found is None:
            self._found = {}
            here = [_Record(one.event, b"") for one in self._write.read(Query(types=frozenset(TYPES)))]
            came = [_Record(one.event, one.hash) for one in self._waiting() if one.event.type in TYPES]
            known = {record.event.id for record in here}
            for record in (*here, *(one for one in came if one.event.id not in known)):
                for place in events_listed(record.event):
                    if _may_concern(record.event, place):
                        self._found.setdefault((record.event.type, place), []).append(record)
        return self._found


def _may_concern(record: Event, place: Place) -> bool:
    """Return whether a record is of any use: one that nobody signed says nothing of what a key signed."""
    return is_key(record.origin) or (record.type != PURGED and not is_key(place[0]))
