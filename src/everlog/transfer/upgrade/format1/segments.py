"""Read a folder of segments in format 1: frames of MessagePack, each with its SHA-256, in plain or packed files.

segment   "EVERLOG" 01   enclosed head   frame   frame   …   zeros, if it is the live one
enclosed  length(4)   MessagePack   SHA-256(32)
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple

from everlog.core.canonical import canonical
from everlog.core.codec import Packed
from everlog.core.event import Position, Purge, Purged
from everlog.errors import Damaged, EverlogError
from everlog.files import Files
from everlog.stores.contract import CLAIM_BYTES, Claim, Identity
from everlog.stores.small_state import Row, claim_row, note_row
from everlog.transfer.upgrade.format1.model import Bad, Slot, encode_header, stub

_MAGIC = b"EVERLOG\x01"
_NAME = re.compile(r"(\d{8})\.seg(\.gz)?")
_LENGTH = struct.Struct(">I")
_HASH_BYTES = 32
_AROUND_BYTES = _LENGTH.size + _HASH_BYTES
_SECTOR_BYTES = 512
_HEADER_FIELDS = 17
_CLOSED = 1


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    id: str
    type: str
    version: int
    stream: str
    lamport: int
    origin: str
    origin_seq: int
    occurred_at: datetime
    actor: str
    scope: str
    request_id: str
    causation_id: str
    correlation_id: str
    idempotency_key: str
    tags: dict[str, str]
    commitment: bytes
    previous: bytes
    payload: dict[str, Any] = {}
    salt: bytes = b""
    signature: bytes = b""
    path: tuple[bytes, ...] = ()


class _Stub(msgspec.Struct, frozen=True, gc=False):
    position: int
    sequence: int
    id: str
    origin: str
    origin_seq: int
    hash: bytes
    previous: bytes
    reserved: int = 0


class _Purge(msgspec.Struct, frozen=True, gc=False):
    reserved: int
    stream: str
    scopes: tuple[str, ...]
    actor: str
    reason: str
    purged_us: int
    sequence: int
    count: int


class _Rest(msgspec.Struct, frozen=True, array_like=True):
    kind: int = 0
    before: int = 0
    head: int = 0
    claim_names: bytes = b""
    claim_places: tuple[int, ...] = ()
    notes: dict[str, tuple[str | None, int | None]] = {}
    purges: tuple[_Purge, ...] = ()
    purged: tuple[_Stub, ...] = ()
    raw: dict[int, tuple[bytes, bytes]] = {}
    nonce: int = 0


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    mark: int
    at: int
    fence: int
    clock: int
    records: list[tuple[int, int, int, _Event]]
    rest: _Rest = _Rest()


class _Around(msgspec.Struct, frozen=True, array_like=True):
    """A frame without its events: for what is collected before the events are read."""

    mark: int
    at: int
    fence: int
    clock: int
    records: msgspec.Raw
    rest: _Rest = _Rest()


class _SavedEnd(msgspec.Struct, frozen=True, array_like=True):
    """Where the live segment ended, from index/end. `closed`: nothing was written after it."""

    log_id: str
    number: int
    end: int
    head: int
    closed: bool = False


class _State(msgspec.Struct, frozen=True, array_like=True):
    clock: int = 0
    links: dict[str, tuple[int, bytes]] = {}
    notes: dict[str, tuple[str, int | None]] = {}


class _End(msgspec.Struct, frozen=True, array_like=True):
    size: int
    hash: bytes


class _Head(msgspec.Struct, frozen=True, array_like=True):
    format: int
    identity: Identity
    number: int
    fence: int
    before: int
    opened_us: int
    state: _State
    previous: _End | None = None
    generation: int = 0
    first_end: _End | None = None
    end_mark: int = 0


_decode_frame = msgspec.msgpack.Decoder(_Frame).decode
_decode_around = msgspec.msgpack.Decoder(_Around).decode
_decode_head = msgspec.msgpack.Decoder(_Head).decode


class SegmentsLog:
    def __init__(self, path: Path, files: Files) -> None:
        self._root = path
        self._files = files
        self._segments = path / "segments"
        self.clock = 0
        self.size = 0
        self._bad: list[Bad] = []
        self._stubs: dict[int, Purged] = {}
        self._purges: list[Purge] = []
        self._claims: dict[bytes, Claim] = {}
        self._notes: dict[str, tuple[str, int | None]] = {}
        self._names = self._listed()
        self.identity = self._identity()
        self._survey()

    def purges(self) -> list[Purge]:
        return self._purges

    def slots(self) -> Iterator[Slot | Bad]:
        yield from self._bad
        stubs = ((position, self._stubs[position]) for position in sorted(self._stubs))
        purges = ((purge.reserved, purge) for purge in self._purges)
        for _, slot in merge(self._events(), stubs, purges, key=lambda found: found[0]):
            yield slot

    def rows(self) -> Iterator[Row | Bad]:
        for name, claim in self._claims.items():
            yield claim_row(name, claim)
        for key, (value, expires_us) in sorted(self._notes.items()):
            yield note_row(key, value, expires_us)

    def close(self) -> None:
        """Do nothing: every file is closed after it was read."""

    # ---- which segments there are

    def _listed(self) -> dict[int, str]:
        """Return the files by number. A plain one counts before a packed one: the packing was interrupted."""
        found: dict[int, str] = {}
        for name in self._files.names(self._segments) if self._files.exists(self._segments) else []:
            match = _NAME.fullmatch(name)
            if match is not None and (not match[2] or int(match[1]) not in found):
                found[int(match[1])] = name
        return dict(sorted(found.items()))

    def _identity(self) -> Identity:
        newest = 0
        identity = None
        try:
            body = json.loads(self._files.read_all(self._root / "log.json"))
            digest = body.pop("sha256")
            if digest == hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest():
                identity, newest = msgspec.convert(body["identity"], Identity), body["newest"]
        except (OSError, ValueError, KeyError, AttributeError, EverlogError, RecursionError):
            pass  # the head of a segment has it, too
        for number in range(1, max([newest, *self._names]) + 1):
            if number not in self._names:
                self._bad.append(Bad(f"segments/{number:08}.seg", "the file is missing"))
        for number in self._names if identity is None else ():
            found = _head_of(self._read(number))
            if found is not None:
                return found[0].identity
        if identity is None:
            raise Damaged(
                f"{self._root} cannot be read",
                why="neither log.json nor the head of any segment can be read",
                hint="restore a backup",
            )
        return identity

    def _read(self, number: int) -> bytes:
        """Return the plain bytes of a segment."""
        data = self._files.read_all(self._segments / self._names[number])
        if not self._names[number].endswith(".gz"):
            return data
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return b""  # reported as a damaged head

    # ---- frames

    def _survey(self) -> None:
        """Collect what must be known before the first event: stubs, purges, claims, notes, the clock and damage."""
        limit: dict[int, _End] = {}
        heads: dict[int, _Head] = {}
        for number in self._names:
            data = self._read(number)
            found = _head_of(data)
            if found is None or found[0].number != number:
                self._bad.append(Bad(f"segments/{self._names[number]}", "its head is damaged"))
                continue
            head, start = found
            heads[number] = head
            if head.previous is not None:
                limit[number - 1] = head.previous
            self.clock = max(self.clock, head.state.clock)
            if not self._notes:
                self._notes.update(head.state.notes)
            last, stop = None, start
            for at, body in self._frames(number, data, start, head):
                last, stop = self._take(number, at, body), at + len(body) + _AROUND_BYTES
            if number == max(self._names):
                self._compare_end(number, stop, last)
        for number, end in limit.items():
            before = heads.get(number)
            if before is not None and before.generation and before.first_end != end:
                self._bad.append(Bad(f"segments/{self._names[number]}", "it was replaced by another file"))

    def _frames(self, number: int, data: bytes, start: int, head: _Head) -> Iterator[tuple[int, memoryview]]:
        """Return the frames of a segment with their offsets. What is neither a frame nor a torn end is damage."""
        view, at = memoryview(data), start
        mark = _mark(self.identity.log_id, number)
        while True:
            body = _enclosed(view, at)
            if body is not None:
                yield at, body
                at += len(body) + _AROUND_BYTES
                continue
            rest = data[at:]
            if not any(rest):
                return
            following = _next_frame(data, at + 1, mark)
            if following is None:
                is_live = number == max(self._names)
                if not (is_live and _is_torn(rest, at)):
                    self._note_bad(number, at, len(data))
                return
            self._note_bad(number, at, following)
            at = following

    def _note_bad(self, number: int, at: int, end: int) -> None:
        bad = Bad(f"segments/{self._names[number]}", f"it is damaged from byte {at} to byte {end}")
        if bad not in self._bad:
            self._bad.append(bad)

    def _take(self, number: int, at: int, body: memoryview) -> _Around | None:
        try:
            frame = _decode_around(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._bad.append(Bad(f"segments/{self._names[number]}, byte {at}", f"the frame cannot be read: {error}"))
            return None
        if frame.mark != _mark(self.identity.log_id, number) or frame.at != at:
            self._bad.append(Bad(f"segments/{self._names[number]}, byte {at}", "the frame belongs elsewhere"))
            return None
        self.clock = max(self.clock, frame.clock)
        rest = frame.rest
        self.size = max(self.size, rest.head)
        for key, (value, expires_us) in rest.notes.items():
            if value is None:
                self._notes.pop(key, None)
            else:
                self._notes[key] = (value, expires_us)
        names = rest.claim_names
        for n in range(len(names) // CLAIM_BYTES):
            first, count = rest.claim_places[2 * n : 2 * n + 2]
            name = names[n * CLAIM_BYTES : (n + 1) * CLAIM_BYTES]
            self._claims[name] = Claim(Position(rest.before + first), count)
        self._purges += [Purge(*astuple(purge)) for purge in rest.purges]
        for left in rest.purged:
            self._stubs[left.position] = stub(*astuple(left))
        return frame

    def _compare_end(self, number: int, end: int, last: _Around | None) -> None:
        """Report a live segment that was cut at the end of a frame, unless only the mark of a clean end is gone."""
        saved = self._saved_end()
        if saved is None or saved.number != number or saved.end <= end or self._bad:
            return
        if saved.closed and last is not None and saved.head == last.rest.head:
            mark = _Frame(last.mark, end, last.fence, last.clock, [], _Rest(_CLOSED, saved.head, saved.head))
            if end + len(msgspec.msgpack.encode(mark)) + _AROUND_BYTES == saved.end:
                return
        why = f"it lost its end: it stops at byte {end}, and went to position {saved.head}, byte {saved.end}"
        self._bad.append(Bad(f"segments/{self._names[number]}", why))

    def _saved_end(self) -> _SavedEnd | None:
        try:
            body = _enclosed(memoryview(self._files.read_all(self._root / "index" / "end")), 0)
            found = None if body is None else msgspec.msgpack.decode(body, type=_SavedEnd)
        except (OSError, EverlogError, msgspec.DecodeError, UnicodeDecodeError):
            return None  # it is derived: without it a lost end is not noticed
        return found if found is not None and found.log_id == self.identity.log_id else None

    def _events(self) -> Iterator[tuple[int, Slot | Bad]]:
        for number in self._names:
            data = self._read(number)
            found = _head_of(data)
            if found is None or found[0].number != number:
                continue
            for at, body in self._frames(number, data, found[1], found[0]):
                try:
                    frame = _decode_frame(body)
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    continue  # reported by the survey
                if frame.at == at and frame.mark == _mark(self.identity.log_id, number):
                    yield from self._records(frame, f"segments/{self._names[number]}, byte {at}")

    def _records(self, frame: _Frame, where: str) -> Iterator[tuple[int, Slot | Bad]]:
        raw, stubs = frame.rest.raw, self._stubs
        for position, sequence, received_us, event in frame.records:
            if position in stubs:
                continue  # purged, and its bytes have yet to go
            stored = raw.get(position) if raw else None
            if stored is None:
                try:
                    stored = (
                        encode_header(astuple(event)[:_HEADER_FIELDS]),
                        canonical(event.payload) if event.salt else b"",
                    )
                except EverlogError as error:
                    yield position, Bad(f"{where}, position {position}", str(error))
                    continue
            header, payload = stored
            place = Position(position), sequence, received_us
            yield position, Packed(*place, header, payload, event.salt, event.signature, event.path)


# ---- bytes


def _mark(log_id: str, number: int) -> int:
    digest = hashlib.sha256(f"{log_id} {number}".encode()).digest()
    return int.from_bytes(digest[:4], "big") | 0x8000_0000


def _enclosed(data: memoryview, at: int) -> memoryview | None:
    start = at + _LENGTH.size
    if start > len(data):
        return None
    (length,) = _LENGTH.unpack_from(data, at)
    end = start + length
    if not length or end + _HASH_BYTES > len(data):
        return None
    body = data[start:end]
    return body if hashlib.sha256(body).digest() == data[end : end + _HASH_BYTES] else None


def _head_of(data: bytes) -> tuple[_Head, int] | None:
    body = _enclosed(memoryview(data), len(_MAGIC)) if data.startswith(_MAGIC) else None
    if body is None:
        return None
    try:
        return _decode_head(body), len(_MAGIC) + len(body) + _AROUND_BYTES
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _next_frame(data: bytes, start: int, mark: int) -> int | None:
    sign = b"\xce" + mark.to_bytes(4, "big")
    place = data.find(sign, start)
    while place >= 0:
        at = place - 1 - _LENGTH.size  # before the mark: the length and the byte for "array"
        if at >= start and _enclosed(memoryview(data), at) is not None:
            return at
        place = data.find(sign, place + 1)
    return None


def _is_torn(data: bytes, offset: int) -> bool:
    """Return whether the end of the live segment can be an unfinished write: a part of it is still zeros."""
    if len(data) < _LENGTH.size:
        return True
    (length,) = _LENGTH.unpack_from(data)
    size = length + _AROUND_BYTES
    if not length or size > len(data) or data[size - 1] == 0:
        return True
    start = 0
    while start < size:
        stop = min(size, ((offset + start) // _SECTOR_BYTES + 1) * _SECTOR_BYTES - offset)
        if not any(data[start:stop]):
            return True
        start = stop
    return False
