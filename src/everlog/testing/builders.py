"""Events for tests, built as a log builds them, but without a log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from everlog.core.codec import commitment, header_hash, payload_bytes
from everlog.core.event import BEGINNING, Event, Link, Position
from everlog.core.ids import EventId, IdSource
from everlog.stores.contract import Claim, Encoded, encode_event
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import NOTES, RowReader

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
_SALT = bytes(range(16))


def event(
    type: str = "note.added",
    *,
    version: int = 1,
    stream: str = "note/1",
    payload: Mapping[str, Any] | None = None,
    id: str = "",
    lamport: int = 1,
    origin: str = "01TESTORGN0000000000000000",
    origin_seq: int = 1,
    previous: bytes = b"",
    actor: str = "user:ada",
    scope: str = "",
    correlation_id: str = "",
    tags: Mapping[str, str] | None = None,
    salt: bytes = _SALT,
    occurred_at: datetime = NOON,
) -> Event:
    """Return one event with a valid commitment; everything that is not given has a fixed value, except the id."""
    content = dict({"text": "hello"} if payload is None else payload)
    return Event(
        id=EventId(id) if id else _ids.take(1)[0],
        type=type,
        version=version,
        stream=stream,
        lamport=lamport,
        origin=origin,
        origin_seq=origin_seq,
        occurred_at=occurred_at,
        actor=actor,
        scope=scope,
        request_id="",
        causation_id="",
        correlation_id=correlation_id,
        idempotency_key="",
        tags=dict(tags or {}),
        commitment=commitment(salt, payload_bytes(content)),
        previous=previous,
        payload=content,
        salt=salt,
    )


_ids = IdSource()


class Chain:
    """Events of one origin that follow each other, as a peer would send them."""

    def __init__(self, origin: str = "01TESTORGN0000000000000000") -> None:
        self.origin = origin
        self._link = BEGINNING
        self._lamport = 0

    def next(self, **fields: Any) -> Encoded:
        self._lamport += 1
        fields.setdefault("lamport", self._lamport)
        made = event(origin=self.origin, origin_seq=self._link.origin_seq + 1, previous=self._link.hash, **fields)
        sealed = encode_event(made)
        self._link = Link(made.origin_seq, sealed.hash)
        return sealed


def stamped(writer: OpenWrite, origin: str, **fields: Any) -> Encoded:
    """Return an event stamped inside an open write, as the log itself does it: with its clock and its place in the
    chain."""
    link = writer.link(origin)
    made = event(origin=origin, origin_seq=link.origin_seq + 1, previous=link.hash, lamport=writer.tick(), **fields)
    sealed = encode_event(made)
    assert sealed.hash == header_hash(sealed.header)
    return sealed


def seal_any(**fields: Any) -> Encoded:
    """Return the first event of a new origin."""
    fields.setdefault("origin", "01TESTFREE" + event().id[10:])
    return Chain(fields.pop("origin")).next(**fields)


class Boom(Exception):
    """Raised by a test to fail a write."""


def put_note(
    write: OpenWrite, key: str, value: str | None, *, expires_us: int | None = None, may_be_lost: bool = False
) -> None:
    """Set a note, or remove it."""
    write.put(NOTES, {key: None if value is None else value.encode()}, expires_us=expires_us, may_be_lost=may_be_lost)


def put_claim(write: OpenWrite, name: bytes, first: int, count: int) -> None:
    """Claim events for a request."""
    write.claim({name: Claim(Position(first), count)})


def claimed_among(state: RowReader, names: Collection[bytes]) -> set[bytes]:
    """Return the names that are claimed."""
    return set(state.claims(names))
