"""One line of a day file: its bytes and their meaning. No other module knows the shape of a line.

A line is one JSON object in canonical form (RFC 8785), and a newline. There are three kinds; each takes one position:

    event   {"actor":"user:ada",…,"id":"01K…",…,"occurred_at":"2026-…Z",…}      the portable event with its names
    purged  {"purged":{"hash":…,"id":…,"lamport":…,"origin":…,"origin_seq":…,"previous":…,"purge":…,"stream":…}}
    purge   {"purge":{"actor":…,"id":…,"lamport":…,"purged_at":…,"reason":…,"scopes":[…],"stream":…}}

A purged line replaces the line of its event, so that the order of the lines stays the order of the positions.
A line leaves out what follows from its other members, and can be verified alone:

    commitment   follows from payload and salt; it is there if the payload was erased
    version      is 1 if it is left out

Besides the members of the event, an event line may have these, which describe how it was recorded:

    received_at  when it was first recorded; if it is left out, when it occurred
    group        {"count":…,"first":…,"signature":…}: the signature of `count` events of its origin, which were
                 recorded together. It is on the line of the last of them, purged or not.
    via          the origin of the log that wrote the line, if that is not the event's own origin
    batch        [k, n]: line k of a write of n lines, so that a torn write is cut as a whole
    claims       {"<base64 of 16 bytes>": count}: requests whose first event this is

The last member of every line is `xsum`: the CRC-32 of the bytes before it, in hexadecimal. It shows that the disk or
an editor changed a line, also in the parts that no hash covers.

Lines of the seed (`event_id`, `lamport_clock`, …) are read, too: see `seed_shape`.
"""

from __future__ import annotations

import json
import zlib
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import astuple

from everlog.core.canonical import canonical
from everlog.core.clock import LAMPORT_MAX
from everlog.core.codec import HEADER_FIELDS, commitment, encode_header, header_hash, read_payload
from everlog.core.event import EVENT_FIELDS, Event, values_of
from everlog.core.ids import EventId
from everlog.errors import EverlogError
from everlog.stores.contract import Encoded
from everlog.stores.jsonl import seed_shape

Batch = tuple[int, int]
Number = Annotated[int, msgspec.Meta(ge=0, le=LAMPORT_MAX)]
"""A number in a line. Greater JSON numbers are not exact, and a clock could not advance (F58)."""

HASH_FORMAT = 2

CONFLICT_MARKERS = (b"<<<<<<<", b"=======", b">>>>>>>", b"|||||||")


CRLF = "it ends with a carriage return: git or an editor has changed the line ends to those of Windows (CRLF)"


OLD_LINE = "it is in format 1: run everlog upgrade in the branch or copy that it came from, then merge again"
_OLD_CRC = b',"whole":"'


class BadLine(Exception):
    """A line that cannot be read; the text is the reason."""


class SignedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """The signature of a group, which is stored once. Names are in alphabetical order."""

    count: Number
    first: Number
    signature: bytes


# ---- events


# The names in alphabetical order, which is the canonical one: the encoder keeps the order of declaration.
class _Written(msgspec.Struct, omit_defaults=True, gc=False):
    actor: str
    batch: Batch | None = None
    causation_id: str = ""
    claims: dict[str, int] = {}
    commitment: bytes = b""
    correlation_id: str = ""
    erased_by: str = ""
    group: SignedGroup | None = None
    id: str = ""
    idempotency_key: str = ""
    lamport: int = 0
    occurred_at: datetime | None = None
    origin: str = ""
    origin_seq: int = 0
    path: tuple[bytes, ...] = ()
    payload: msgspec.Raw | None = None
    previous: bytes = b""
    received_at: datetime | None = None
    request_id: str = ""
    salt: bytes = b""
    scope: str = ""
    signature: bytes = b""
    stream: str = ""
    tags: dict[str, str] = {}
    type: str = ""
    version: int = 1
    via: str = ""


