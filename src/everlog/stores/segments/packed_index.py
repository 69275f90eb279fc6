"""A part of the index as sorted arrays, and its file.

The file is one enclosed MessagePack array (length, body, SHA-256). It is derived: one that is missing, cut, changed,
of another log or of a segment that was written anew since is no index, and the part is made again from the log.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from everlog.core.event import Link, Position, Purge, Purged
from everlog.stores.contract import Claim
from everlog.stores.segments.finder import Finder, numbers, stream_key
from everlog.stores.segments.frame import enclose, open_body
from everlog.stores.segments.index import FOR_EVER, KIND, SCOPE, TYPE, LivePart
from everlog.stores.segments.inside import Inside
from everlog.stores.segments.walk import Gap

INDEX_FORMAT = 2


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
    claims_until_us: int = FOR_EVER  # no claim is younger than this


_encode = msgspec.msgpack.Encoder(order="sorted").encode
_decode = msgspec.msgpack.Decoder(Columns).decode


def file_of(columns: Columns) -> bytes:
    """The bytes of an index file."""
    return enclose(_encode(columns))


def columns_of(part: LivePart, *, log_id: str, generation: int) -> Columns:
    """What its file says."""
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
        _youngest(part, [claim for _, claim in claims]),
    )


def _youngest(part: LivePart, claims: Sequence[Claim]) -> int:
    """When the last event came that a claim of this part may be on. One that a copy brought may be on any event."""
    if all(part.before < claim.first <= part.head for claim in claims):
        return max(part.latest_us, default=0) or FOR_EVER
    return FOR_EVER


def load_columns(data: bytes, *, log_id: str, number: int, generation: int, start: int) -> Columns | None:
    """What an index file says, or None if it is not the index of this stretch."""
    columns = any_columns(data, log_id=log_id, number=number)
    if columns is None or (columns.generation, columns.start) != (generation, start):
        return None
    return columns


def any_columns(data: bytes, *, log_id: str, number: int) -> Columns | None:
    """What an index file of this segment says of any stretch of it, or None if it is not whole."""
    body = open_body(memoryview(data))
    if body is None:
        return None
    try:
        columns = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return columns if (columns.format, columns.log_id, columns.number) == (INDEX_FORMAT, log_id, number) else None


class PackedPart:
    """A part of the index whose names are looked up in the file; `again` reads it once more for that."""

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
        self._links = columns.links
        self._names = columns.names
        self._has_claims = bool(columns.claim_names)
        self.claims_until_us = columns.claims_until_us
        self._again = again
        self._found: Finder | None = None

    @property
    def links(self) -> Mapping[str, Link]:
        return {origin: Link(*link) for origin, link in self._links.items()}

    @property
    def inside(self) -> Mapping[int, Inside]:
        return self._finder().inside

    def stream_blocks(self, stream: str) -> Sequence[int]:
        return self._finder().stream_blocks(stream)

    def last_sequence(self, stream: str) -> int:
        return self._finder().last_sequence(stream)

    def named_blocks(self, family: int) -> Iterable[tuple[str, Sequence[int]]]:
        return [(name, numbers("H", blocks)) for name, blocks in self._names[family].items()]

    def claim(self, name: bytes) -> Claim | None:
        return self._finder().claim(name) if self._has_claims else None

    def claimed_among(self, names: Collection[bytes]) -> Collection[bytes]:
        return [name for name in names if self.claim(name) is not None] if self._has_claims else ()

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        return self._finder().claims() if self._has_claims else iter(())

    def _finder(self) -> Finder:
        if self._found is None:
            self._found = Finder(self._again(self))
        return self._found


def _bytes(kind: str, given: Iterable[int]) -> bytes:
    made = array(kind, given)
    if sys.byteorder == "big":
        made.byteswap()
    return made.tobytes()
