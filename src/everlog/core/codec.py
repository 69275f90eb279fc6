"""The bytes of an event; no other module knows them.

Stored, an event is two pieces of canonical JSON (RFC 8785):

    header   ["01K…","workpackage.moved",2,"workpackage/WP03",41,…]   an array, in the order of `Header`
    payload  {"came_from":"planned","went_to":"doing"}                an object

The header's bytes are the bytes that are hashed, chained and signed; the payload's are the bytes that the header
commits to. For people and other programs, the same event is one JSON object with names (`event_object`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import force_setattr

from everlog.core.canonical import canonical
from everlog.core.event import EVENT_FIELDS, Event, Header, Position, Purge, Recorded, values_of
from everlog.core.ids import EventId
from everlog.errors import CommitmentMismatch, Damaged, NotCanonical

HEADER_FIELDS = Header.__struct_fields__
_HEADER_LENGTH = len(HEADER_FIELDS)

# "deterministic" sorts the tags, the one mapping in a header; their keys are ASCII, so this is RFC 8785's order.
# An array is an array: the fields of a header in their order, as a tuple, give the same bytes as a `Header`.
encode_header = msgspec.json.Encoder(order="deterministic").encode
_decode_event = msgspec.json.Decoder(Event).decode
_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode
_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_payloads = msgspec.json.Decoder(list[dict[str, Any]]).decode
_sha256 = hashlib.sha256

SALT_BYTES = 16
SIGNATURE_BYTES = 64
_FIRST_BYTES, _COUNT_BYTES = 8, 4


class Packed(msgspec.Struct, frozen=True, gc=False):
    """A record as its stored bytes, for code that must not interpret them: verify, copy, export."""

    position: Position
    sequence: int
    received_us: int
    header: bytes
    payload: bytes
    salt: bytes
    signature: bytes = b""  # of its group, 64 bytes, if `signed_with` is set; else what the event carries
    path: tuple[bytes, ...] = ()
    erased_by: str = ""
    signed_with: tuple[int, int] = (0, 0)  # if the signature is that of its group: the group's first number and count

    @property
    def proof(self) -> bytes:
        """What the event carries as its signature."""
        return proof(self.signature, self.signed_with) if self.signed_with[0] else self.signature


def header_bytes(event: Header) -> bytes:
    """Return the bytes that are hashed and signed."""
    if isinstance(event, Event):
        return encode_header(
            values_of(event, HEADER_FIELDS)
        )  # and not the path, which takes the hashes of the whole group
    return encode_header(event)


def header_hash(data: bytes) -> bytes:
    """Return the identity of an event: the next event of its origin carries it as `previous`.

    The zero byte makes it the leaf hash of RFC 9162, so that a chain and a tree share one hash per event.
    """
    return _sha256(b"\0" + data).digest()


def commitment(salt: bytes, payload: bytes) -> bytes:
    """Return the commitment to a payload: it proves the payload without revealing it."""
    return _sha256(salt + payload).digest()


def purge_bytes(purge: Purge) -> bytes:
    """Return the canonical bytes of the record of a purge: an array that no header of an event can be.

    Its position is that of its leaf. What it removed is left out: in a log in git, that may still grow.
    """
    return canonical(["purge", purge.stream, list(purge.scopes), purge.actor, purge.reason, purge.purged_us])


def purge_hash(purge: Purge) -> bytes:
    """Return the leaf of the position that a purge reserved."""
    return header_hash(purge_bytes(purge))


def proof(signature: bytes, signed_with: tuple[int, int]) -> bytes:
    """Return the signature that an event of a signed group carries: it says which events the group had.

    64 bytes of the group's signature, 8 of its first number, 4 of its count. With its path an event proves itself.
    """
    first, count = signed_with
    return signature + first.to_bytes(_FIRST_BYTES, "big") + count.to_bytes(_COUNT_BYTES, "big")


def split_proof(data: bytes) -> tuple[bytes, int, int]:
    """Return the signature, the first number and the count of a proof; nothing, 0 and 0 if it is none."""
    if len(data) != SIGNATURE_BYTES + _FIRST_BYTES + _COUNT_BYTES:
        return b"", 0, 0
    numbers = data[SIGNATURE_BYTES:]
    return (
        data[:SIGNATURE_BYTES],
        int.from_bytes(numbers[:_FIRST_BYTES], "big"),
        int.from_bytes(numbers[_FIRST_BYTES:], "big"),
    )


def payload_bytes(payload: Mapping[str, Any]) -> bytes:
    return canonical(payload)


def read_payload(data: bytes | str) -> dict[str, Any]:
    return _decode_payload(data)


def assemble(
    header: bytes | str,
    payload: bytes | str,
    salt: bytes,
    signature: bytes = b"",
    path: tuple[bytes, ...] = (),
    erased_by: str = "",
) -> Event:
    """Return the event of stored bytes."""
    event = _decode_event(header)
    if event.commitment is None or event.previous is None or event.occurred_at is None:
        raise msgspec.ValidationError("a header has a time, a commitment and the hash before it")
    # The two pieces are decoded separately; building all fields a second time would cost as much as decoding.
    force_setattr(event, "payload", _decode_payload(payload) if payload else {})
    force_setattr(event, "salt", salt)
    if signature:
        force_setattr(event, "signature", signature)
        force_setattr(event, "path", path)
    if erased_by:
        force_setattr(event, "erased_by", erased_by)
    return event


# Like `Header`, but the time and the tags stay text.
_TakenApart = tuple[
    str, str, int, str, int, str, int, str, str, str, str, str, str, str, msgspec.Raw, bytes, bytes
]  # fmt: skip
_decode_headers = msgspec.json.Decoder(list[_TakenApart]).decode


def header_columns(headers: Sequence[bytes] | Sequence[str]) -> list[Sequence[Any]]:
    """Return many headers as columns, in the order of `Header`; times and tags stay text.

    This costs half as much as decoding the events one by one.
    """
    if not headers:
        return [()] * _HEADER_LENGTH
    rows = _decode_headers(_array(headers))
    return list(zip(*rows, strict=True))


def _array(texts: Sequence[bytes] | Sequence[str]) -> bytes | str:
    if isinstance(texts[0], str):
        return "[" + ",".join(texts) + "]"  # type: ignore[arg-type]
    return b"[" + b",".join(texts) + b"]"  # type: ignore[arg-type]


def unpack(packed: Packed) -> Recorded:
    """Return the record of stored bytes; raise Damaged, with the position, if they are not a record."""
    try:
        event = assemble(packed.header, packed.payload, packed.salt, packed.proof, packed.path, packed.erased_by)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(
            f"the event at position {packed.position} cannot be read",
            why=str(error),
            hint="everlog verify",
            position=packed.position,
            after=packed.position,
        ) from error
    return Recorded(packed.position, packed.sequence, packed.received_us, event)


def unpack_all(slots: Sequence[Packed]) -> list[Recorded]:
    """Return the records of many slots. In one call they cost half as much as one by one."""
    try:
        events = _decode_events(_array([slot.header for slot in slots])) if slots else []
        payloads = _decode_payloads(_array([slot.payload or b"{}" for slot in slots])) if slots else []
    except (msgspec.DecodeError, UnicodeDecodeError):
        events, payloads = [], []
    if len(events) != len(slots) or len(payloads) != len(slots):
        return [unpack(slot) for slot in slots]  # which names the one that cannot be read
    found = []
    for slot, event, payload in zip(slots, events, payloads, strict=True):
        if event.commitment is None or event.previous is None or event.occurred_at is None or slot.signature:
            found.append(unpack(slot))
            continue
        force_setattr(event, "payload", payload)
        force_setattr(event, "salt", slot.salt)
        if slot.erased_by:
            force_setattr(event, "erased_by", slot.erased_by)
        found.append(Recorded(slot.position, slot.sequence, slot.received_us, event))
    return found


def pack(recorded: Recorded) -> Packed:
    """Return the stored bytes of a record."""
    event = recorded.event
    payload = canonical(event.payload) if event.salt else b""
    return Packed(
        recorded.position,
        recorded.sequence,
        recorded.received_us,
        header_bytes(event),
        payload,
        event.salt,
        event.signature,
        event.path,
        event.erased_by,
    )


def refuse_wrong_commitment(event: Event) -> None:
    """Refuse an event from outside whose payload does not match the commitment in its header."""
    # Without a salt there is nothing to check: the payload of such an event was erased.
    erased = not event.salt and not event.payload
    if not erased and (not event.salt or commitment(event.salt, canonical(event.payload)) != event.commitment):
        raise CommitmentMismatch(
            f"the payload of event {event.id} is not the one that its header commits to",
            why="the payload, the salt or the header was changed after the event was recorded",
            hint="fetch the event again from its origin",
            id=event.id,
        )


# ---- MessagePack: the same event as one array, payload included

_pack_event = msgspec.msgpack.Encoder(order="sorted").encode
_unpack_event = msgspec.msgpack.Decoder(Event).decode


def to_msgpack(event: Event) -> bytes:
    return _pack_event(values_of(event))


def from_msgpack(data: bytes) -> Event:
    try:
        event = _unpack_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotCanonical("$", f"it is not an event in MessagePack: {error}") from error
    if event.commitment is None or event.previous is None or event.occurred_at is None:
        raise NotCanonical("$", "it is not an event in MessagePack: a time or a hash is missing")
    canonical(event.payload)  # refuses what has no JSON form: extension types, bytes, keys that are not strings
    return event


# ---- JSON with names, for people and other programs


class EventObject(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The JSON object of one event. Bytes are base64, and empty fields except the payload are left out."""

    id: EventId
    type: str
    version: int
    stream: str
    lamport: int
    origin: str
    origin_seq: int
    occurred_at: datetime
    actor: str
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: dict[str, str] = {}
    payload: dict[str, Any] = {}
    salt: bytes = b""
    commitment: bytes
    previous: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""


def event_object(event: Event) -> dict[str, Any]:
    """Return the event as a JSON-ready dict with names."""
    fields = dict(zip(EVENT_FIELDS, values_of(event), strict=True))
    found: dict[str, Any] = msgspec.to_builtins(EventObject(**fields))
    if event.salt and not event.payload:  # without a salt the payload was erased, and is not known
        found["payload"] = {}
    return found


def recorded_object(recorded: Recorded) -> dict[str, Any]:
    """Return the record as a JSON-ready dict: its position first, then the event."""
    return {
        "position": recorded.position,
        "sequence": recorded.sequence,
        "received_at": msgspec.to_builtins(recorded.received_at),
        **event_object(recorded.event),
    }


def event_from_object(found: Mapping[str, Any]) -> Event:
    """Return the event of its JSON object, with or without its position in a log; refuse anything else."""
    named = {name: value for name, value in found.items() if name not in _PLACE}
    try:
        known = msgspec.convert(named, EventObject)
    except msgspec.ValidationError as error:
        raise NotCanonical("$", f"it is not an event: {error}") from error
    canonical(known.payload)
    return Event(*[getattr(known, name) for name in EVENT_FIELDS])


_PLACE = frozenset(("position", "sequence", "received_at"))
