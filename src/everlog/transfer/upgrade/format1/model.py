"""What a reader of format 1 gives, and the bytes of an event in that format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from everlog.core.codec import Packed
from everlog.core.event import Position, Purge, Purged
from everlog.core.ids import EventId
from everlog.stores.contract import Identity
from everlog.stores.small_state import Row

FORMAT = 1

Slot = Packed | Purged | Purge


class Bad(NamedTuple):
    """Something that cannot be carried over: where it is, and what is wrong with it."""

    where: str
    why: str


class OldLog(Protocol):
    """A log in format 1, at one moment."""

    @property
    def identity(self) -> Identity: ...

    @property
    def clock(self) -> int: ...

    @property
    def size(self) -> int:
        """About how many positions there are; only progress is measured by it."""
        ...

    def purges(self) -> list[Purge]:
        """Return every purge, in order; none if they cannot be read, which `slots` reports."""
        ...

    def slots(self) -> Iterator[Slot | Bad]:
        """Return every position in order, as stored; what cannot be read is named, and the next one follows."""
        ...

    def rows(self) -> Iterator[Row | Bad]:
        """Return every claim and every note, expired ones included."""
        ...

    def close(self) -> None: ...


def stub(
    position: int,
    sequence: int,
    event_id: str,
    origin: str,
    origin_seq: int,
    hash: bytes,
    previous: bytes,
    reserved: int,
    lamport: int = 0,
) -> Purged:
    """Return what a purge left. Only day files have its clock value."""
    place = Position(position), sequence, EventId(event_id)
    return Purged(*place, origin, origin_seq, hash, previous, lamport, Position(reserved), FORMAT)


class Header1(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The header of an event, stored as an array in this order."""

    id: str
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
    tags: dict[str, str]
    commitment: bytes
    previous: bytes


encode_header = msgspec.json.Encoder(order="deterministic").encode
decode_header = msgspec.json.Decoder(Header1).decode


def header_hash(header: bytes) -> bytes:
    """Return the hash of an event: SHA-256 over its header."""
    return hashlib.sha256(header).digest()
