"""Purges that travel: what others purged is removed here too, and nodes that lack a purged event get its stub.

The record of a purge, `stream.purged`, is an event like any other. With each stub, the record that lists it travels,
and the proof that its origin signed the event. In the same way, with an event whose payload was erased travels the
record that lists it, `subject.forgotten`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from everlog.core.codec import Packed, header_bytes, header_hash, unpack
from everlog.core.event import START, Event, Position, Purged
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN, PURGED, events_listed
from everlog.sync.holdings import Holdings
from everlog.trust.keys import is_key
from everlog.trust.stubs import Stub, kept_proof

_RECORDS = Query(types=frozenset((PURGED,)))
_REMOVALS = Query(types=frozenset((PURGED, FORGOTTEN)))


class Purges:
    """The purges that one node knows of."""

    def __init__(self, log: Log, holdings: Holdings, *, follow: bool) -> None:
        self._log = log
        self._holdings = holdings
        self._follow = follow
        self._followed: Position = START
        self._listed: dict[tuple[str, int, bytes], Event] = {}
        self._read: tuple[str, Position] = ("", START)
        self._records: dict[tuple[str, str, int, bytes], Event] = {}
        self._lock = threading.Lock()

    def follow(self, came: Iterable[Event]) -> None:
        """Remove what other nodes have purged, unless this node keeps it: what new records list, and of the events
        that came what older records list."""
        if not self._follow:
            return
        came, deciding = list(came), self._log.writer.deciding
        with self._lock:
            if any(one.type in deciding for one in came):
                self._followed = START  # who had no right to a purge may have one now
            head, own = self._log.head(), self._log.identity
            for recorded in self._log.counted(self._log.stored.read(_RECORDS, after=self._followed, upto=head)):
                record = recorded.event
                if is_key(record.origin):
                    self._listed.update(dict.fromkeys(events_listed(record), record))
                    if record.origin != own.origin:  # a former one purged before this log was put back
                        self._log.follow_purge(record)
            self._followed = head
            if self._listed:
                hashes = ((one.origin, one.origin_seq, header_hash(header_bytes(one))) for one in came)
                late = {self._listed[one].id: self._listed[one] for one in hashes if one in self._listed}
                for record in late.values():
                    self._log.follow_purge(record)

    def stub(self, slot: Purged) -> tuple[Stub, Event] | None:
        """Return a purged event as it travels, with the record that lists it; None if there is no such record."""
        record = self._record(PURGED, slot.origin, slot.origin_seq, slot.hash)
        if record is None or not is_key(record.origin):
            return None
        signature, (first, count), path = slot.signature, slot.signed_with, self._holdings.group_path(slot)
        if not path and count != 1:
            kept = kept_proof(self._log.writer.small_state, slot.origin, slot.origin_seq)
            if kept is None and is_key(slot.origin):
                return None
            if kept is not None:
                signature, first, count, path = kept.signature, kept.first_seq, kept.count, kept.path
        return Stub(
            slot.id,
            slot.origin,
            slot.origin_seq,
            slot.hash,
            slot.previous,
            slot.lamport,
            signature,
            first,
            count,
            path or (),
        ), record

    def erasure(self, slot: Packed) -> Event | None:
        """Return the record that allowed the erasure of a payload."""
        event = unpack(slot).event
        return self._record(FORGOTTEN, event.origin, event.origin_seq, header_hash(slot.header))

    def _record(self, kind: str, origin: str, number: int, hash: bytes) -> Event | None:
        state = (self._log.identity.epoch, self._log.head())
        if self._read != state:
            self._records = {
                (recorded.event.type, *listed): recorded.event
                for recorded in self._log.counted(self._log.stored.read(_REMOVALS))
                for listed in events_listed(recorded.event)
            }
            self._read = state
        return self._records.get((kind, origin, number, hash))
