"""An event, and the same event at its position in one log.

A `Header` is what is hashed, chained and signed. It has everything except the payload, for which it has a
commitment: SHA-256 over a random salt and the payload's canonical bytes. So a payload can be erased later, and
the chain, the proofs and the signatures remain valid.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NewType, TypeVar

import msgspec

from everlog.core.ids import EventId

Position = NewType("Position", int)
"""The number of an event in the order of arrival of one log, from 1. It is local to that log: never signed or
synced."""

START = Position(0)

P = TypeVar("P")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# Stored and hashed as an array in exactly this order: a new field goes to the end, with a default.
class Header(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: EventId
    type: str
    version: int
    stream: str
    lamport: int
    origin: str
    origin_seq: int
    occurred_at: datetime
    actor: str
    scope: str
    request_id: str
    causation_id: str
    correlation_id: str
    idempotency_key: str
    tags: Mapping[str, str]
    commitment: bytes
    previous: bytes


class Event(Header, frozen=True, array_like=True, gc=False):
    """An immutable fact, portable between logs."""

    payload: dict[str, Any] = {}
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of its stream: `workpackage` of `workpackage/WP03`."""
        return self.stream.partition("/")[0]

    @property
    def causal_order(self) -> tuple[int, str]:
        """The order that is the same on every node."""
        return (self.lamport, self.id)


def imported_order(event: Event) -> tuple[int, str]:
    """Return the order of events of a program without a logical clock: by their time, then by their original ids."""
    return (microseconds(event.occurred_at), event.tags.get("was.event_id") or event.id)


class Recorded(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record: an event with its position in one log."""

    position: Position
    sequence: int
    received_us: int
    event: Event

    @property
    def received_at(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.received_us)


class TypedRecord(msgspec.Struct, Generic[P], frozen=True):
    """A record together with its payload as an instance of the model of its type."""

    record: Recorded
    payload: P

    @property
    def event(self) -> Event:
        return self.record.event

    @property
    def position(self) -> Position:
        return self.record.position

    @property
    def sequence(self) -> int:
        return self.record.sequence

    @property
    def received_at(self) -> datetime:
        return self.record.received_at


class Link(msgspec.Struct, frozen=True, gc=False):
    """The end of the chain of one origin: the number of its events, and the hash of the last."""

    origin_seq: int
    hash: bytes


BEGINNING = Link(0, b"")


class Purged(msgspec.Struct, frozen=True, gc=False):
    """What remains of an event that a purge removed: its position, its clock value, and its hash, so that the chain
    still verifies."""

    position: Position
    sequence: int
    id: EventId
    origin: str
    origin_seq: int
    hash: bytes
    previous: bytes
    lamport: int
    reserved: Position = START  # the purge that removed it, by its reserved position
    hash_format: int = 2  # 1 if it was removed in format 1, whose hash has no zero byte in front of the header


class Purge(msgspec.Struct, frozen=True, gc=False):
    """The record of a purge. `reserved` is a position that no event ever gets, above all events that it removed."""

    reserved: Position
    stream: str
    scopes: tuple[str, ...]
    actor: str
    reason: str
    purged_us: int
    sequence: int
    count: int

    @property
    def purged_at(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.purged_us)


def microseconds(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
