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
from everlog.core.event import Event, Link, Recorded
from everlog.core.fields import require_shape, require_tags, require_text
from everlog.core.ids import parse_id, refuse_future_id
from everlog.errors import IdConflict, InvalidField
from everlog.log.admit.erased import Forgotten
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


def admit(writer: OpenWrite, events: Sequence[Event], encoded: Sequence[Encoded], *, jump_max: int) -> list[Recorded]:
    """Record events as they are; what was new of them."""
    clock = writer.clock
    for event in events:
        refuse_clock_jump(clock, event.lamport, jump_max=jump_max)
        clock = max(clock, event.lamport)
    forgotten = Forgotten(writer)
    new = append_foreign(writer, [forgotten.without(one) for one in encoded])
    for recorded in new:
        writer.tick(seen=recorded.event.lamport)
    return new


def append_foreign(writer: OpenWrite, encoded: Sequence[Encoded]) -> list[Recorded]:
    """Record events from elsewhere, and refuse those that would fork a chain of this log.

    Events of a former origin may come: they were recorded here before a backup was put back.
    """
    own = writer.own_origin()  # if it was put back, this log has a new one from here on
    identity = writer.identity
    if not any(identity.made(item.event.origin) for item in encoded):
        return writer.append(encoded)
    before = {origin: writer.chain(origin) for origin in {item.event.origin for item in encoded}}
    new = writer.append(encoded)
    taken: dict[tuple[str, int], Event] = {}
    ends = {origin: chain.end for origin, chain in before.items()}
    hashes = {item.event.id: item.hash for item in encoded}
    for event in (recorded.event for recorded in new):
        if not identity.made(event.origin):
            continue
        end = ends[event.origin]
        if event.origin == own:
            raise _fork(event, f"claims to be of this log, which never recorded it: it made {end.origin_seq} events")
        if (event.origin, event.origin_seq) in taken or before[event.origin].has(event.origin_seq):
            raise _fork(event, f"has the number {event.origin_seq} of origin {event.origin}, as another event here")
        taken[event.origin, event.origin_seq] = event
        if event.origin_seq == end.origin_seq + 1 and event.previous != end.hash:
            raise _fork(event, f"does not follow event {end.origin_seq} of origin {event.origin} as it is here")
        if event.origin_seq > end.origin_seq:
            ends[event.origin] = Link(event.origin_seq, hashes[event.id])
    return new


def _fork(event: Event, what: str) -> IdConflict:
    return IdConflict(
        f"event {event.id} {what}",
        why="only one log adds to a chain: a copy of this log was written to under the same origin, or it is forged",
        hint="import the others with --set-aside FILE; docs/how-to/backup.md",
        id=event.id,
    )


def _require(holds: bool, field: str, found: object, why: str) -> None:
    if not holds:
        raise InvalidField(
            f"the {field} of an event from outside is {found!r:.80}",
            why=why,
            hint="fetch the event again from its origin",
            field=field,
        )
