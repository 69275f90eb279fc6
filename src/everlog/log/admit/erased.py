"""Events of others and their payloads: those that come without, and those whose payload was forgotten here.

An event that comes with its payload after this log carried out the record that lists it is taken without: what was
forgotten here does not come back, neither from a node that has not followed nor from a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from msgspec.structs import replace

from everlog.core.event import Event, Recorded
from everlog.core.query import Query
from everlog.log.records import FORGOTTEN, events_listed, forgotten_in
from everlog.stores.contract import Encoded, Identity, encode_event
from everlog.trust.keys import is_key


def is_bare(event: Event) -> bool:
    return not event.salt and not event.payload


def bare(encoded: Encoded, by: str) -> Encoded:
    """Return an event without its payload, with the id of the record that allows it."""
    return encode_event(replace(encoded.event, payload={}, salt=b"", erased_by=by))


class _Reader(Protocol):
    """A store or an open write."""

    @property
    def identity(self) -> Identity: ...

    def read(self, query: Query) -> Iterator[Recorded]: ...


class Forgotten:
    """The events that records list which this log made or followed. Nothing is read before the first question.

    Whether others follow such a record does not matter: somebody decided it here.
    """

    def __init__(self, write: _Reader) -> None:
        self._write = write
        self._found: dict[tuple[str, int, bytes], str] | None = None  # the id of the record

    @property
    def listed(self) -> dict[tuple[str, int, bytes], str]:
        """The events by origin, number and hash, each with the id of the record."""
        if self._found is None:
            self._found = dict(self._erased_here())
        return self._found

    def without(self, encoded: Encoded) -> Encoded:
        """Return an event without its payload, if that was forgotten here."""
        event = encoded.event
        if not event.salt:
            return encoded
        by = self.listed.get((event.origin, event.origin_seq, encoded.hash)) if self.listed else None
        return encoded if by is None else bare(encoded, by)

    def _erased_here(self) -> Iterator[tuple[tuple[str, int, bytes], str]]:
        records = [one.event for one in self._write.read(Query(types=frozenset((FORGOTTEN,))))]
        own = [record for record in records if self._write.identity.made(record.origin)]
        done = {record.id for record in own} | {forgotten_in(record).follows for record in own}
        for record in records:
            if record.id in done:
                for place in events_listed(record):
                    if is_key(record.origin) or not is_key(place[0]):
                        yield place, record.id
