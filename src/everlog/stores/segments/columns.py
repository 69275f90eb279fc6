"""Read stretches of frames as columns.

A frame is decoded in one call into plain tuples; no `Event` is created, and the payload is encoded to its JSON text.
If all payloads hold only ASCII text and integers that are not too large, the text of the fast encoder is canonical;
for others the commitment shows whether it is. Times stay bytes and are converted many at once. A frame that does not
match the index is read by `reader`, which reports what is wrong with it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from everlog.core.canonical import NUMBER_MAX, canonical, encode_plain
from everlog.core.codec import HEADER_FIELDS, encode_header
from everlog.core.event import Position, Recorded, microseconds
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, NotCanonical
from everlog.stores.contract import Block
from everlog.stores.segments import reader
from everlog.stores.segments.format.frame import AROUND_BYTES, LENGTH, NOTHING_ELSE, Rest, mark_of, open_body
from everlog.stores.segments.reader import Stretch
from everlog.stores.segments.state import LogState

SLAB_EVENTS = 5_000
_READ_BYTES = 4 * 1024 * 1024

_Whole = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
_Leaf = str | _Whole | bool | None
_Flat = _Leaf | list[_Leaf] | dict[str, _Leaf]
_Plain = dict[str, _Leaf | list[_Flat] | dict[str, _Flat]]

_At = msgspec.Raw

# As `Event`, field by field.
_EventRow = tuple[
    str, str, int, str, int, str, int, _At, str, str, str, str, str, str, Any, bytes, bytes, Any, bytes, bytes, Any,
    str, None
]  # fmt: skip
_PlainRow = tuple[
    str, str, int, str, int, str, int, _At, str, str, str, str, str, str, Any, bytes, bytes, _Plain, bytes, bytes,
    Any, str, None
]  # fmt: skip
_Row = tuple[int, int, int, Any]


class _Scanned(msgspec.Struct, array_like=True, gc=False):
    """A frame with its records as tuples."""

    mark: int
    at: int
    fence: int
    clock: int
    records: list[tuple[int, int, int, _EventRow]]
    rest: Rest = NOTHING_ELSE


class _PlainScanned(_Scanned, array_like=True, gc=False):
    """A frame whose payloads, if they are ASCII, have the same text in the fast and the canonical encoder."""

    records: list[tuple[int, int, int, _PlainRow]]
    rest: Rest = NOTHING_ELSE


_decode = msgspec.msgpack.Decoder(_Scanned).decode
_decode_plain = msgspec.msgpack.Decoder(_PlainScanned).decode
_decode_time = msgspec.msgpack.Decoder(datetime).decode
_encode_time = msgspec.msgpack.Encoder().encode
_sha256 = hashlib.sha256
_FIELDS = len(HEADER_FIELDS)
_OCCURRED_AT, _TAGS, _COMMITMENT = map(HEADER_FIELDS.index, ("occurred_at", "tags", "commitment"))
_PAYLOAD, _SALT, _SIGNATURE, _PATH = range(_FIELDS, _FIELDS + 4)


def blocks(state: LogState, query: Query, after: Position, upto: Position) -> Iterator[Block]:
    """Return what `reader.records` returns, in the same order, as blocks of columns."""
    held: list[_Row] = []
    raw: dict[int, tuple[bytes, bytes]] = {}
    plain = True
    damaged: Damaged | None = None
    try:
        for rows, kept, rows_plain in _rows(state, query, after, upto):
            held += rows
            raw.update(kept)
            plain = plain and rows_plain
            if len(held) >= SLAB_EVENTS:
                yield _block(held, raw, plain)
                held, raw, plain = [], {}, True
    except Damaged as error:
        damaged = error  # the rows before the damage are returned first
    if held:
        yield _block(held, raw, plain)
    if damaged is not None:
        raise damaged


def _rows(
    state: LogState, query: Query, after: Position, upto: Position
) -> Iterator[tuple[Sequence[_Row], dict[int, tuple[bytes, bytes]], bool]]:
    """Return rows, the original bytes that are stored for some of them, and whether all their payloads are plain."""
    if query != EVERYTHING:
        for records in reader.records(state, query, after, upto):
            yield [_row(record) for record in records], {}, False
        return
    gone = state.purged_at
    for stretch in reader.stretches(state, EVERYTHING, after, upto):
        for frame in _frames(state, stretch, after, upto):
            rows: Sequence[_Row] = frame.records
            if not rows:
                continue
            if gone or rows[0][0] <= after or rows[-1][0] > upto:
                rows = [row for row in rows if after < row[0] <= upto and row[0] not in gone]
            yield rows, frame.rest.raw, isinstance(frame, _PlainScanned)


def _frames(state: LogState, stretch: Stretch, after: Position, upto: Position) -> Iterator[_Scanned]:
    at, head, plain = stretch.start, stretch.before, True
    if stretch.gap is None:
        mark = mark_of(state.identity.log_id, stretch.segment.number)
        with state.source(stretch.segment) as source:
            while at < stretch.end:
                data = memoryview(source.read(at, min(_READ_BYTES, stretch.end - at)))
                place = 0
                while (frame := _frame(data, place, mark, at + place, plain)) is not None:
                    yield frame
                    head = _head(frame)
                    plain = isinstance(frame, _PlainScanned)  # the frame after one that is not is rarely plain
                    place += _size(data, place)
                if not place and (len(data) >= _size(data, 0) or _size(data, 0) > stretch.end - at):
                    break  # not a frame: all of it was read, or its length exceeds the stretch
                if not place:
                    data = memoryview(source.read(at, _size(data, 0)))  # longer than one read
                    frame = _frame(data, 0, mark, at, plain)
                    if frame is None:
                        break
                    yield frame
                    head = _head(frame)
                    place = len(data)
                at += place
    if at < stretch.end or stretch.gap is not None:
        left = Stretch(stretch.segment, at, stretch.end, head, stretch.gap)
        for damaged in reader.frames(state, left, after, upto):  # raises at lost positions
            yield _Scanned(0, 0, 0, 0, [_row(record) for record in damaged.records], damaged.rest)


def _head(frame: _Scanned) -> Position:
    return Position(frame.records[-1][0]) if frame.rest is NOTHING_ELSE else frame.rest.head


def _frame(data: memoryview, place: int, mark: int, offset: int, plain: bool) -> _Scanned | None:
    body = open_body(data, place)
    if body is None:
        return None
    try:
        frame = _plain_or_not(body) if plain else _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return frame if frame.mark == mark and frame.at == offset else None


def _plain_or_not(body: memoryview) -> _Scanned:
    try:
        return _decode_plain(body)
    except msgspec.ValidationError:
        return _decode(body)


def _size(data: memoryview, place: int) -> int:
    if len(data) - place < LENGTH.size:
        return AROUND_BYTES
    length: int = LENGTH.unpack_from(data, place)[0]
    return length + AROUND_BYTES


def _row(record: Recorded) -> _Row:
    values = list(msgspec.structs.astuple(record.event))
    values[_OCCURRED_AT] = _encode_time(values[_OCCURRED_AT])
    return (record.position, record.sequence, record.received_us, tuple(values))


def _block(rows: Sequence[_Row], raw: dict[int, tuple[bytes, bytes]], plain: bool) -> Block:
    positions, sequences, received_us, events = zip(*rows, strict=True)
    fields: list[Sequence[Any]] = list(zip(*events, strict=True))
    fields[_OCCURRED_AT] = _times(fields[_OCCURRED_AT])
    salts = fields[_SALT]
    payloads = _texts(fields[_PAYLOAD], salts, fields[_COMMITMENT], plain)
    if raw:
        payloads = [
            raw[position][1] if position in raw else payload
            for position, payload in zip(positions, payloads, strict=True)
        ]
    if any(fields[_TAGS]):
        fields[_TAGS] = [encode_header(tags) if tags else b"{}" for tags in fields[_TAGS]]
    else:
        fields[_TAGS] = [b"{}"] * len(rows)
    signatures = fields[_SIGNATURE] if any(fields[_SIGNATURE]) else ()
    paths = [b"".join(path) for path in fields[_PATH]] if signatures else ()
    return Block(positions, sequences, received_us, (), fields[:_FIELDS], payloads, salts, signatures, paths)


_TIME = bytes((0xD7, 0xFF))  # a time of 8 bytes: 30 bits of nanoseconds, 34 of seconds
_TIME_BYTES = 10
_SECONDS = 2**34 - 1


def _times(raw: Sequence[bytes]) -> list[int]:
    """Convert MessagePack times to microseconds, all at once if they have the usual length."""
    data = b"".join(raw)
    if len(data) == _TIME_BYTES * len(raw) and data[::_TIME_BYTES] + data[1::_TIME_BYTES] == (
        _TIME[:1] * len(raw) + _TIME[1:] * len(raw)
    ):
        found = struct.unpack(">" + "2xQ" * len(raw), data)
        return [(time & _SECONDS) * 1_000_000 + (time >> 34) // 1000 for time in found]
    return [microseconds(_decode_time(time)) for time in raw]


def _texts(payloads: Sequence[Any], salts: Sequence[bytes], commitments: Sequence[bytes], plain: bool) -> list[bytes]:
    """Return the exact texts of payloads; the text of an erased payload is empty."""
    texts = list(map(encode_plain, payloads))
    if not plain or not b"".join(texts).isascii():
        return [
            text if _sha256(salt + text).digest() == commitment else _exact(payload, salt)
            for text, payload, salt, commitment in zip(texts, payloads, salts, commitments, strict=True)
        ]
    return texts if all(salts) else [text if salt else b"" for text, salt in zip(texts, salts, strict=True)]


def _exact(payload: Any, salt: bytes) -> bytes:
    """Return the text of a payload that the fast encoder cannot reproduce, such as one with fractions, or an erased
    one."""
    if not salt:
        return b""
    try:
        return canonical(payload)
    except NotCanonical:
        return encode_plain(payload)  # verify reports what is wrong with it
