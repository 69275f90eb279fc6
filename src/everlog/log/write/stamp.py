"""Making a prepared draft an event of this log: id, clock, place in the origin's chain, header and its hash.

It happens inside the write, because the header covers the clock and the chain, and two writers must not share either.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from everlog.core.codec import encode_header, header_hash
from everlog.core.event import Event
from everlog.core.ids import IdSource
from everlog.log.write.draft import Prepared
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite


def stamp(
    prepared: Sequence[Prepared],
    keys: Sequence[str],
    writer: OpenWrite,
    ids: IdSource,
    *,
    origin: str,
    now: datetime,
) -> list[Encoded]:
    """The events of prepared drafts, each with its idempotency key."""
    several = len(prepared) > 1
    streams = {item.draft.stream for item in prepared} if several else (prepared[0].draft.stream,)
    link = writer.learn(streams, origin)
    origin_seq, previous = link.origin_seq, link.hash
    # As many ticks as there are events, in two steps: the values between are theirs, in order.
    lamport = writer.tick() - 1
    if several:
        writer.tick(seen=lamport + len(prepared) - 1)
    sealed = []
    for item, key, new_id in zip(prepared, keys, ids.take(len(prepared)), strict=True):
        draft = item.draft
        origin_seq += 1
        lamport += 1
        fields = (
            item.id or new_id,
            draft.type,
            item.version,
            draft.stream,
            lamport,
            origin,
            origin_seq,
            draft.occurred_at or now,
            item.actor,
            draft.scope,
            draft.request_id,
            draft.causation_id,
            draft.correlation_id,
            key,
            draft.tags,
            item.commitment,
            previous,
        )
        header = encode_header(fields)
        previous = header_hash(header)
        sealed.append(Encoded(Event(*fields, item.payload, item.salt), header, item.body, previous))
    return sealed
