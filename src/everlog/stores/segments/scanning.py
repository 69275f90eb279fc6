"""Reading stretches of frames by the column, for whoever wants columns anyway.

A frame is decoded in one call into plain tuples, and no event is ever made: the payload becomes its JSON text again,
which its commitment proves to be the exact one. A frame that is not what the index promised is left to the careful
way of reading, which tells what is wrong with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.core.canonical import canonical, encode_plain
from everlog.core.codec import HEADER_FIELDS, encode_header
from everlog.core.event import Position, Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.errors import NotCanonical
from everlog.stores.contract import Slab
from everlog.stores.segments import reading
from everlog.stores.segments.book import Book
from everlog.stores.segments.frame import AROUND_BYTES, LENGTH, NOTHING_ELSE, Rest, mark_of, open_body
from everlog.stores.segments.reading import Stretch

SLAB_EVENTS = 5_000
_READ_BYTES = 4 * 1024 * 1024

# As `Event`, field by field.
_EventRow = tuple[
    str, str, int, str, int, str, int, Any, str, str, str, str, str, str, Any, bytes, bytes, Any, bytes, bytes, Any
]  # fmt: skip
_Row = tuple[int, int, int, _EventRow]


class _Scanned(msgspec.Struct, array_like=True, gc=False):
    """A frame whose records are tuples."""

    mark: int
    at: int
    fence: int
    clock: int
    records: list[_Row]
    rest: Rest = NOTHING_ELSE


_decode = msgspec.msgpack.Decoder(_Scanned).decode
_sha256 = hashlib.sha256
_FIELDS = len(HEADER_FIELDS)
_TAGS, _COMMITMENT = HEADER_FIELDS.index("tags"), HEADER_FIELDS.index("commitment")
_PAYLOAD, _SALT, _SIGNATURE, _PATH = range(_FIELDS, _FIELDS + 4)


def slabs(book: Book, query: Query, after: Position, upto: Position) -> Iterator[Slab]:
    """What `reading.records` gives, in the same order."""
    held: list[_Row] = []
    raw: dict[int, tuple[bytes, bytes]] = {}
    for rows, kept in _rows(book, query, after, upto):
        held += rows
        raw.update(kept)
        if len(held) >= SLAB_EVENTS:
            yield _slab(held, raw)
            held, raw = [], {}
    if held:
        yield _slab(held, raw)


def _rows(
    book: Book, query: Query, after: Position, upto: Position
) -> Iterator[tuple[list[_Row], dict[int, tuple[bytes, bytes]]]]:
    if query != EVERYTHING:
        for records in reading.records(book, query, after, upto):
            yield [_row(record) for record in records], {}
        return
    gone = book.purged_at
    for stretch in reading.stretches(book, EVERYTHING, after, upto):
        for frame in _frames(book, stretch):
            rows = frame.records
            if not rows:
                continue
            if gone or rows[0][0] <= after or rows[-1][0] > upto:
                rows = [row for row in rows if after < row[0] <= upto and row[0] not in gone]
            yield rows, frame.rest.raw


def _frames(book: Book, stretch: Stretch) -> Iterator[_Scanned]:
    at = stretch.start
    if stretch.gap is None:
        mark = mark_of(book.identity.log_id, stretch.segment.number)
        with book.source(stretch.segment) as source:
            while at < stretch.end:
                data = memoryview(source.read(at, min(_READ_BYTES, stretch.end - at)))
                place = 0
                while (frame := _frame(data, place, mark, at + place)) is not None:
                    yield frame
                    place += _size(data, place)
                if not place and (len(data) >= _size(data, 0) or _size(data, 0) > stretch.end - at):
                    break  # it is all here, or longer than there is room for it: no frame
                if not place:
                    data = memoryview(source.read(at, _size(data, 0)))  # longer than what is read at once
                    frame = _frame(data, 0, mark, at)
                    if frame is None:
                        break
                    yield frame
                    place = len(data)
                at += place
    if at < stretch.end:
        left = Stretch(stretch.segment, at, stretch.end, stretch.before, stretch.gap)
        for damaged in reading.frames(book, left):  # raises, with the place and the reason
            yield _Scanned(0, 0, 0, 0, [_row(record) for record in damaged.records], damaged.rest)


def _frame(data: memoryview, place: int, mark: int, offset: int) -> _Scanned | None:
    body = open_body(data, place)
    if body is None:
        return None
    try:
        frame = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return frame if frame.mark == mark and frame.at == offset else None


def _size(data: memoryview, place: int) -> int:
    if len(data) - place < LENGTH.size:
        return AROUND_BYTES
    length: int = LENGTH.unpack_from(data, place)[0]
    return length + AROUND_BYTES


def _row(record: Recorded) -> _Row:
    return (
        record.position,
        record.sequence,
        record.received_us,
        msgspec.structs.astuple(record.event),
    )


def _slab(rows: Sequence[_Row], raw: dict[int, tuple[bytes, bytes]]) -> Slab:
    positions, sequences, received_us, events = zip(*rows, strict=True)
    fields: list[Sequence[Any]] = list(zip(*events, strict=True))
    salts, commitments = fields[_SALT], fields[_COMMITMENT]
    payloads = [
        text if _sha256(salt + (text := encode_plain(payload))).digest() == commitment else _exact(payload, salt)
        for payload, salt, commitment in zip(fields[_PAYLOAD], salts, commitments, strict=True)
    ]
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


def _exact(payload: Any, salt: bytes) -> bytes:
    """The text of a payload that plain JSON does not give: other numbers or keys than the most, or erased."""
    if not salt:
        return b""
    try:
        return canonical(payload)
    except NotCanonical:
        return encode_plain(payload)  # verify says what is wrong with it
