"""An event at each stage of its life: a draft, a portable event, and an event at a place in one log.

A `Header` is what is hashed, chained and signed. It says everything but the payload, for which it carries a
commitment: SHA-256 over a random salt and the payload's canonical bytes. So a payload can be erased later, and
the chain, the proofs and the signatures still hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NewType

import msgspec

from everlog.core.ids import EventId

Position = NewType("Position", int)
"""A place in one log's order of arrival, from 1. Local to that log: never signed, never synced."""

START = Position(0)

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
        """The kind of thing its stream is about: `workpackage` of `workpackage/WP03`."""
        return self.stream.partition("/")[0]

    @property
    def causal_order(self) -> tuple[int, str]:
        """The order that is the same on every node."""
        return (self.lamport, self.id)


def imported_order(event: Event) -> tuple[int, str]:
    """The order of events of a program that keeps no clock: by their time, and within it by the ids that it gave."""
    return (microseconds(event.occurred_at), event.tags.get("was.event_id") or event.id)


class Recorded(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event at its place in one log."""

    position: Position
    sequence: int
    received_us: int
    event: Event

    @property
    def received_at(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self.received_us)


class Link(msgspec.Struct, frozen=True, gc=False):
    """The end of one origin's chain: how many events it has recorded and the hash of the last."""

    origin_seq: int
    hash: bytes


BEGINNING = Link(0, b"")


class Purged(msgspec.Struct, frozen=True, gc=False):
    """What is kept of an event that a purge removed: its place and its hash, so that the chain still verifies."""

    position: Position
    sequence: int
    id: EventId
    origin: str
    origin_seq: int
    hash: bytes
    previous: bytes
    reserved: Position = START  # the purge that removed it, by its reserved position


class Purge(msgspec.Struct, frozen=True, gc=False):
    """The record of a purge. `reserved` is a position that no event ever gets, above every event it removed."""

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
    """A moment as whole microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
