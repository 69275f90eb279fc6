"""Reading stretches of frames by the column, for whoever wants columns anyway.

A frame is decoded in one call into plain tuples, and no event is ever made: the payload becomes its JSON text again.
While no payload has anything but ASCII text and numbers that are whole and not too large, the fast encoder's text is
the canonical one; of others the commitment says whether it is. A time stays bytes until there are many of them. A
frame that is not what the index promised is left to the careful way of reading, which tells what is wrong with it.
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
from everlog.stores.contract import Slab
from everlog.stores.segments import reading
from everlog.stores.segments.book import Book
from everlog.stores.segments.frame import AROUND_BYTES, LENGTH, NOTHING_ELSE, Rest, mark_of, open_body
from everlog.stores.segments.reading import Stretch

SLAB_EVENTS = 5_000
_READ_BYTES = 4 * 1024 * 1024

_Whole = Annotated[int, msgspec.Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
_Leaf = str | _Whole | bool | None
_Flat = _Leaf | list[_Leaf] | dict[str, _Leaf]
_Plain = dict[str, _Leaf | list[_Flat] | dict[str, _Flat]]

_At = msgspec.Raw

# As `Event`, field by field.
_EventRow = tuple[
    str, str, int, str, int, str, int, _At, str, str, str, str, str, str, Any, bytes, bytes, Any, bytes, bytes, Any
]  # fmt: skip
_PlainRow = tuple[
    str, str, int, str, int, str, int, _At, str, str, str, str, str, str, Any, bytes, bytes, _Plain, bytes, bytes, Any
]  # fmt: skip
_Row = tuple[int, int, int, Any]


class _Scanned(msgspec.Struct, array_like=True, gc=False):
    """A frame whose records are tuples."""

    mark: int
    at: int
    fence: int
    clock: int
    records: list[tuple[int, int, int, _EventRow]]
    rest: Rest = NOTHING_ELSE


class _PlainScanned(_Scanned, array_like=True, gc=False):
    """One whose payloads hold nothing that the fast encoder might print in another way, if they are ASCII."""

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


def slabs(book: Book, query: Query, after: Position, upto: Position) -> Iterator[Slab]:
    """What `reading.records` gives, in the same order."""
    held: list[_Row] = []
    raw: dict[int, tuple[bytes, bytes]] = {}
    plain = True
    damaged: Damaged | None = None
    try:
        for rows, kept, rows_plain in _rows(book, query, after, upto):
            held += rows
            raw.update(kept)
            plain = plain and rows_plain
            if len(held) >= SLAB_EVENTS:
                yield _slab(held, raw, plain)
                held, raw, plain = [], {}, True
    except Damaged as error:
        damaged = error  # what stands before it comes first
    if held:
        yield _slab(held, raw, plain)
    if damaged is not None:
        raise damaged


def _rows(
    book: Book, query: Query, after: Position, upto: Position
) -> Iterator[tuple[Sequence[_Row], dict[int, tuple[bytes, bytes]], bool]]:
    """Rows, what is kept of some of them as it was given, and whether all their payloads are plain."""
    if query != EVERYTHING:
        for records in reading.records(book, query, after, upto):
            yield [_row(record) for record in records], {}, False
        return
    gone = book.purged_at
    for stretch in reading.stretches(book, EVERYTHING, after, upto):
        for frame in _frames(book, stretch, after, upto):
            rows: Sequence[_Row] = frame.records
            if not rows:
                continue
            if gone or rows[0][0] <= after or rows[-1][0] > upto:
                rows = [row for row in rows if after < row[0] <= upto and row[0] not in gone]
            yield rows, frame.rest.raw, isinstance(frame, _PlainScanned)


def _frames(book: Book, stretch: Stretch, after: Position, upto: Position) -> Iterator[_Scanned]:
    at, head, plain = stretch.start, stretch.before, True
    if stretch.gap is None:
        mark = mark_of(book.identity.log_id, stretch.segment.number)
        with book.source(stretch.segment) as source:
            while at < stretch.end:
                data = memoryview(source.read(at, min(_READ_BYTES, stretch.end - at)))
                place = 0
                while (frame := _frame(data, place, mark, at + place, plain)) is not None:
                    yield frame
                    head = _head(frame)
                    plain = isinstance(frame, _PlainScanned)  # where one is not, the next will hardly be
                    place += _size(data, place)
                if not place and (len(data) >= _size(data, 0) or _size(data, 0) > stretch.end - at):
                    break  # it is all here, or longer than there is room for it: no frame
                if not place:
                    data = memoryview(source.read(at, _size(data, 0)))  # longer than what is read at once
                    frame = _frame(data, 0, mark, at, plain)
                    if frame is None:
                        break
                    yield frame
                    head = _head(frame)
                    place = len(data)
                at += place
    if at < stretch.end or stretch.gap is not None:
        left = Stretch(stretch.segment, at, stretch.end, head, stretch.gap)
        for damaged in reading.frames(book, left, after, upto):  # stops at what is lost
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


def _slab(rows: Sequence[_Row], raw: dict[int, tuple[bytes, bytes]], plain: bool) -> Slab:
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
    return Slab(positions, sequences, received_us, (), fields[:_FIELDS], payloads, salts, signatures, paths)


_TIME = bytes((0xD7, 0xFF))  # a time of 8 bytes: 30 bits of nanoseconds, 34 of seconds
_TIME_BYTES = 10
_SECONDS = 2**34 - 1


def _times(raw: Sequence[bytes]) -> list[int]:
    """Moments in microseconds, of times as MessagePack has them; all at once if they are of the usual length."""
    data = b"".join(raw)
    if len(data) == _TIME_BYTES * len(raw) and data[::_TIME_BYTES] + data[1::_TIME_BYTES] == (
        _TIME[:1] * len(raw) + _TIME[1:] * len(raw)
    ):
        found = struct.unpack(">" + "2xQ" * len(raw), data)
        return [(time & _SECONDS) * 1_000_000 + (time >> 34) // 1000 for time in found]
    return [microseconds(_decode_time(time)) for time in raw]


def _texts(payloads: Sequence[Any], salts: Sequence[bytes], commitments: Sequence[bytes], plain: bool) -> list[bytes]:
    """The exact texts of payloads; empty once erased."""
    texts = list(map(encode_plain, payloads))
    if not plain or not b"".join(texts).isascii():
        return [
            text if _sha256(salt + text).digest() == commitment else _exact(payload, salt)
            for text, payload, salt, commitment in zip(texts, payloads, salts, commitments, strict=True)
        ]
    return texts if all(salts) else [text if salt else b"" for text, salt in zip(texts, salts, strict=True)]


def _exact(payload: Any, salt: bytes) -> bytes:
    """The text of a payload that plain JSON does not give: other numbers or keys than the most, or erased."""
    if not salt:
        return b""
    try:
        return canonical(payload)
    except NotCanonical:
        return encode_plain(payload)  # verify says what is wrong with it
