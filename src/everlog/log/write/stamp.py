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
from everlog.core.event import START
from everlog.core.ids import EventId, IdSource, OriginIds, is_key
from everlog.log.write.draft import Prepared, joined
from everlog.log.write.knows import Known, news, remember, statement
from everlog.stores.identity import no_key
from everlog.stores.open_write import OpenWrite
from everlog.stores.own_events import OwnEvents
from everlog.trust.signer import Signer


class Ids:
    """The ids of new events. Those of a signed log encode its origin, and only a log that signs gets them."""

    def __init__(self, signer: Signer | None) -> None:
        self._plain = IdSource()
        self._of_origin = OriginIds()
        self._signer = signer

    def take(self, count: int, origin: str, after: int, now_ms: int) -> list[EventId]:
        """Return ids for the events of an origin after a number."""
        if not is_key(origin):
            return self._plain.take(count, now_ms)
        if self._signer is None:
            raise no_key(origin)
        self._signer.key(origin)
        return self._of_origin.take(count, origin, after, now_ms)


def stamp(
    prepared: Prepared, keys: Sequence[str], write: OpenWrite, ids: Ids, *, with_news: bool = False
) -> OwnEvents:
    """Stage drafts as new events of this log. One loop makes the header, the hash and the stored row of each.

    If events of others arrived since the last own one, `with_news` has events before the drafts that state it.
    """
    origin = write.own_origin()
    drafts, count = prepared.drafts, len(prepared.drafts)
    streams = (drafts[0].stream,) if count == 1 else {draft.stream for draft in drafts}
    chain, sequences = write.learn(streams, origin)
    arrived: Sequence[Known] = ()
    if with_news and (chain.runs[-1].position if chain.runs else START) != write.position:
        arrived = news(write, origin)
    if arrived:
        stated = statement(origin, arrived)
        prepared, keys = joined([stated, prepared]), [*[""] * len(stated), *keys]
        count = len(prepared.drafts)
        _, sequences = write.learn({draft.stream for draft in prepared.drafts}, origin)
    link = chain.end
    # Before anything is changed: it may refuse.
    new_ids = ids.take(count, origin, link.origin_seq, write.now_us // 1000)
    position, lamport, now = int(write.position), write.clock, _moment(write.now_us)
    origin_seq, previous = link.origin_seq, link.hash
    events = OwnEvents(origin, write.now_us, previous)
    events.bodies, events.commitments = prepared.bodies, prepared.commitments
    stored = prepared.payloads if prepared.stored is None else prepared.stored
    add_row, add_header, add_hash = events.rows.append, events.headers.append, events.hashes.append
    for draft, version, _, _, salt, commitment, actor, given_id, payload, key, new_id in zip(
        *prepared.columns(), stored, keys, new_ids, strict=True
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
    if arrived:
        remember(write, origin, arrived, events.rows[len(arrived) - 1][3][0])
    return events


@lru_cache(maxsize=2)
def _moment(us: int) -> datetime:
    """Return a time of arrival as a datetime. All requests of a group have the same."""
    return datetime.fromtimestamp(us / 1_000_000, UTC)
