"""A frame: one group of events under one hash. A write is one frame, or several that count together or not at all.

    0        4                4 + length   36 + length
    | length | MessagePack    | SHA-256    |

The MessagePack is an array whose first two elements show where the frame belongs: the mark of its log and segment,
and its own offset. So a frame that was moved, repeated or taken from another file is damage although its hash is
right.

    mark, at, fence, clock, batch, facts, records, rest (left out when there is nothing else)

`batch` is null for a write of one frame. In a larger write it is two numbers: how many bytes of the write lie before
this frame, and how many of its frames follow. `facts` is what the records share (`everlog.core.group.GroupFacts`), or
null. A record leaves out what follows from the facts: one call decodes a whole frame into the structs that a reader
gets, and the group computes the rest when it is asked for. The bytes that are hashed and signed are encoded from
them; an event that would not give its bytes back is never written.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from everlog.core.canonical import canonical_all
from everlog.core.chain import Chain
from everlog.core.event import Position, Purge, Purged, Recorded
from everlog.core.group import GroupFacts, StoredEvent
from everlog.errors import EventTooLarge
from everlog.stores.contract import Erasure

LENGTH = struct.Struct(">I")
HASH_BYTES = 32
AROUND_BYTES = LENGTH.size + HASH_BYTES
BODY_BYTES_MAX = 2**32 - 1
SECTOR_BYTES = 512
_LONG_NONCE = 2**16

COMMIT, CLOSED, PURGING, SWEPT = 0, 1, 2, 3
"""What a frame is: a write, a clean close, a write whose purged or erased bytes are still stored, the note that they
are removed."""

SIGNS = (b"\x97\xce", b"\x98\xce")
"""How the MessagePack of a frame begins: an array of 7 or 8, and its mark."""

_sha256 = hashlib.sha256


class Rest(msgspec.Struct, frozen=True, array_like=True):
    """The parts of a frame that most writes do not have. In a write of several frames the last one has them."""

    kind: int = COMMIT
    before: Position = Position(0)  # the head before and after, where the records do not show it
    head: Position = Position(0)
    claim_names: bytes = b""  # 16 bytes each
    claim_places: tuple[int, ...] = ()  # two each: first position, less the head before the frame; count
    notes: dict[str, tuple[str | None, int | None]] = {}
    purges: tuple[Purge, ...] = ()
    purged: tuple[Purged, ...] = ()
    erased: tuple[Erasure, ...] = ()
    chains: dict[str, Chain] = {}  # after the write, where its events alone do not show them (`index.chains`)
    nonce: int = 0  # any number, so that a torn write and a flipped bit differ (`encode_frame`)


NOTHING_ELSE = Rest()
_NOTHING = astuple(NOTHING_ELSE)


class Frame(msgspec.Struct, frozen=True, array_like=True):
    mark: int
    at: int
    fence: int
    clock: int
    batch: tuple[int, int] | None
    facts: GroupFacts | None
    records: list[Recorded]
    rest: Rest = NOTHING_ELSE

    @property
    def before(self) -> Position:
        """The head before this frame."""
        if self.rest.head or not self.records:
            return self.rest.before
        return Position(self.records[0].position - 1)

    @property
    def head(self) -> Position:
        """The head after it."""
        return self.rest.head or (self.records[-1].position if self.records else self.rest.head)

    @property
    def write_at(self) -> int:
        """The offset of the first frame of its write."""
        return self.at if self.batch is None else self.at - self.batch[0]

    @property
    def is_last(self) -> bool:
        """Whether its write is complete with it."""
        return self.batch is None or not self.batch[1]


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class RawFrame(msgspec.Struct, frozen=True, array_like=True):
    """A frame whose records are still bytes: skipping a thousand costs less than decoding ten."""

    mark: int
    at: int
    fence: int
    clock: int
    batch: tuple[int, int] | None
    facts: GroupFacts | None
    records: list[msgspec.Raw]
    rest: Rest = NOTHING_ELSE

    def with_records(self, records: list[Recorded]) -> Frame:
        """Return the frame with some of its records. It keeps the positions that it covers."""
        rest = self.rest
        if not rest.head and self.records:
            before = Position(position_of(self.records[0]) - 1)
            rest = replace(rest, before=before, head=position_of(self.records[-1]))
        return Frame(self.mark, self.at, self.fence, self.clock, self.batch, self.facts, records, rest)


class _Place(msgspec.Struct, array_like=True, gc=False):
    position: Position


class _Id(msgspec.Struct, array_like=True, gc=False):
    id: str


class _Identified(msgspec.Struct, array_like=True, gc=False):
    position: int
    sequence: int
    received_us: int
    event: _Id


class _Identifying(msgspec.Struct, array_like=True, gc=False):
    """A frame of which nothing but the ids is decoded."""

    mark: int
    at: int
    fence: int
    clock: int
    batch: msgspec.Raw
    facts: msgspec.Raw
    records: list[_Identified]


decode_raw = msgspec.msgpack.Decoder(RawFrame).decode
decode_record = msgspec.msgpack.Decoder(Recorded).decode
_decode_place = msgspec.msgpack.Decoder(_Place).decode
_decode_ids = msgspec.msgpack.Decoder(_Identifying).decode


def position_of(record: msgspec.Raw | bytes) -> Position:
    """Return the position of a record that is still bytes."""
    return _decode_place(record).position


def ids_of(body: memoryview | bytes) -> list[str]:
    """Return the ids of the events in the body of a frame."""
    return [record.event.id for record in _decode_ids(body).records]


def mark_of(log_id: str, number: int) -> int:
    """Return the mark of a log's segment: 32 bits, the highest set, so that it always takes five bytes."""
    digest = _sha256(f"{log_id} {number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") | 0x8000_0000


