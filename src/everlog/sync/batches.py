"""Events on their way to a peer, in batches of at most 1,000 events or about 4 MB.

The events of a signed group that travel together share its signature, which travels once. An event that travels
without the rest of its group carries its own proof. Of a purged event, what the purge left travels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from everlog.core.codec import Packed, unpack
from everlog.core.event import Purged
from everlog.sync.wire import (
    BATCH_BYTES,
    BATCH_EVENTS,
    MESSAGE_BYTES_MAX,
    Events,
    Stub,
    event_text,
)
from everlog.trust.groups import GroupSignature

_ENVELOPE_BYTES = 600  # about as much as names, signature and path add to the header and the payload

_Key = tuple[str, int, int, bytes]


def batches(log_id: str, slots: Iterable[Packed | Purged]) -> Iterator[Events]:
    """Return slots of a log as batches. All but the last have `more` set."""
    waiting = None
    for piece in _pieces(slots):
        if waiting is not None:
            yield _batch(log_id, waiting, more=True)
        waiting = piece
    if waiting is not None:
        yield _batch(log_id, waiting, more=False)


def _pieces(slots: Iterable[Packed | Purged]) -> Iterator[list[Packed | Purged]]:
    piece: list[Packed | Purged] = []
    size, begun = 0, (0, 0)
    for slot in slots:
        length = (
            _ENVELOPE_BYTES if isinstance(slot, Purged) else len(slot.header) + len(slot.payload) + _ENVELOPE_BYTES
        )
        if length > MESSAGE_BYTES_MAX // 2:
            continue  # no message has room for it
        following = 1
        if isinstance(slot, Packed) and slot.signed_with[0] and slot.signed_with != begun:
            begun = slot.signed_with
            following = slot.signed_with[1]  # a group that begins here should not be cut
        if piece and (size + length > BATCH_BYTES or len(piece) + following > BATCH_EVENTS):
            yield piece
            piece, size = [], 0
        piece.append(slot)
        size += length
    if piece:
        yield piece


def _batch(log_id: str, piece: list[Packed | Purged], *, more: bool) -> Events:
    records = [(unpack(slot).event, slot) for slot in piece if isinstance(slot, Packed)]
    of_groups = Counter(_group(event.origin, slot) for event, slot in records if slot.signed_with[0])
    whole = {group for group, found in of_groups.items() if found == group[2]}
    texts: list[msgspec.Raw] = [
        event_text(event, proof=_group(event.origin, slot) not in whole) for event, slot in records
    ]
    return Events(
        community_id=log_id,
        events=texts,
        groups=[GroupSignature(*group) for group in sorted(whole)],
        purged=[_stub(slot) for slot in piece if isinstance(slot, Purged)],
        more=more,
    )


def _group(origin: str, slot: Packed) -> _Key:
    return (origin, *slot.signed_with, slot.signature)


def _stub(slot: Purged) -> Stub:
    first_seq, count = slot.signed_with
    return Stub(
        slot.id,
        slot.origin,
        slot.origin_seq,
        slot.hash,
        slot.previous,
        slot.lamport,
        slot.signature,
        first_seq,
        count,
    )
