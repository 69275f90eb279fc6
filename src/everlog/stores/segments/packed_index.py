"""A part of the index as sorted arrays, and its file.

The file is one enclosed MessagePack array (length, body, SHA-256). It is derived: one that is missing, cut, changed,
of another log or of a segment that was written anew since is no index, and the part is made again from the log.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from everlog.core.event import Link, Position, Purge, Purged
from everlog.stores.contract import CLAIM_BYTES, Claim
from everlog.stores.segments.frame import enclose, open_body
from everlog.stores.segments.index import KIND, SCOPE, TYPE, LivePart
from everlog.stores.segments.inside import Inside
from everlog.stores.segments.walk import Gap

INDEX_FORMAT = 2
_NONE: Sequence[int] = ()


class Columns(msgspec.Struct, frozen=True, array_like=True):
    """What the file holds. Numbers are little-endian, in arrays of one kind each."""

    format: int
    log_id: str
    number: int
    generation: int
    start: int
    end: int
    before: Position
    head: Position
    events: int
    fence: int
    clock: int
    id_max: str
    closed: bool
    sweep_owed: bool | None
    offsets: bytes  # Q
    befores: bytes  # Q
    earliest_us: bytes  # q
    latest_us: bytes  # q
    id_lows: list[str]
    strays: dict[str, int]
    gaps: list[Gap]
    notes: dict[str, tuple[str | None, int | None]]
    purges: list[Purge]
    purged: list[Purged]
    links: dict[str, tuple[int, bytes]]
    stream_keys: bytes  # Q, sorted: the first half of the hash of each stream's name
    stream_seconds: bytes  # Q: the second half
    stream_lasts: bytes  # I
    stream_starts: bytes  # I, one more than streams: where in stream_blocks its blocks begin
    stream_blocks: bytes  # H
    names: tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]  # H: types, scopes, kinds
    claim_names: bytes  # 16 each, sorted
    claim_firsts: bytes  # Q
    claim_counts: bytes  # I
    inside: list[tuple[int, Inside]]  # with the block that it is the inside of


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(Columns).decode


def pack_part(part: LivePart, *, log_id: str, generation: int) -> bytes:
    """The file of a part."""
    streams = sorted((*_key(stream), stream) for stream in part.streams)
    starts, blocks = [0], array("H")
    for _, _, stream in streams:
        blocks.extend(part.streams[stream])
        starts.append(len(blocks))
    claims = sorted(part.made.items())
    columns = Columns(
        INDEX_FORMAT,
        log_id,
        part.number,
        generation,
        part.start,
        part.end,
        part.before,
        part.head,
        part.events,
        part.fence,
        part.clock,
        part.id_max,
        part.closed,
        part.sweep_owed,
        _bytes("Q", part.offsets),
        _bytes("Q", part.befores),
        _bytes("q", part.earliest_us),
        _bytes("q", part.latest_us),
        part.id_lows,
        part.strays,
        part.gaps,
        part.notes,
        part.purges,
        part.purged,
        {origin: (link.origin_seq, link.hash) for origin, link in part.links.items()},
        _bytes("Q", [first for first, _, _ in streams]),
        _bytes("Q", [second for _, second, _ in streams]),
        _bytes("I", [part.sequences[stream] for _, _, stream in streams]),
        _bytes("I", starts),
        _bytes("H", blocks),
        tuple(
            {name: _bytes("H", held) for name, held in part.names[family].items()} for family in (TYPE, SCOPE, KIND)
        ),  # type: ignore[arg-type]
        b"".join(name for name, _ in claims),
        _bytes("Q", [claim.first for _, claim in claims]),
        _bytes("I", [claim.count for _, claim in claims]),
        list(part.inside.items()),
    )
    return enclose(_encode(columns))


def load_part(data: bytes, *, log_id: str, number: int, generation: int, start: int) -> PackedPart | None:
    """The part of its file's bytes, or None if they are not the index of this stretch."""
    body = open_body(memoryview(data))
    if body is None:
        return None
    try:
        columns = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    wanted = (INDEX_FORMAT, log_id, number, generation, start)
    if (columns.format, columns.log_id, columns.number, columns.generation, columns.start) != wanted:
        return None
    return PackedPart(columns)


