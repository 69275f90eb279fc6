"""Events on their way to a peer, in batches of at most 1,000 events or about 4 MB.

The events of a signed group that travel together share its signature, which travels once. An event that travels
without the rest of its group carries its own proof. Of a purged event, what the purge left travels. The record of a
purge or an erasure travels with what it removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from everlog.core.codec import Packed, unpack
from everlog.core.event import Event, Purged
from everlog.stores.contract import encode_event
from everlog.sync.wire import (
    BATCH_BYTES,
    BATCH_EVENTS,
    MESSAGE_BYTES_MAX,
    Events,
    event_text,
)
from everlog.trust.group_signature import GroupSignature
from everlog.trust.stubs import Stub

_ENVELOPE_BYTES = 600  # about as much as names, signature and path add to the header and the payload

_Key = tuple[str, int, int, bytes]


class Removals(Protocol):
    """What shows that something was removed with a record."""

    def stub(self, slot: Purged) -> tuple[Stub, Event] | None:
        """Return a purged event as it travels, and the record of its purge; None if it cannot be proven."""
        ...

    def erasure(self, slot: Packed) -> Event | None:
        """Return the record that allowed the erasure of a payload."""
        ...


def batches(log_id: str, slots: Iterable[Packed | Purged], removals: Removals) -> Iterator[Events]:
    """Return slots of a log as batches. All but the last have `more` set."""
    waiting = None
    for piece in _pieces(slots, removals):
        if waiting is not None:
            yield _batch(log_id, waiting, more=True)
        waiting = piece
    if waiting is not None:
        yield _batch(log_id, waiting, more=False)


class _Piece:
    """What travels in one batch."""

    def __init__(self) -> None:
        self.slots: list[Packed] = []
        self.stubs: list[Stub] = []
        self.records: dict[str, Event] = {}  # of what was purged or erased
        self.bytes = 0

    def __len__(self) -> int:
        return max(len(self.slots) + len(self.records), len(self.stubs))

    def has_room(self, size: int, following: int) -> bool:
        return not len(self) or (self.bytes + size <= BATCH_BYTES and len(self) + following <= BATCH_EVENTS)


def _pieces(slots: Iterable[Packed | Purged], removals: Removals) -> Iterator[_Piece]:
    piece, begun = _Piece(), (0, 0)
    for slot in slots:
        stub: Stub | None = None
        record: Event | None = None
        size, following = _ENVELOPE_BYTES, 1
        if isinstance(slot, Purged):
            proven = removals.stub(slot)
            if proven is None:
                continue  # nobody could take it
            stub, record = proven
        else:
            record = None if slot.salt else removals.erasure(slot)
            size += len(slot.header) + len(slot.payload)
            if slot.signed_with[0] and slot.signed_with != begun:
                begun = slot.signed_with
                following = slot.signed_with[1]  # a group that begins here should not be cut
        if record is not None and record.id not in piece.records:
            size += len(encode_event(record).payload) + _ENVELOPE_BYTES
            following += 1
        if size > MESSAGE_BYTES_MAX // 2:
            continue  # no message has room for it
        if not piece.has_room(size, following):
            yield piece
            piece = _Piece()
        piece.bytes += size
        if record is not None:
            piece.records[record.id] = record
        if isinstance(slot, Packed):
            piece.slots.append(slot)
        elif stub is not None:
            piece.stubs.append(stub)
    if len(piece):
        yield piece


def _batch(log_id: str, piece: _Piece, *, more: bool) -> Events:
    events = [(unpack(slot).event, slot) for slot in piece.slots]
    of_groups = Counter(_group(event.origin, slot) for event, slot in events if slot.signed_with[0])
    whole = {group for group, found in of_groups.items() if found == group[2]}
    texts: list[msgspec.Raw] = [
        event_text(event, proof=_group(event.origin, slot) not in whole) for event, slot in events
    ]
    here = {event.id for event, _ in events}
    texts += [event_text(record, proof=True) for record in piece.records.values() if record.id not in here]
    return Events(
        community_id=log_id,
        events=texts,
        groups=[GroupSignature(*group) for group in sorted(whole)],
        purged=piece.stubs,
        more=more,
    )


def _group(origin: str, slot: Packed) -> _Key:
    return (origin, *slot.signed_with, slot.signature)
