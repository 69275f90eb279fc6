"""Stamping: what makes prepared drafts into events of this log, inside the open write.

Each event gets its id, clock value, number, position, sequence, header and hash. It happens inside the write, because
the header covers the clock and the chain, and two writers must not share either.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256

from everlog.core.codec import encode_header
from everlog.core.ids import IdSource
from everlog.log.write.draft import Prepared
from everlog.stores.open_write import OpenWrite
from everlog.stores.own_events import OwnEvents


def stamp(prepared: Prepared, keys: Sequence[str], write: OpenWrite, ids: IdSource) -> OwnEvents:
    """Stage drafts as new events of this log. One loop makes the header, the hash and the stored row of each."""
    drafts, count = prepared.drafts, len(prepared.drafts)
    origin = write.own_origin()
    streams = {draft.stream for draft in drafts}
    link = write.learn(streams, origin)
    sequences = write.sequences_of(streams)
    # As many ticks as there are events, in two steps: the values between are theirs, in order.
    lamport = write.tick() - 1
    if count > 1:
        write.tick(seen=lamport + count - 1)
    position, origin_seq, previous, now = int(write.position), link.origin_seq, link.hash, _moment(write.now_us)
    events = OwnEvents(origin, write.now_us, previous)
    events.bodies, events.commitments = prepared.bodies, prepared.commitments
    add_row, add_header, add_hash = events.rows.append, events.headers.append, events.hashes.append
    for draft, version, payload, _, salt, commitment, actor, given_id, key, new_id in zip(
        *prepared.columns(), keys, ids.take(count), strict=True
    ):
        position += 1
        origin_seq += 1
        lamport += 1
        stream, type, scope, at, tags = draft.stream, draft.type, draft.scope, draft.occurred_at, draft.tags
        request, cause, correlation = draft.request_id, draft.causation_id, draft.correlation_id
        sequence = sequences[stream] = sequences[stream] + 1
        event_id = given_id or new_id
        header = encode_header(
            (
                event_id,
                type,
                version,
                stream,
                lamport,
                origin,
                origin_seq,
                at or now,
                actor,
                scope,
                request,
                cause,
                correlation,
                key,
                tags,
                commitment,
                previous,
            )
        )
        previous = sha256(b"\0" + header).digest()  # as `header_hash`, without a call
        row = (
            event_id,
            type,
            version,
            stream,
            lamport,
            "",
            origin_seq,
            at,
            actor,
            scope,
            request,
            cause,
            correlation,
            key,
            tags,
            None,
            None,
            payload,
            salt,
        )
        add_row((position, sequence, 0, row))
        add_header(header)
        add_hash(previous)
    write.append_own(events, sequences)
    return events


@lru_cache(maxsize=2)
def _moment(us: int) -> datetime:
    """Return a time of arrival as a datetime. All requests of a group have the same."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)
