"""Events of others that come without their payload: taken only if a record lists them as erased.

The record is an event `subject.forgotten` that counts. It is here, or in the same batch, or waits: it is often later
in the very chain that the erased event is missing from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.log.records import FORGOTTEN, events_listed
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite
from everlog.trust.keys import is_key


def is_bare(event: Event) -> bool:
    return not event.salt and not event.payload


class Erased:
    """The events that records list as erased. Nothing is read before the first question."""

    def __init__(self, write: OpenWrite, records: Iterable[Event], may_remove: Callable[[Event], bool]) -> None:
        self._write = write
        self._records = records
        self._may_remove = may_remove
        self._listed: dict[tuple[str, int, bytes], list[Event]] | None = None

    def with_record(self, encoded: Encoded) -> Encoded | None:
        """Return an event without payload, with the record that allows it; None if there is none.

        The record of an origin that is no key counts only for origins that are none: anybody could write it.
        """
        event = encoded.event
        for record in self._all().get((event.origin, event.origin_seq, encoded.hash), ()):
            if is_key(record.origin) or not is_key(event.origin):
                return replace(encoded, event=replace(event, erased_by=record.id))
        return None

    def _all(self) -> dict[tuple[str, int, bytes], list[Event]]:
        if self._listed is None:
            self._listed = {}
            here = (recorded.event for recorded in self._write.read(Query(types=frozenset((FORGOTTEN,)))))
            for record in (*self._records, *here):
                if record.type == FORGOTTEN and self._may_remove(record):
                    for place in events_listed(record):
                        self._listed.setdefault(place, []).append(record)
        return self._listed
