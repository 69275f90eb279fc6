"""An event, and the same event at its position in one log.

A `Header` is what is hashed, chained and signed. It has everything except the payload, for which it has a
commitment: SHA-256 over a random salt and the payload's canonical bytes. So a payload can be erased later, and
the chain, the proofs and the signatures remain valid.

A store need not keep what follows from the rest. An event that was read from a commit group (`everlog.core.group`)
has the group instead of its origin, time, commitment, previous hash and signature: each is computed when it is asked
for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NewType, TypeVar

import msgspec

from everlog.core.ids import EventId

if TYPE_CHECKING:
    from typing import TypeAlias

    from everlog.core.group import Group

    _Moment: TypeAlias = datetime
    _Hash: TypeAlias = bytes
    _Group: TypeAlias = Group | None
else:
    # In a stored event, nothing means: as its group has it. A reader never sees that.
    _Moment, _Hash = datetime | None, bytes | None
    _Group = None  # never decoded: it is set by the store that reads the event

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
    occurred_at: _Moment
    actor: str
    scope: str
    request_id: str
    causation_id: str
    correlation_id: str
    idempotency_key: str
    tags: Mapping[str, str]
    commitment: _Hash
    previous: _Hash


class Event(Header, frozen=True, array_like=True, gc=False, eq=False):
    """An immutable fact, portable between logs."""

    payload: dict[str, Any] = {}
    salt: bytes = b""
    signature: bytes = b""  # of its group, with the numbers of the group: see `everlog.core.codec.proof`
    path: tuple[bytes, ...] = ()  # to the root that the signature covers
    erased_by: str = ""  # the id of the event that allowed the erasure of payload and salt
    group: _Group = None  # what it was read with, for the fields that it leaves out

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self is other or values_of(self) == values_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other  # that of msgspec compares what is stored

    __hash__ = None  # type: ignore[assignment] # a payload is a dict

    def __reduce__(self) -> tuple[type[Event], tuple[Any, ...]]:
        return Event, values_of(self)

    @property
    def kind(self) -> str:
        """The kind of its stream: `workpackage` of `workpackage/WP03`."""
        return self.stream.partition("/")[0]

    @property
    def causal_order(self) -> tuple[int, str]:
        """The order that is the same on every node."""
        return (self.lamport, self.id)


_HEADER_COUNT, _ORIGIN = len(Header.__struct_fields__), Header.__struct_fields__.index("origin")

EVENT_FIELDS = Event.__struct_fields__[:-1]
"""The fields of an event. Its group is none of them."""


def _origin(event: Event) -> str:
    found: str = _stored_origin(event)
    return found if found or event.group is None else event.group.origin


def _occurred_at(event: Event) -> datetime:
    found: datetime | None = _stored_occurred_at(event)
    return found if found is not None or event.group is None else event.group.received_at  # type: ignore[return-value]


def _commitment(event: Event) -> bytes:
    found: bytes | None = _stored_commitment(event)
    return found if found is not None or event.group is None else event.group.link(event).commitment  # type: ignore[return-value]


def _previous(event: Event) -> bytes:
    found: bytes | None = _stored_previous(event)
    return found if found is not None or event.group is None else event.group.link(event).previous  # type: ignore[return-value]


def _signature(event: Event) -> bytes:
    found: bytes = _stored_signature(event)
    return found if found or event.group is None else event.group.proof


def _path(event: Event) -> tuple[bytes, ...]:
    found: tuple[bytes, ...] = _stored_path(event)
    if found or event.group is None or not event.group.signature or _stored_signature(event):
        return found
    return event.group.path(event)


# msgspec decodes into the slots of a struct directly. So a property in front of a slot costs a reader nothing until
# it asks for the field, and every function of msgspec still sees what is stored.
_stored_origin = Header.__dict__["origin"].__get__
_stored_occurred_at = Header.__dict__["occurred_at"].__get__
_stored_commitment = Header.__dict__["commitment"].__get__
_stored_previous = Header.__dict__["previous"].__get__
_stored_signature = Event.__dict__["signature"].__get__
_stored_path = Event.__dict__["path"].__get__
for _owner, _name, _getter in (
    (Header, "origin", _origin),
    (Header, "occurred_at", _occurred_at),
    (Header, "commitment", _commitment),
    (Header, "previous", _previous),
    (Event, "signature", _signature),
    (Event, "path", _path),
):
    setattr(Event, _name, property(_getter, _owner.__dict__[_name].__set__))  # `force_setattr` uses the setter


def values_of(event: Event, fields: tuple[str, ...] = EVENT_FIELDS) -> tuple[Any, ...]:
    """Return the values of `EVENT_FIELDS`, or of the first of them, computed where they are not stored."""
    stored = msgspec.structs.astuple(event)[: len(fields)]
    if event.group is None or (len(stored) <= _HEADER_COUNT and stored[_ORIGIN] and None not in stored):
        return stored  # nothing of the header is left to the group
    return tuple([getattr(event, name) for name in fields])


def whole(event: Event) -> Event:
    """Return an event that needs no group: with every field, for an encoder of msgspec or another process."""
    return event if event.group is None else Event(*values_of(event))


def imported_order(event: Event) -> tuple[int, str]:
    """Return the order of events of a program without a logical clock: by their time, then by their original ids."""
    return (microseconds(event.occurred_at), event.tags.get("was.event_id") or event.id)


class Recorded(msgspec.Struct, frozen=True, array_like=True, gc=False, eq=False):
    """A record: an event with its position in one log."""

    position: Position
    sequence: int
    received_us: int
    event: Event

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recorded):
            return NotImplemented
        if (self.position, self.sequence) != (other.position, other.sequence):
            return False
        return self.received_us == other.received_us and self.event == other.event

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    @property
    def received_at(self) -> datetime:
        return moment(self.received_us)


def _received_us(recorded: Recorded) -> int:
    found: int = _stored_received_us(recorded)
    group = recorded.event.group
    return found if found or group is None else group.received_us


_stored_received_us = Recorded.__dict__["received_us"].__get__
setattr(Recorded, "received_us", property(_received_us))  # noqa: B010 - mypy takes it for a field


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
    """The contiguous end of the chain of one origin: the last number with none missing before it, and its hash."""

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
    signature: bytes = b""  # of the group that it was in, which a purge leaves
    signed_with: tuple[int, int] = (0, 0)  # the first number and the count of that group


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
        return moment(self.purged_us)


def moment(us: int) -> datetime:
    """Return whole microseconds since 1970 as a moment."""
    return _EPOCH + timedelta(microseconds=us)


def microseconds(moment: datetime) -> int:
    """Return a moment as whole microseconds since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)