class PackedPart:
    def __init__(self, columns: Columns) -> None:
        self.number = columns.number
        self.start = columns.start
        self.end = columns.end
        self.before = columns.before
        self.head = columns.head
        self.events = columns.events
        self.fence = columns.fence
        self.clock = columns.clock
        self.id_max = columns.id_max
        self.closed = columns.closed
        self.sweep_owed = columns.sweep_owed
        self.offsets: Sequence[int] = _array("Q", columns.offsets)
        self.befores: Sequence[int] = _array("Q", columns.befores)
        self.earliest_us: Sequence[int] = _array("q", columns.earliest_us)
        self.latest_us: Sequence[int] = _array("q", columns.latest_us)
        self.id_lows = columns.id_lows
        self.strays: Mapping[str, int] = columns.strays
        self.gaps = columns.gaps
        self.notes: Mapping[str, tuple[str | None, int | None]] = columns.notes
        self.purges = columns.purges
        self.purged = columns.purged
        self._links = columns.links
        self._keys = _array("Q", columns.stream_keys)
        self._seconds = _array("Q", columns.stream_seconds)
        self._lasts = _array("I", columns.stream_lasts)
        self._starts = _array("I", columns.stream_starts)
        self._blocks = _array("H", columns.stream_blocks)
        self._names = columns.names
        self._claim_names = columns.claim_names
        self._claim_keys = _array("Q", _every_other_word(columns.claim_names), swap=True)
        self._claim_firsts = _array("Q", columns.claim_firsts)
        self._claim_counts = _array("I", columns.claim_counts)
        self.inside: Mapping[int, Inside] = dict(columns.inside)

    @property
    def links(self) -> Mapping[str, Link]:
        return {origin: Link(*link) for origin, link in self._links.items()}

    def stream_blocks(self, stream: str) -> Sequence[int]:
        place = self._stream(stream)
        return _NONE if place < 0 else self._blocks[self._starts[place] : self._starts[place + 1]]

    def last_sequence(self, stream: str) -> int:
        place = self._stream(stream)
        return 0 if place < 0 else self._lasts[place]

    def named_blocks(self, family: int) -> Iterable[tuple[str, Sequence[int]]]:
        return [(name, _array("H", blocks)) for name, blocks in self._names[family].items()]

    def claim(self, name: bytes) -> Claim | None:
        key = int.from_bytes(name[:8], "big")
        place = bisect_left(self._claim_keys, key)
        while place < len(self._claim_keys) and self._claim_keys[place] == key:
            if self._claim_names[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES] == name:
                return Claim(Position(self._claim_firsts[place]), self._claim_counts[place])
            place += 1
        return None

    def claimed_among(self, names: Collection[bytes]) -> Collection[bytes]:
        return [name for name in names if self.claim(name) is not None] if self._claim_names else ()

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        for place in range(len(self._claim_keys)):
            name = self._claim_names[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES]
            yield name, Claim(Position(self._claim_firsts[place]), self._claim_counts[place])

    def _stream(self, stream: str) -> int:
        first, second = _key(stream)
        place = bisect_left(self._keys, first)
        while place < len(self._keys) and self._keys[place] == first:
            if self._seconds[place] == second:
                return place
            place += 1
        return -1


def _key(stream: str) -> tuple[int, int]:
    """128 bits that stand for a stream's name: nobody finds two names with the same ones."""
    digest = hashlib.blake2b(stream.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def _bytes(kind: str, numbers: Iterable[int]) -> bytes:
    made = array(kind, numbers)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


def _array(kind: str, data: bytes, *, swap: bool = False) -> array[int]:
    made: array[int] = array(kind)
    made.frombytes(data)
    if swap != (sys.byteorder == "big"):
        made.byteswap()
    return made


def _every_other_word(names: bytes) -> bytes:
    """The first eight bytes of every sixteen."""
    words = array("Q")
    words.frombytes(names)
    return words[::2].tobytes()
