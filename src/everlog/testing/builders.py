"""Events for tests, made as a log makes them but without one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from everlog.core.codec import commitment, header_hash, payload_bytes
from everlog.core.event import BEGINNING, Event, Link
from everlog.core.ids import EventId, IdSource
from everlog.stores.contract import Sealed, Writer, seal

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
_SALT = bytes(range(16))


def event(
    type: str = "note.added",
    *,
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
) -> Event:
    """One event with a right commitment; everything not given is the same every time, but for the id."""
    said = dict({"text": "hello"} if payload is None else payload)
    return Event(
        id=EventId(id) if id else _ids.take(1)[0],
        type=type,
        version=1,
        stream=stream,
        lamport=lamport,
        origin=origin,
        origin_seq=origin_seq,
        occurred_at=NOON,
        actor=actor,
        scope=scope,
        request_id="",
        causation_id="",
        correlation_id=correlation_id,
        idempotency_key="",
        tags=dict(tags or {}),
        commitment=commitment(salt, payload_bytes(said)),
        previous=previous,
        payload=said,
        salt=salt,
    )


_ids = IdSource()


class Chain:
    """Events of one origin that follow each other, as a peer would send them."""

    def __init__(self, origin: str = "01TESTORGN0000000000000000") -> None:
        self.origin = origin
        self._link = BEGINNING
        self._lamport = 0

    def next(self, **fields: Any) -> Sealed:
        self._lamport += 1
        fields.setdefault("lamport", self._lamport)
        made = event(origin=self.origin, origin_seq=self._link.origin_seq + 1, previous=self._link.hash, **fields)
        sealed = seal(made)
        self._link = Link(made.origin_seq, sealed.hash)
        return sealed


def stamped(writer: Writer, origin: str, **fields: Any) -> Sealed:
    """An event stamped inside an open write, as the log itself does it: its clock, its place in the own chain."""
    link = writer.link(origin)
    made = event(origin=origin, origin_seq=link.origin_seq + 1, previous=link.hash, lamport=writer.tick(), **fields)
    sealed = seal(made)
    assert sealed.hash == header_hash(sealed.header)
    return sealed


def seal_any(**fields: Any) -> Sealed:
    """An event of an origin of its own, which follows nothing."""
    fields.setdefault("origin", "01TESTFREE" + event().id[10:])
    return Chain(fields.pop("origin")).next(**fields)


class Boom(Exception):
    """What a test breaks a write with."""
