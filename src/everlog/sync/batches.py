"""Events on their way to a peer, in batches of at most 1,000 events or about 4 MB.

The events of a signed group that travel together share its signature, which travels once. An event that travels
without the rest of its group carries its own proof. Of a purged event, what the purge left travels. The record of a
purge or an erasure travels with what it removed.

An event that is larger than a batch travels alone. If no message has room for it, it is named in the batch: a log
that was set to accept payloads of more than 8 MB has such events.
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
    TooLarge,
    event_text,
)
from everlog.trust.group_signature import GroupSignature
from everlog.trust.stubs import Stub

_ENVELOPE_BYTES = 600  # about as much as names, signature and path add to the header and the payload
_MESSAGE_BYTES = 1_000  # more than a message has beside its events, if it has one or two

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
        self.too_large: list[TooLarge] = []
        self.bytes = 0

    def __len__(self) -> int:
        return max(len(self.slots) + len(self.records), len(self.stubs), len(self.too_large))

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
        left_out = _too_large(slot, record) if isinstance(slot, Packed) and size > BATCH_BYTES else None
        if not piece.has_room(0 if left_out else size, following):
            yield piece
            piece = _Piece()
        if left_out is not None:
            piece.too_large.append(left_out)
            continue
        piece.bytes += size
        if record is not None:
            piece.records[record.id] = record
        if isinstance(slot, Packed):
            piece.slots.append(slot)
        elif stub is not None:
            piece.stubs.append(stub)
    if len(piece):
        yield piece


def _too_large(slot: Packed, record: Event | None) -> TooLarge | None:
    """Return the name of an event for which no message has room, with the record of its erasure; None if one has."""
    event = unpack(slot).event
    size = sum(len(event_text(one, proof=True)) for one in (event, record) if one is not None)
    if size + _MESSAGE_BYTES <= MESSAGE_BYTES_MAX:
        return None
    return TooLarge(event.id, event.origin, event.origin_seq, size)


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
        too_large=piece.too_large,
        more=more,
    )


def _group(origin: str, slot: Packed) -> _Key:
    return (origin, *slot.signed_with, slot.signature)