def enclose(body: bytes) -> bytes:
    """Length, body and hash."""
    if len(body) > BODY_BYTES_MAX:
        raise EventTooLarge(
            f"one group of a write has {len(body):,} bytes",
            why="a group is one frame, and a frame's length has four bytes",
            hint="append it in several batches",
        )
    return b"".join((LENGTH.pack(len(body)), body, _sha256(body).digest()))


def encode_frame(
    mark: int,
    at: int,
    fence: int,
    clock: int,
    facts: GroupFacts | None,
    records: Sequence[Any],
    rest: Rest | None = None,
    *,
    batch: tuple[int, int] | None = None,
) -> bytes:
    """Return the bytes of a frame, such that a flipped bit never looks like a torn write, or the other way round.

    Its last byte is neither zero, which would look like space that was not written, nor one that a single flipped bit
    makes zero. And the next frame's length does not begin in the last four bytes of a sector: there the first bytes
    of a length, usually zeros, would be alone in a sector, which looks the same written and unwritten.
    """
    fields = (mark, at, fence, clock, batch, facts, records)
    data = enclose(_encode(fields if rest is None else (*fields, _trimmed(rest))))
    ends_late = (at + len(data)) % SECTOR_BYTES >= SECTOR_BYTES - LENGTH.size
    if ends_late or data[-1].bit_count() < 2:
        nonce = 0 if rest is None else rest.nonce
        # Other numbers give other hashes; a number of five bytes also moves the end, by four bytes or more.
        rest = replace(rest or NOTHING_ELSE, nonce=(max(nonce, _LONG_NONCE) if ends_late else nonce) + 1)
        return encode_frame(mark, at, fence, clock, facts, records, rest, batch=batch)
    return data


def _trimmed(rest: Rest) -> tuple[Any, ...]:
    """Return the fields of a rest up to the last one that says something."""
    values: tuple[Any, ...] = astuple(rest)
    count = len(values)
    while count and values[count - 1] == _NOTHING[count - 1]:
        count -= 1
    return values[:count]


def closing_frame(mark: int, at: int, fence: int, clock: int, head: Position) -> bytes:
    """Return the mark of a clean end: the last frame of a closed log, which holds no events."""
    return encode_frame(mark, at, fence, clock, None, (), Rest(CLOSED, head, head))


def open_body(data: memoryview, at: int = 0) -> memoryview | None:
    """Return the body that is enclosed at this offset of the data, or None if it is incomplete or its hash is
    wrong."""
    start = at + LENGTH.size
    if start > len(data):
        return None
    (length,) = LENGTH.unpack_from(data, at)
    end = start + length
    if not length or end + HASH_BYTES > len(data):
        return None
    body = data[start:end]
    return body if _sha256(body).digest() == data[end : end + HASH_BYTES] else None


def decode_frame(
    data: memoryview, at: int, *, mark: int, offset: int, holding: Sequence[bytes] = (), after: int = 0
) -> tuple[Frame, int] | None:
    """Return the frame at this place of the data, which is `offset` in its segment, and its size; None if there is
    none.

    With `holding`, records that hold none of these texts may be left out; with `after`, those up to this position.
    """
    body = open_body(data, at)
    if body is None:
        return None
    try:
        if holding:
            frame = _decode_some(body, holding)
        else:
            frame = _decode_after(body, after) if after else _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if frame.mark != mark or frame.at != offset:
        return None
    return frame, len(body) + AROUND_BYTES


def _decode_some(body: memoryview, holding: Sequence[bytes]) -> Frame:
    raw = decode_raw(body)
    records = []
    for record in raw.records:
        data = bytes(record)
        if any(text in data for text in holding):
            records.append(decode_record(data))
    return raw.with_records(records)


def _decode_after(body: memoryview, after: int) -> Frame:
    raw = decode_raw(body)
    skipped = bisect_right(raw.records, after, key=position_of)
    if skipped < len(raw.records) // 4:
        return _decode(body)  # one by one the records would cost more
    return raw.with_records([decode_record(record) for record in raw.records[skipped:]])


def stored_events(body: bytes | memoryview) -> list[StoredEvent]:
    """Return the records in the body of a frame as they are stored, with the exact texts of their payloads."""
    return texts_of(_decode(body).records)


def texts_of(records: Sequence[Recorded]) -> list[StoredEvent]:
    """Return records with the exact texts of their payloads. An erased payload has none."""
    texts = canonical_all([record.event.payload for record in records])
    return [
        StoredEvent(record, text if record.event.salt else b"") for record, text in zip(records, texts, strict=True)
    ]


def find_frame(data: memoryview, start: int, *, mark: int, offset: int) -> tuple[Frame, int, int] | None:
    """Return the next frame after bytes that are not frames, with its place and size. `offset` is that of the
    data."""
    content = bytes(data)
    sign = b"\xce" + mark.to_bytes(4, "big")
    place = content.find(sign, start)
    while place >= 0:
        at = place - 1 - LENGTH.size  # before the mark: the length and the byte for "array"
        if at >= start:
            found = decode_frame(data, at, mark=mark, offset=offset + at)
            if found is not None:
                return found[0], at, found[1]
        place = content.find(sign, place + 1)
    return None