# The fields of `Event` in its order, so that one tuple converts to the other; then the local members.
class EventLine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event line that was read."""

    id: EventId
    type: str
    version: Number = 1
    stream: str
    lamport: Number
    origin: str
    origin_seq: Number
    occurred_at: datetime
    actor: str
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: dict[str, str] = {}
    commitment: bytes | None = None
    previous: bytes = b""
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""
    received_at: datetime | None = None
    via: str = ""
    batch: Batch | None = None
    claims: dict[str, Number] = {}
    group: SignedGroup | None = None
    xsum: str = ""

    @property
    def arrived_at(self) -> datetime:
        return self.received_at or self.occurred_at

    @property
    def checksum(self) -> int:
        """Its checksum, as the index has it."""
        return signed(int(self.xsum, 16))

    def event(self) -> Event:
        values = list(astuple(self)[:_EVENT_FIELDS])
        values[_COMMITMENT] = self.committed()
        values[_PAYLOAD] = read_payload(bytes(self.payload))
        return Event(*values)

    def committed(self) -> bytes:
        """Return the commitment to the payload."""
        return commitment(self.salt, bytes(self.payload)) if self.commitment is None else self.commitment

    def hash(self) -> bytes:
        """Return the hash of the event, computed from this line alone."""
        values = list(astuple(self)[:_HEADER_LENGTH])
        values[_COMMITMENT] = self.committed()
        return header_hash(encode_header(values))


_EVENT_FIELDS = len(EVENT_FIELDS)
_HEADER_LENGTH = len(HEADER_FIELDS)
_COMMITMENT = EVENT_FIELDS.index("commitment")
_PAYLOAD = EVENT_FIELDS.index("payload")
_SIGNATURE = EVENT_FIELDS.index("signature")
_PATH = EVENT_FIELDS.index("path")
assert EventLine.__struct_fields__[:_EVENT_FIELDS] == EVENT_FIELDS


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_event_line = msgspec.json.Decoder(EventLine).decode


def event_line(
    encoded: Encoded,
    received_at: datetime,
    *,
    via: str = "",
    batch: Batch | None = None,
    claims: dict[str, int] | None = None,
    group: SignedGroup | None = None,
    signed: bool = False,
    own: str = "",
) -> bytes:
    """Return the line of an event, with its newline. `signed`: its signature is that of a group of this write.

    The commitments of events of the `own` origin are known to be right: this log has just computed them.
    """
    event = encoded.event
    payload = encoded.payload
    origin, occurred_at, salt = event.origin, event.occurred_at, event.salt
    signature, path = (b"", ()) if signed else astuple(event)[_SIGNATURE : _PATH + 1]
    follows = salt and (origin == own or commitment(salt, payload) == event.commitment)
    return ended(
        _encode(
            _Written(
                event.actor,
                batch,
                event.causation_id,
                claims or {},
                b"" if follows else event.commitment,
                event.correlation_id,
                event.erased_by,
                group,
                event.id,
                event.idempotency_key,
                event.lamport,
                occurred_at,
                origin,
                event.origin_seq,
                path,
                msgspec.Raw(payload) if payload and payload != b"{}" else None,
                event.previous,
                None if received_at == occurred_at else received_at,
                event.request_id,
                salt,
                event.scope,
                signature,
                event.stream,
                dict(event.tags),
                event.type,
                event.version,
                via if via != origin else "",
            )
        )
    )


def erased_line(line: EventLine, by: str) -> bytes:
    """Return the line of an event without its payload and salt."""
    values = dict(zip(EVENT_FIELDS, astuple(line)[:_EVENT_FIELDS], strict=True))
    values.update(commitment=line.committed(), payload={}, salt=b"", erased_by=by)
    encoded = Encoded(Event(**values), b"", b"", b"")
    return event_line(
        encoded,
        line.arrived_at,
        via=line.via or line.origin,
        batch=line.batch,
        claims=line.claims,
        group=line.group,
    )


# ---- purges


class PurgedLine(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """The line that replaces a purged event. Names are in alphabetical order."""

    hash: bytes
    id: EventId
    origin: str
    origin_seq: Number
    previous: bytes
    purge: str  # the id of the purge line
    stream: str = ""  # empty in a copy of another store: see the purge's line
    sequence: Number = 0  # in such a copy: its sequence in the stream
    claims: dict[str, Number] = {}
    via: str = ""
    lamport: Number = 0  # the event's
    hash_format: Number = HASH_FORMAT  # 1 if it was purged in format 1: its hash is of that format
    group: SignedGroup | None = None  # the signature that its line had


class PurgeLine(msgspec.Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """The record of a purge. The purged lines that name it are the events that it removed."""

    actor: str
    id: str
    origin: str  # the log that purged
    purged_at: datetime
    reason: str
    scopes: tuple[str, ...]
    stream: str
    sequence: Number = 0  # in a copy of another store: the stream's last sequence
    lamport: Number = 0  # the greatest before it: a purge comes after everything it knew


class _Marked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    batch: Batch | None = None
    purge: PurgeLine | None = None
    purged: PurgedLine | None = None
    xsum: str = ""


_decode_marked = msgspec.json.Decoder(_Marked).decode

Line = EventLine | PurgedLine | PurgeLine


def purged_line(line: PurgedLine, *, batch: Batch | None = None) -> bytes:
    members = {name: value for name, value in msgspec.to_builtins(line).items() if value or name == "previous"}
    if line.hash_format == HASH_FORMAT:
        del members["hash_format"]
    return _marked("purged", members, batch)


_MAY_LACK = ("lamport", "sequence")


def purge_line(line: PurgeLine, *, batch: Batch | None = None) -> bytes:
    members = {name: value for name, value in msgspec.to_builtins(line).items() if value or name not in _MAY_LACK}
    return _marked("purge", members, batch)


def _marked(kind: str, members: dict[str, Any], batch: Batch | None) -> bytes:
    return ended(canonical({kind: members} if batch is None else {"batch": list(batch), kind: members}))


def writer_of(line: Line) -> str:
    """Return the origin of the log that wrote the line."""
    return line.origin if isinstance(line, PurgeLine) else line.via or line.origin


def causal_order(line: Line) -> tuple[int, int, str]:
    """Return the sort key of a line, the same in every clone. A purged line sorts as its event did, and a purge after
    everything that it knew."""
    return line.lamport, 1 if isinstance(line, PurgeLine) else 0, line.id


# ---- the last member

_CRC = b',"xsum":"%08x"}'
_CRC_BYTES = len(_CRC % 0)


def ended(data: bytes) -> bytes:
    """Return the object with its last member and the newline."""
    before = data[:-1]
    return before + _CRC % zlib.crc32(before) + b"\n"


def checksum_of(line: bytes) -> str:
    """Return the checksum of a line that ends with its newline."""
    return line[-11:-3].decode()


def signed(checksum: int) -> int:
    """Return a checksum as a signed number, which takes less room in the index."""
    return checksum - (1 << 32) if checksum >> 31 else checksum


def refuse_changed(data: bytes) -> None:
    if data[-_CRC_BYTES:] != _CRC % zlib.crc32(data[:-_CRC_BYTES]):
        raise BadLine("its checksum does not match: the disk or an editor changed it")


def true_checksum(line: bytes) -> int | None:
    """Return the checksum of a line without its newline, as the index has it, or None if it does not match. A line of
    another program has none: then it is that of the whole line."""
    checksum = zlib.crc32(line[:-_CRC_BYTES])
    if line[-_CRC_BYTES:] != _CRC % checksum:
        if b'"commitment"' in line or not seed_shape.looks_like_it(line):
            return None
        checksum = zlib.crc32(line)
    return signed(checksum)


# ---- reading


def read_line(data: bytes) -> Line:
    """Decode a line, without its newline. Raise BadLine if it cannot be read."""
    return _read(data)[0]


def read_marked_line(data: bytes) -> tuple[Line, Batch | None]:
    """Decode a line and its place in its write."""
    return _read(data)


def _read(data: bytes) -> tuple[Line, Batch | None]:
    if data.endswith(b'"}\r') and true_checksum(data[:-1]) is not None:
        raise BadLine(CRLF)
    try:
        line = _decode_event_line(data)
        refuse_changed(data)
        _refuse_incomplete(line)
        return line, line.batch
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error)
    except RecursionError as error:
        raise BadLine("it is nested too deep") from error
    if data[-len(_OLD_CRC) - 10 :].startswith(_OLD_CRC):
        raise BadLine(OLD_LINE)
    if data.startswith((b'{"purge', b'{"batch')):
        try:
            marked = _decode_marked(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadLine(str(error)) from error
        if (marked.purge is None) == (marked.purged is None):
            raise BadLine("it is neither an event nor a purge")
        refuse_changed(data)
        found: Line | None = marked.purge if marked.purge is not None else marked.purged
        assert found is not None
        return found, marked.batch
    if data.startswith(CONFLICT_MARKERS):
        raise BadLine("it is a conflict marker of git: delete this line; the lines of both sides stay")
    if seed_shape.looks_like_it(data):
        return _seed_line(data), None
    if not data.strip():
        raise BadLine("it is empty")
    raise BadLine(why)


def _refuse_incomplete(line: EventLine) -> None:
    if not line.salt and line.commitment is None:
        raise BadLine("it has neither a salt nor a commitment")
    if not bytes(line.payload).startswith(b"{"):
        raise BadLine("its payload is not an object")


def _seed_line(data: bytes) -> EventLine:
    try:
        event = seed_shape.read_seed_event(data)
        payload = canonical(event.payload)
    except (EverlogError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"it has the shape of another program's event, but {error}") from error
    if not 0 <= event.lamport <= LAMPORT_MAX:
        raise BadLine(f"its clock value is {event.lamport}, and values from 0 to {LAMPORT_MAX} are possible")
    fields = dict(zip(EVENT_FIELDS, values_of(event), strict=True))
    fields["payload"] = msgspec.Raw(payload)
    return EventLine(**fields, xsum=f"{zlib.crc32(data):08x}")


def event_line_of(data: bytes) -> EventLine:
    """Decode a line that must be an event."""
    line = read_line(data)
    if not isinstance(line, EventLine):
        raise BadLine("it is not an event")
    return line


def is_whole_object(data: bytes) -> bool:
    """Return whether the bytes begin with a complete JSON object, which no torn write can leave."""
    try:
        _, end = json.JSONDecoder().raw_decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return end > 0
