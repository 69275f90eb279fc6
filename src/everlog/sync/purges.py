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
from everlog.core.ids import EventId
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.log.records import FORGOTTEN, PURGED, events_listed
from everlog.stores.small_state import NOTES, read_note
from everlog.sync.holdings import Holdings
from everlog.trust.keys import is_key
from everlog.trust.stubs import Stub, kept_proof

_FOLLOWED = "purges-followed"  # an epoch, and the position up to which everything was followed

_RECORDS = Query(types=frozenset((PURGED,)))
_REMOVALS = Query(types=frozenset((PURGED, FORGOTTEN)))


class Purges:
    """The purges that one node knows of."""

    def __init__(self, log: Log, holdings: Holdings, *, follow: bool) -> None:
        self._log = log
        self._holdings = holdings
        self._follow = follow
        self._followed: tuple[str, int] | None = None
        self._read: tuple[str, Position] = ("", START)
        self._records: dict[tuple[str, str, int, bytes], Event] = {}
        self._lock = threading.Lock()

    def follow(self) -> None:
        """Remove what other nodes have purged, unless this node keeps it: what new records list, and of the events
        that are new here what older records list. A process that was killed before it continues where it was."""
        if not self._follow:
            return
        log = self._log
        with self._lock:
            head, epoch = log.head(), log.identity.epoch
            after = self._upto(epoch)
            counted = log.counted(log.stored.read(_RECORDS, upto=head)) if after < head else ()
            records = [one for one in counted if is_key(one.event.origin)]
            if records:
                deciding = Query(types=frozenset(log.writer.deciding))
                if deciding.types and any(log.stored.read(deciding, after=after, upto=head, limit=1)):
                    after = START  # who had no right to a purge may have one now
                new = {one.event.id: one.event for one in records if one.position > after}
                new |= self._late([one.event for one in records], after, head)
                # A former origin of this log purged before this log was put back.
                done = [log.follow_purge(one) for one in new.values() if one.origin != log.identity.origin]
                if done:
                    row = f"{epoch} {head}".encode()
                    log.writer.write(lambda write: write.put(NOTES, {_FOLLOWED: row}, may_be_lost=True))
            self._followed = (epoch, head)

    def _upto(self, epoch: str) -> Position:
        """Return the position up to which everything was followed."""
        if self._followed is None:
            noted = (read_note(self._log.writer.small_state, _FOLLOWED) or " 0").partition(" ")
            self._followed = (noted[0], int(noted[2]))
        return Position(self._followed[1]) if self._followed[0] == epoch else START

    def _late(self, records: Iterable[Event], after: Position, head: Position) -> dict[EventId, Event]:
        """Return the records that list events which are new here: sent, or recorded because they no longer wait."""
        listed = {place: record for record in records for place in events_listed(record)}
        numbers = {(origin, number) for origin, number, _ in listed}
        found: dict[EventId, Event] = {}
        for recorded in self._log.stored.read(after=after, upto=head):
            event = recorded.event
            if (event.origin, event.origin_seq) in numbers:
                record = listed.get((event.origin, event.origin_seq, header_hash(header_bytes(event))))
                if record is not None:
                    found[record.id] = record
        return found

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
