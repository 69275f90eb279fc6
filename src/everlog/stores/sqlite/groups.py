"""One row of `groups`: how it is written, checked and read.

The checksum is compared whenever a row is read, so that a flipped bit is found by every way of reading. `schema.sql`
describes the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast
from zlib import crc32

import msgspec
from msgspec.structs import astuple, force_setattr

from everlog.core.event import Header, Position, Recorded
from everlog.core.group import Group, GroupFacts, StoredEvent
from everlog.stores.contract import Erasure
from everlog.stores.lost import lost

Fetch = Callable[[str, tuple[Any, ...]], list[Any]]
"""Run one statement to its end on some connection, so that no read holds a connection while its caller works."""

# The text as bytes: one that is not UTF-8 any more is damage of one row, and must not hide the rows around it.
COLUMNS = (
    "first, last, kept, received_us, origin, first_seq, count, previous, hash, signature, claims,"
    " CAST(events AS BLOB), checksum"
)
_TEXT = 11
_COMMITMENT, _PAYLOAD = 15, 17

WRONG_CHECKSUM = "its group is not as it was written: the checksum is wrong"
UNREADABLE = "its group cannot be read"

encode = msgspec.json.Encoder(order="deterministic").encode  # as the header: tags are sorted
_decode_records = msgspec.json.Decoder(list[Recorded]).decode
_decode_record = msgspec.json.Decoder(Recorded).decode
_decode_pieces = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _TextEvent(Header, frozen=True, array_like=True, gc=False):
    """A stored event with the exact text of its payload."""

    payload: msgspec.Raw = msgspec.Raw(b"{}")
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()
    erased_by: str = ""


class _TextRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    position: Position
    sequence: int
    received_us: int
    event: _TextEvent


class _Named(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: str
    type: str
    version: int
    stream: str


class Place(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an event is. Nothing else of the record is decoded."""

    position: Position
    sequence: int
    received_us: int
    event: _Named


class _Facts(_Named, frozen=True, array_like=True, gc=False):
    lamport: int
    origin: str
    origin_seq: int
    occurred_at: msgspec.Raw
    actor: msgspec.Raw
    scope: str


