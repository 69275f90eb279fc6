"""Decode many event lines in one call: as events for a replay, or as values for a reader of columns and bytes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import astuple

from everlog.core.codec import commitment, encode_header
from everlog.core.event import EVENT_FIELDS, Event
from everlog.core.group import Group
from everlog.core.ids import EventId
from everlog.stores.jsonl.lines import BadLine, EventLine, event_line_of


# Only what a replay needs of a line: every member that is decoded costs time.
class _Replayed(msgspec.Struct, kw_only=True, gc=False):
    id: EventId
    type: str
    version: int = 1
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
    commitment: bytes | None = None
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
    version: int = 1
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
    commitment: bytes | None = None
    previous: bytes = b""
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""


assert _Scanned.__struct_fields__ == EVENT_FIELDS

_decode_replayed = msgspec.json.Decoder(_Replayed).decode_lines
_decode_scanned = msgspec.json.Decoder(_Scanned).decode_lines
_OCCURRED_AT, _TAGS, _COMMITMENT, _PAYLOAD, _SALT = map(
    EVENT_FIELDS.index, ("occurred_at", "tags", "commitment", "payload", "salt")
)
_EVENT_FIELDS = len(EVENT_FIELDS)


def read_events(data: bytes, group: Group | None = None) -> list[Event]:
    """Decode the events of many lines at once. Raise BadLine if one of them is not an event line of everlog.

    The group computes what the lines leave out.
    """
    try:
        return [Event(*astuple(line), group) for line in _decode_replayed(data)]  # type: ignore[call-arg]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(str(error)) from error


Values = list[Any]
"""The values of an event in the order of `Event`: times, tags and the payload as text, an erased payload empty, and
every commitment computed."""


def scan_events(data: bytes) -> list[Values]:
    """Decode the events of many lines at once. Raise BadLine if one of them is not an event line of everlog."""
    try:
        found = [list(astuple(line)) for line in _decode_scanned(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(str(error)) from error
    for values in found:
        salt = values[_SALT]
        payload = values[_PAYLOAD] = bytes(values[_PAYLOAD]) if salt else b""
        if values[_COMMITMENT] is None:
            values[_COMMITMENT] = commitment(salt, payload)
    return found


def scan_lines(lines: list[bytes]) -> list[Values]:
    """As `scan_events`, also for lines of another program. Raise BadLine if one of them is not an event."""
    try:
        found = scan_events(b"\n".join(lines))
    except BadLine:
        found = [_values_of(event_line_of(line)) for line in lines]
    if len(found) != len(lines):
        raise BadLine("a line is empty")
    return found


def _values_of(line: EventLine) -> Values:
    values = list(astuple(line)[:_EVENT_FIELDS])
    values[_OCCURRED_AT] = encode_header(line.occurred_at).strip(b'"').decode()
    values[_TAGS] = msgspec.Raw(encode_header(line.tags))
    values[_COMMITMENT] = line.committed()
    values[_PAYLOAD] = bytes(line.payload) if line.salt else b""
    return values
