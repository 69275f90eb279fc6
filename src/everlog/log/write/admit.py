"""Events that were made elsewhere: what is asked of them, and how they are recorded as they are.

The same shapes as at our own door, because every store must be able to return what it accepts; not the catalog's,
because an event of a type that is unknown here is kept for those who know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from everlog.core.canonical import NUMBER_MAX
from everlog.core.clock import refuse_clock_jump
from everlog.core.codec import refuse_wrong_commitment
from everlog.core.event import Event, Recorded
from everlog.core.fields import require_shape, require_tags, require_text
from everlog.core.ids import parse_id, refuse_future_id
from everlog.errors import IdConflict, InvalidField
from everlog.log.secrets.find import refuse_secrets
from everlog.log.secrets.first_look import (
    NUMBER_CHARS,
    innocent,
    innocent_words,
    known_clean,
    remember_clean,
    suspicious,
)
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite

_HASH_BYTES = 32


def refuse_unacceptable(event: Event, *, now_ms: int) -> None:
    """Refuse an event from outside that no log could have made."""
    for field in ("type", "stream", "actor", "scope"):
        require_shape(field, getattr(event, field))
    for field in ("origin", "request_id", "causation_id", "correlation_id", "idempotency_key"):
        require_text(field, getattr(event, field))
    require_tags(event.tags)
    # Another spelling would be another id to every index, and the event could be recorded twice.
    _require(parse_id(event.id) == event.id, "id", event.id, "an id travels as the ULID that it was made as")
    refuse_future_id(event.id, now_ms=now_ms)
    _require(bool(event.origin), "origin", event.origin, "it names the log that made the event")
    for field in ("version", "origin_seq"):
        number = getattr(event, field)
        _require(1 <= number <= NUMBER_MAX, field, number, "it counts from 1 and stays below 2^53")
    in_utc = event.occurred_at.utcoffset() == timedelta(0)
    _require(in_utc, "occurred_at", event.occurred_at, "times travel in UTC")
    _require(len(event.commitment) == _HASH_BYTES, "commitment", event.commitment, "it is a SHA-256 hash")
    _require(len(event.previous) in (0, _HASH_BYTES), "previous", event.previous, "it is a SHA-256 hash, or empty")
    refuse_wrong_commitment(event)


_TEXTS = ("type", "stream", "actor", "scope", "request_id", "causation_id", "correlation_id", "idempotency_key")


def refuse_secret(encoded: Encoded) -> None:
    """Refuse an event from outside that holds a secret, in its payload, its tags or its names, as an append does."""
    event = encoded.event
    if not known_clean(event.payload):
        if suspicious(encoded.payload):
            refuse_secrets(event.type, event.payload)
        remember_clean(event.payload)
    for field in _TEXTS:
        _refuse_secret_text(field, getattr(event, field))
    for name, text in event.tags.items():
        _refuse_secret_text(name, text)


def _refuse_secret_text(name: str, text: str) -> None:
    if not text or text.rstrip(NUMBER_CHARS) in innocent_words or innocent(text):
        return
    if suspicious(f'"{text}"'.encode()):
        refuse_secrets("the envelope", {name: text})


def admit(
    writer: OpenWrite, events: Sequence[Event], encoded: Sequence[Encoded], *, origin: str, jump_max: int
) -> list[Recorded]:
    """Record events as they are in this log, whose own ones are of `origin`; what was new of them."""
    clock = writer.clock
    for event in events:
        refuse_clock_jump(clock, event.lamport, jump_max=jump_max)
        clock = max(clock, event.lamport)
    new = writer.append(encoded)
    for recorded in new:
        if recorded.event.origin == origin:
            raise IdConflict(
                f"event {recorded.event.id} claims to be of this log, which never recorded it",
                why="only this log adds to its own chain: a copy of it was written to, or it is forged",
                hint="give the copied log another identity before both are written to",
                id=recorded.event.id,
            )
        writer.tick(seen=recorded.event.lamport)
    return new


def _require(holds: bool, field: str, found: object, why: str) -> None:
    if not holds:
        raise InvalidField(
            f"the {field} of an event from outside is {found!r:.80}",
            why=why,
            hint="fetch the event again from its origin",
            field=field,
        )