class Indexed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record without what no index and no state has of it."""

    position: Position
    sequence: int
    received_us: int
    event: _Facts


_decode_texts = msgspec.json.Decoder(list[_TextRecord]).decode
_decode_places = msgspec.json.Decoder(list[Place]).decode
_decode_indexed = msgspec.json.Decoder(list[Indexed]).decode


NO_HOLES: Mapping[int, bytes] = {}


class BadRow(Exception):
    """A row of `groups` that cannot be read, and why."""


def claimed_places(row: Sequence[Any]) -> tuple[int, int]:
    """Return the first and the last position of a row that is damaged. A last one that is no number is not known."""
    return row[0], row[1] if isinstance(row[1], int) else row[0]


class StoredGroup(Group):
    """A row of `groups`: positions `first` to `last`, of which some may be purged."""

    __slots__ = ("checksum", "claims", "first", "kept", "last", "text")

    def __init__(self, row: Sequence[Any], holes: Mapping[int, bytes] = NO_HOLES) -> None:
        """`holes` are the hashes of purged events, by position. Raise BadRow if the row is damaged."""
        self.first: int
        self.last: int
        self.kept: int  # how many events are left
        self.claims: bytes
        self.text: bytes
        self.checksum: int
        self.first, self.last, self.kept, *facts, self.claims, self.text, self.checksum = row
        if not isinstance(self.text, bytes) or crc32(self.text, crc32(encode(row[:_TEXT]))) != self.checksum:
            raise BadRow(WRONG_CHECKSUM)
        found = GroupFacts(*facts)
        load = partial(_load, self.text, self.first, self.last)
        super().__init__(found, load, partial(_hole, self.first - found.first_seq, holes))

    def know(self, holes: Mapping[int, bytes]) -> None:
        """Set the hashes of what was purged of it, by position."""
        self._gone = partial(_hole, self.first - self.facts.first_seq, holes)

    @property
    def whole(self) -> bool:
        """Whether nothing of it was purged."""
        return self.kept == self.last - self.first + 1

    def records(self) -> list[Recorded]:
        """Return the events of the group."""
        try:
            found = _decode_records(self.text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRow(f"{UNREADABLE}: {error}") from error
        for recorded in found:
            force_setattr(recorded.event, "group", self)
        return found

    def records_at(self, positions: Collection[int]) -> list[Recorded]:
        """Return the events at some positions, in order. Nothing else of the group is decoded."""
        if len(positions) > (self.last - self.first) // 4:
            return [recorded for recorded in self.records() if recorded.position in positions]
        if len(positions) == 1 and self.last in positions and (last := self._last_record()) is not None:
            return [last]
        pieces = self.pieces()
        if self.whole:
            wanted = [pieces[position - self.first] for position in sorted(positions)]
        else:
            wanted = [piece for piece in pieces if _position_of(piece) in positions]
        try:
            found = [_decode_record(piece) for piece in wanted]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRow(f"{UNREADABLE}: {error}") from error
        for recorded in found:
            force_setattr(recorded.event, "group", self)
        return found

    def _last_record(self) -> Recorded | None:
        """Return the event at the last position, decoded from the end of the text: the cursor of a page is often
        there. None if it was purged, or if its payload has the same characters as the beginning of its record.

        What begins inside of a record is never taken for one: the end of a payload leaves a bracket or a quotation
        mark too many, and is not decoded.
        """
        start = self.text.rfind(b",[%d," % self.last)
        try:
            found = _decode_record(memoryview(self.text)[start + 1 : -1])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if start < 0 or found.position != self.last:
            return None
        force_setattr(found.event, "group", self)
        return found

    def record_of(self, event_id: str) -> Recorded | None:
        """Return the event with an id. Nothing else of the group is decoded, if the id is not in a payload too."""
        token = id_token(event_id).encode()
        likely = [piece for piece in self.pieces() if token in bytes(piece)[:_ID_WITHIN]]
        try:
            found = next((record for piece in likely if (record := _decode_record(piece)).event.id == event_id), None)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRow(f"{UNREADABLE}: {error}") from error
        if found is not None:
            force_setattr(found.event, "group", self)
        return found

    def pieces(self) -> list[msgspec.Raw]:
        """Return the records as their texts."""
        try:
            return _decode_pieces(self.text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRow(f"{UNREADABLE}: {error}") from error

    def places(self) -> list[Place]:
        """Return where the events of the group are."""
        try:
            return _decode_places(self.text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRow(f"{UNREADABLE}: {error}") from error

    def indexed(self) -> list[Indexed]:
        """Return what an index and the state have of the events."""
        try:
            return _decode_indexed(self.text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRow(f"{UNREADABLE}: {error}") from error

    def rewritten(self, *, purged: Collection[int], erased: Mapping[Position, Erasure]) -> tuple[int, str, int]:
        """Return the columns that change with a purge or an erasure: `kept`, `events` and `checksum`.

        Purged records are gone, and so are the payloads and salts of erased ones. All else stays byte for byte.
        """
        kept = []
        for piece in self.pieces():
            position = _position_of(piece)
            if position in purged:
                continue
            erasure = erased.get(position)
            kept.append(bytes(piece) if erasure is None else _erased(piece, erasure))
        text = b"[" + b",".join(kept) + b"]"
        row = row_of(self.facts, self.first, self.last, len(kept), self.claims, text)
        return len(kept), row[-2], row[-1]


def row_of(facts: GroupFacts, first: int, last: int, kept: int, claims: bytes, text: bytes) -> tuple[Any, ...]:
    """Return a row of `groups`, with its checksum."""
    row = (first, last, kept, *astuple(facts), claims)
    return (*row, text.decode(), crc32(text, crc32(encode(row))))


def id_token(event_id: str) -> str:
    """Return the text that a record with this id has."""
    return f',0,["{event_id}",'


_ID_WITHIN = 2 * 20 + len(id_token("0" * 26))  # of a record: its position, its sequence and the token


def _position_of(piece: msgspec.Raw) -> Position:
    start = bytes(piece)[:21]
    return Position(int(start[1 : start.index(b",")]))


def _load(text: bytes, first: int, last: int) -> list[StoredEvent]:
    try:
        records = _decode_texts(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise lost(first, last, why=f"{UNREADABLE}: {error}") from error
    # All that a group asks of a record is there; only its payload is text.
    return [
        StoredEvent(cast("Recorded", record), bytes(record.event.payload) if record.event.salt else b"")
        for record in records
    ]


def _hole(offset: int, holes: Mapping[int, bytes], origin: str, number: int) -> bytes | None:
    """Return the hash of a purged event of a group: its positions grow with its numbers."""
    return holes.get(offset + number)


def _erased(piece: msgspec.Raw, erasure: Erasure) -> bytes:
    position, sequence, received_us, values = msgspec.json.decode(piece)
    proof = values[_PAYLOAD + 2 : _PAYLOAD + 4] or ["", []]
    values = [*values[:_PAYLOAD], {}, b"", *proof, erasure.by]
    values[_COMMITMENT] = erasure.commitment
    return encode((position, sequence, received_us, values))
