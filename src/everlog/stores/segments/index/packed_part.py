"""A part of the index as sorted arrays, and its file.

The file is one enclosed MessagePack array (length, body, SHA-256). It is derived: a file that is missing, cut,
changed, of another log or of a segment that was rewritten since is ignored, and the part is rebuilt from the log.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from everlog.core.chain import Chain
from everlog.core.event import Position, Purge, Purged
from everlog.stores.contract import CLAIM_BYTES, Claim, Erasure
from everlog.stores.segments.format.frame import enclose, open_body
from everlog.stores.segments.format.frames import Gap
from everlog.stores.segments.index.live_part import FOR_EVER, KIND, SCOPE, TYPE, LivePart

INDEX_FORMAT = 3


class Columns(msgspec.Struct, frozen=True, array_like=True):
    """The content of the file. Numbers are little-endian, in arrays of one type each."""

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
    last_write: int
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
    erased: list[Erasure]
    chains: dict[str, Chain]
    stream_keys: bytes  # Q, sorted: first half of the hash of each stream name
    stream_seconds: bytes  # Q: the second half
    stream_lasts: bytes  # I
    stream_starts: bytes  # I, one more than streams: where its blocks begin in stream_blocks
    stream_blocks: bytes  # H
    names: tuple[dict[str, bytes], dict[str, bytes], dict[str, bytes]]  # H: types, scopes, kinds
    claim_names: bytes  # 16 each, sorted
    claim_firsts: bytes  # Q
    claim_counts: bytes  # I
    claims_until_us: int = FOR_EVER  # no claim is younger than this


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(Columns).decode


def file_of(columns: Columns) -> bytes:
    """Return the bytes of an index file."""
    return enclose(_encode(columns))


def columns_of(part: LivePart, *, log_id: str, generation: int) -> Columns:
    """Return the content of the part's file."""
    streams = sorted((*stream_key(stream), stream) for stream in part.streams)
    starts, blocks = [0], array("H")
    for _, _, stream in streams:
        blocks.extend(part.streams[stream])
        starts.append(len(blocks))
    claims = sorted(part.made.items())
    return Columns(
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
        part.last_write,
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
        part.erased,
        dict(part.chains),
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
        _youngest(part, [claim for _, claim in claims]),
    )


def _youngest(part: LivePart, claims: Sequence[Claim]) -> int:
    """Return the time of the last event that a claim of this part may refer to; a copied claim may refer to any
    event."""
    if all(part.before < claim.first <= part.head for claim in claims):
        return max(part.latest_us, default=0) or FOR_EVER
    return FOR_EVER


def load_columns(data: bytes, *, log_id: str, number: int, generation: int, start: int) -> Columns | None:
    """Decode an index file. Return None if it is not the index of this stretch."""
    columns = any_columns(data, log_id=log_id, number=number)
    if columns is None or (columns.generation, columns.start) != (generation, start):
        return None
    return columns


def any_columns(data: bytes, *, log_id: str, number: int) -> Columns | None:
    """Decode an index file of any stretch of this segment. Return None if it is damaged."""
    body = open_body(memoryview(data))
    if body is None:
        return None
    try:
        columns = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return columns if (columns.format, columns.log_id, columns.number) == (INDEX_FORMAT, log_id, number) else None


