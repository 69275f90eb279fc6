"""Read events in the shape of the project from which this store's layout comes.

    {"event_id":"01HN3R…","event_type":"WPStatusChanged","event_version":1,"lamport_clock":42,"entity_id":"WP03",
     "entity_type":"WorkPackage","timestamp":"2026-01-27T10:30:00Z","actor":"builder","causation_id":null,
     "correlation_id":"session-7","payload":{…}}

Such a line has no origin, no chain and no salt. These are derived from the line itself, so that every clone reads the
same event: each event has its own origin, in which it is the only one, and its salt is derived from its id.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

import msgspec

from everlog.core.canonical import canonical
from everlog.core.codec import SALT_BYTES, commitment
from everlog.core.event import Event
from everlog.core.fields import TEXT_CHARS_MAX, actor_of, kind_of, name_of, require_shape, require_text
from everlog.core.ids import parse_id
from everlog.errors import InvalidField


class _SeedEvent(msgspec.Struct, kw_only=True, gc=False):
    event_id: str
    event_type: str
    event_version: int = 1
    lamport_clock: int
    entity_id: str
    entity_type: str = "entity"
    timestamp: datetime
    actor: str = "system"
    causation_id: str | None = None
    correlation_id: str | None = None
    payload: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_SeedEvent).decode


def looks_like_it(data: bytes) -> bool:
    return b'"event_id"' in data and b'"lamport_clock"' in data


def read_seed_event(data: bytes) -> Event:
    """Return the event of a line of that shape. An EverlogError or a msgspec error names what is wrong."""
    found = _decode(data)
    event_id = parse_id(found.event_id)
    if found.lamport_clock < 1:
        raise InvalidField(
            f"its clock value is {found.lamport_clock}", why="values start at 1", field="lamport_clock"
        )
    require_shape("type", found.event_type)
    stream = f"{kind_of(found.entity_type)}/{name_of(found.entity_id)}"
    require_shape("stream", stream)
    actor = actor_of(found.actor, "agent")
    require_shape("actor", actor)
    salt = hashlib.sha256(b"everlog seed event " + event_id.encode()).digest()[:SALT_BYTES]
    occurred_at = found.timestamp if found.timestamp.tzinfo else found.timestamp.replace(tzinfo=UTC)
    return Event(
        id=event_id,
        type=found.event_type,
        version=found.event_version,
        stream=stream,
        lamport=found.lamport_clock,
        origin=event_id,
        origin_seq=1,
        occurred_at=occurred_at.astimezone(UTC),
        actor=actor,
        scope="",
        request_id="",
        causation_id=_text("causation_id", found.causation_id),
        correlation_id=_text("correlation_id", found.correlation_id),
        idempotency_key="",
        tags={},
        commitment=commitment(salt, canonical(found.payload)),
        previous=b"",
        payload=found.payload,
        salt=salt,
    )


def _text(field: str, value: str | None) -> str:
    text = (value or "")[:TEXT_CHARS_MAX]
    require_text(field, text)
    return text
