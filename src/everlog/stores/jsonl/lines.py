"""One line of a day file: its bytes and their meaning. No other module knows the shape of a line.

A line is one JSON object in canonical form (RFC 8785), and a newline. There are three kinds; each takes one position:

    event   {"actor":"user:ada",…,"id":"01K…",…,"received_at":"2026-…Z",…}      the portable event with its names
    purged  {"purged":{"hash":…,"id":…,"lamport":…,"origin":…,"origin_seq":…,"previous":…,"purge":…,"stream":…}}
    purge   {"purge":{"actor":…,"id":…,"lamport":…,"purged_at":…,"reason":…,"scopes":[…],"stream":…}}

A purged line replaces the line of its event, so that the order of the lines stays the order of the positions.
Besides the members of the event, an event line may have these, which describe how it was recorded:

    received_at  when it was first recorded
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


# ---- events


# The names in alphabetical order, which is the canonical one: the encoder keeps the order of declaration.
class _Written(msgspec.Struct, omit_defaults=True, gc=False):
    actor: str
    batch: Batch | None = None
    causation_id: str = ""
    claims: dict[str, int] = {}
    commitment: bytes = b""
    correlation_id: str = ""
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
    version: int = 0
    via: str = ""


# The fields of `Event` in its order, so that one tuple converts to the other; then the local members.
class EventLine(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """An event line that was read."""

    id: EventId
    type: str
    version: Number
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
    commitment: bytes
    previous: bytes = b""
    payload: dict[str, Any] = {}
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""
    received_at: datetime
    via: str = ""
    batch: Batch | None = None
    claims: dict[str, Number] = {}
    xsum: str = ""

    def event(self) -> Event:
        return Event(*astuple(self)[:_EVENT_FIELDS])


_EVENT_FIELDS = len(EVENT_FIELDS)
assert EventLine.__struct_fields__[:_EVENT_FIELDS] == EVENT_FIELDS


# Only what a replay needs of a line: every member that is decoded costs time.
class _Replayed(msgspec.Struct, kw_only=True, gc=False):
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
    commitment: bytes
    previous: bytes = b""
    payload: dict[str, Any] = {}
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""


assert _Replayed.__struct_fields__ == EVENT_FIELDS


# The same for columns: members that need no decoding stay text.
class _Scanned(msgspec.Struct, kw_only=True, gc=False):
    id: str
    type: str
    version: int
    stream: str
    lamport: int
    origin: str
    origin_seq: int
    occurred_at: str
    actor: str
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: msgspec.Raw = msgspec.Raw(b"{}")
    commitment: bytes
    previous: bytes = b""
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""


assert _Scanned.__struct_fields__ == EVENT_FIELDS

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode_replayed = msgspec.json.Decoder(_Replayed).decode_lines
_decode_scanned = msgspec.json.Decoder(_Scanned).decode_lines
_decode_event_line = msgspec.json.Decoder(EventLine).decode


def event_line(
    encoded: Encoded,
    received_at: datetime,
    *,
    via: str = "",
    batch: Batch | None = None,
    claims: dict[str, int] | None = None,
) -> bytes:
    """Return the line of an event, with its newline."""
    event = encoded.event
    payload = encoded.payload
    return ended(
        _encode(
            _Written(
                event.actor,
                batch,
                event.causation_id,
                claims or {},
                event.commitment,
                event.correlation_id,
                event.id,
                event.idempotency_key,
                event.lamport,
                event.occurred_at,
                event.origin,
                event.origin_seq,
                event.path,
                msgspec.Raw(payload) if payload and payload != b"{}" else None,
                event.previous,
                received_at,
                event.request_id,
                event.salt,
                event.scope,
                event.signature,
                event.stream,
                dict(event.tags),
                event.type,
                event.version,
                via if via != event.origin else "",
            )
        )
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


def refuse_changed(data: bytes) -> None:
    if data[-_CRC_BYTES:] != _CRC % zlib.crc32(data[:-_CRC_BYTES]):
        raise BadLine("its checksum does not match: the disk or an editor changed it")


def are_unchanged(lines: list[bytes]) -> bool:
    """Return whether the checksum of every line matches. A line of another program has none."""
    for line in lines:
        if line[-_CRC_BYTES:] != _CRC % zlib.crc32(line[:-_CRC_BYTES]):
            is_of_ours = b'"commitment"' in line or not seed_shape.looks_like_it(line)
            if is_of_ours:
                return False
    return True


# ---- reading


def read_line(data: bytes) -> Line:
    """Decode a line, without its newline. Raise BadLine if it cannot be read."""
    return _read(data)[0]


def read_marked_line(data: bytes) -> tuple[Line, Batch | None]:
    """Decode a line and its place in its write."""
    return _read(data)


def _read(data: bytes) -> tuple[Line, Batch | None]:
    if data.endswith(b'"}\r') and are_unchanged([data[:-1]]):
        raise BadLine(CRLF)
    try:
        line = _decode_event_line(data)
        refuse_changed(data)
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


def _seed_line(data: bytes) -> EventLine:
    try:
        event = seed_shape.read_seed_event(data)
    except (EverlogError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"it has the shape of another program's event, but {error}") from error
    if not 0 <= event.lamport <= LAMPORT_MAX:
        raise BadLine(f"its clock value is {event.lamport}, and values from 0 to {LAMPORT_MAX} are possible")
    fields = dict(zip(EVENT_FIELDS, values_of(event), strict=True))
    return EventLine(**fields, received_at=event.occurred_at)


def read_events(data: bytes) -> list[Event]:
    """Decode the events of many lines at once. Raise BadLine if one of them is not an event line of everlog."""
    try:
        return [Event(*astuple(line)) for line in _decode_replayed(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(str(error)) from error


def scan_events(data: bytes) -> list[tuple[Any, ...]]:
    """As `read_events`, but return the values of each event in the order of `Event`; times, tags and payload as
    text."""
    try:
        return [astuple(line) for line in _decode_scanned(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(str(error)) from error


def is_whole_object(data: bytes) -> bool:
    """Return whether the bytes begin with a complete JSON object, which no torn write can leave."""
    try:
        _, end = json.JSONDecoder().raw_decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return end > 0