class PackedPart:
    """A part of the index whose names are looked up in its file, which `again` reads a second time for that."""

    def __init__(self, columns: Columns, again: Callable[[PackedPart], Columns]) -> None:
        self.number = columns.number
        self.start = columns.start
        self.end = columns.end
        self.before = columns.before
        self.head = columns.head
        self.events = columns.events
        self.fence = columns.fence
        self.clock = columns.clock
        self.id_max = columns.id_max
        self.last_write = columns.last_write
        self.closed = columns.closed
        self.sweep_owed = columns.sweep_owed
        self.offsets: Sequence[int] = numbers("Q", columns.offsets)
        self.befores: Sequence[int] = numbers("Q", columns.befores)
        self.earliest_us: Sequence[int] = numbers("q", columns.earliest_us)
        self.latest_us: Sequence[int] = numbers("q", columns.latest_us)
        self.id_lows = columns.id_lows
        self.strays: Mapping[str, int] = columns.strays
        self.gaps = columns.gaps
        self.notes: Mapping[str, tuple[str | None, int | None]] = columns.notes
        self.purges = columns.purges
        self.purged = columns.purged
        self.erased = columns.erased
        self.chains: Mapping[str, Chain] = columns.chains
        self._names = columns.names
        self._has_claims = bool(columns.claim_names)
        self.claims_until_us = columns.claims_until_us
        self._again = again
        self._found: PartTables | None = None

    def stream_blocks(self, stream: str) -> Sequence[int]:
        return self._tables().stream_blocks(stream)

    def last_sequence(self, stream: str) -> int:
        return self._tables().last_sequence(stream)

    def named_blocks(self, family: int) -> Iterable[tuple[str, Sequence[int]]]:
        return [(name, numbers("H", blocks)) for name, blocks in self._names[family].items()]

    def add_claims(self, names: Collection[bytes], found: dict[bytes, Claim]) -> None:
        if not self._has_claims:
            return
        tables = self._tables()
        for name in names:
            claim = tables.claim(name)
            if claim is not None:
                found[name] = claim

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        return self._tables().claims() if self._has_claims else iter(())

    def _tables(self) -> PartTables:
        if self._found is None:
            self._found = PartTables(self._again(self))
        return self._found


def _bytes(kind: str, given: Iterable[int]) -> bytes:
    made = array(kind, given)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()


_NONE: Sequence[int] = ()


class PartTables:
    """The tables of a part that are searched by name: blocks and last sequence of a stream, and claims.

    They are most of an index file, and a plain read of the log needs none of them: so a part loads them on first use.
    """

    def __init__(self, columns: Columns) -> None:
        self._keys = numbers("Q", columns.stream_keys)
        self._seconds = numbers("Q", columns.stream_seconds)
        self._lasts = numbers("I", columns.stream_lasts)
        self._starts = numbers("I", columns.stream_starts)
        self._blocks = numbers("H", columns.stream_blocks)
        self.claim_names = columns.claim_names
        self._claim_keys = numbers("Q", _every_other_word(columns.claim_names), swap=True)
        self._claim_firsts = numbers("Q", columns.claim_firsts)
        self._claim_counts = numbers("I", columns.claim_counts)

    def stream_blocks(self, stream: str) -> Sequence[int]:
        place = self._stream(stream)
        return _NONE if place < 0 else self._blocks[self._starts[place] : self._starts[place + 1]]

    def last_sequence(self, stream: str) -> int:
        place = self._stream(stream)
        return 0 if place < 0 else self._lasts[place]

    def claim(self, name: bytes) -> Claim | None:
        key = int.from_bytes(name[:8], "big")
        place = bisect_left(self._claim_keys, key)
        while place < len(self._claim_keys) and self._claim_keys[place] == key:
            if self.claim_names[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES] == name:
                return Claim(Position(self._claim_firsts[place]), self._claim_counts[place])
            place += 1
        return None

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        for place in range(len(self._claim_keys)):
            name = self.claim_names[place * CLAIM_BYTES : (place + 1) * CLAIM_BYTES]
            yield name, Claim(Position(self._claim_firsts[place]), self._claim_counts[place])

    def _stream(self, stream: str) -> int:
        first, second = stream_key(stream)
        place = bisect_left(self._keys, first)
        while place < len(self._keys) and self._keys[place] == first:
            if self._seconds[place] == second:
                return place
            place += 1
        return -1


def stream_key(stream: str) -> tuple[int, int]:
    """Return 128 bits that stand for a stream's name; a collision is practically impossible."""
    digest = hashlib.blake2b(stream.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def numbers(kind: str, data: bytes, *, swap: bool = False) -> array[int]:
    """Return an array from little-endian bytes; with `swap`, from big-endian ones."""
    made: array[int] = array(kind)
    made.frombytes(data)
    if swap != (sys.byteorder == "big"):
        made.byteswap()
    return made


def _every_other_word(names: bytes) -> bytes:
    """Return the first eight bytes of every sixteen."""
    words = array("Q")
    words.frombytes(names)
    return words[::2].tobytes()
