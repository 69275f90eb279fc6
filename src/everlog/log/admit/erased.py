"""Events of others that come without their payload: taken only if a record lists them as erased.

The record is an event `subject.forgotten` that counts. It is here, or in the same batch, or waits: it is often later
in the very chain that the erased event is missing from.

An event that comes with its payload after this log carried out the record that lists it is taken without: what was
forgotten here does not come back from a node that has not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.log.records import FORGOTTEN, events_listed
from everlog.stores.contract import Encoded, encode_event
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
        self._carried_out: dict[tuple[str, int, bytes], str] | None = None  # by what is erased: the id of the record

    def with_record(self, encoded: Encoded) -> Encoded | None:
        """Return an event without payload, with the record that allows it; None if there is none.

        The record of an origin that is no key counts only for origins that are none: anybody could write it.
        """
        event = encoded.event
        for record in self._all().get((event.origin, event.origin_seq, encoded.hash), ()):
            if is_key(record.origin) or not is_key(event.origin):
                return replace(encoded, event=replace(event, erased_by=record.id))
        return None

    def without_forgotten(self, encoded: Encoded) -> Encoded:
        """Return an event without its payload, if a record lists it that this log made or followed."""
        event = encoded.event
        if not event.salt:
            return encoded
        if self._carried_out is None:
            self._carried_out = dict(self._erased_here())
        if not self._carried_out:
            return encoded
        by = self._carried_out.get((event.origin, event.origin_seq, encoded.hash))
        return encoded if by is None else encode_event(replace(event, payload={}, salt=b"", erased_by=by))

    def _erased_here(self) -> Iterator[tuple[tuple[str, int, bytes], str]]:
        records = [one.event for one in self._write.read(Query(types=frozenset((FORGOTTEN,))))]
        own = [record for record in records if self._write.identity.made(record.origin)]
        done = {record.id for record in own} | {str(record.payload.get("follows", "")) for record in own}
        for record in records:
            if record.id in done and self._may_remove(record):
                for place in events_listed(record):
                    if is_key(record.origin) or not is_key(place[0]):
                        yield place, record.id

    def _all(self) -> dict[tuple[str, int, bytes], list[Event]]:
        if self._listed is None:
            self._listed = {}
            here = (recorded.event for recorded in self._write.read(Query(types=frozenset((FORGOTTEN,)))))
            for record in (*self._records, *here):
                if record.type == FORGOTTEN and self._may_remove(record):
                    for place in events_listed(record):
                        self._listed.setdefault(place, []).append(record)
        return self._listed
