"""The sparse index: for a stretch of a segment, which blocks of it hold a stream, a type, a scope, an id or a claim.

A block is a run of whole frames with 32 positions or 64 KiB, or one frame with many records, which has its own index
(`block_index`). The index only selects blocks; the reader reads them and filters. So the index never returns anything
that is not in the log. The newest stretch is a `LivePart`, in memory and valid from the moment of the commit. When it
has grown it becomes a `PackedPart`: sorted arrays in a file beside the segments, which is read instead of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Event, Link, Position, Purge, Purged, Recorded
from everlog.stores.contract import CLAIM_BYTES, Claim
from everlog.stores.segments.format.frame import CLOSED, PURGING, SWEPT, Frame
from everlog.stores.segments.format.frames import Found, Gap
from everlog.stores.segments.index.block_index import BlockIndex, block_index_of

BLOCK_POSITIONS = 32
BLOCK_BYTES = 64 * 1024
PART_EVENTS_MAX = 65536
PART_BLOCKS_MAX = 60_000

TYPE, SCOPE, KIND = 0, 1, 2
FOR_EVER = 2**63 - 1


class LivePart:
    """The index of the newest frames, in memory."""

    claims_until_us = FOR_EVER

    def __init__(self, number: int, start: int, before: Position, *, id_max: str, clock: int, fence: int) -> None:
        self.number = number
        self.start = self.end = start
        self.before = self.head = before
        self.events = 0
        self.fence = fence
        self.clock = clock
        self.id_max = id_max
        self.offsets: list[int] = []
        self.befores: list[int] = []
        self.earliest_us: list[int] = []
        self.latest_us: list[int] = []
        self.id_lows: list[str] = []
        self.strays: dict[str, int] = {}
        self.gaps: list[Gap] = []
        self.notes: dict[str, tuple[str | None, int | None]] = {}
        self.purges: list[Purge] = []
        self.purged: list[Purged] = []
        self.closed = False
        self.sweep_owed: bool | None = None
        self.streams: dict[str, list[int]] = {}
        self.sequences: dict[str, int] = {}
        self.names: tuple[dict[str, list[int]], ...] = ({}, {}, {})
        self.made: dict[bytes, Claim] = {}
        self.block_index: dict[int, BlockIndex] = {}  # for blocks that are one large frame
        self.fence_back: Position | None = None  # the head after a frame of a writer that had been replaced
        self._after_gap = False
        self._links: dict[str, Link] = {}
        self._ends: dict[str, tuple[Event, bytes | None]] = {}  # the last event per origin, not hashed yet

    @property
    def full(self) -> bool:
        return self.events >= PART_EVENTS_MAX or len(self.offsets) >= PART_BLOCKS_MAX

    @property
    def links(self) -> Mapping[str, Link]:
        for origin, (event, raw) in self._ends.items():
            if origin not in self._links or event.origin_seq > self._links[origin].origin_seq:
                digest = header_hash(header_bytes(event) if raw is None else raw)
                self._links[origin] = Link(event.origin_seq, digest)
        self._ends = {}
        return self._links

    def add(self, found: Found, claims: Mapping[bytes, Claim] | None = None) -> None:
        """Add a frame. `claims` are those in it, if the caller has them already."""
        frame = found.frame
        block_index = block_index_of(frame, found.body)
        block = self._block_for(found, alone=block_index is not None)
        if block_index is not None:
            self.block_index[block] = block_index
        if frame.records:
            self._add_records(frame, block)
            self._remember_ends(frame)
        rest = frame.rest
        if rest.claim_names:
            self.made.update(claims_of(frame) if claims is None else claims)
        if rest.notes:
            self.notes.update(rest.notes)
        if rest.purges or rest.purged:
            # An event purged here is already in its chain; one copied as purged from another log extends the chain.
            self._add_purged(rest.purges, rest.purged, known=rest.kind == PURGING)
        self.closed = rest.kind == CLOSED
        if rest.kind in (PURGING, SWEPT):
            self.sweep_owed = rest.kind == PURGING
        self.end, self.head = found.end, frame.head
        if frame.fence < self.fence:
            self.fence_back = frame.head
        self.clock, self.fence = frame.clock, max(frame.fence, self.fence)

    def add_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self._after_gap = True
        self.end, self.head = gap.end, gap.head

    def shed(self) -> None:
        """Drop the lookup of blocks. Only what describes the whole stretch remains."""
        self.id_lows, self.earliest_us, self.latest_us, self.befores = [], [], [], []
        self.strays, self.streams, self.sequences, self.made, self.block_index = {}, {}, {}, {}, {}
        self.names = ({}, {}, {})
        del self.offsets[1:]  # the first shows that the part is not empty

    def stream_blocks(self, stream: str) -> Sequence[int]:
        return tuple(self.streams.get(stream, ()))

    def last_sequence(self, stream: str) -> int:
        return self.sequences.get(stream, 0)

    def named_blocks(self, family: int) -> Iterable[tuple[str, Sequence[int]]]:
        return list(self.names[family].items())

    def claim(self, name: bytes) -> Claim | None:
        return self.made.get(name)

    def claimed_among(self, names: Collection[bytes]) -> Collection[bytes]:
        return () if self.made.keys().isdisjoint(names) else self.made.keys() & set(names)

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        return iter(list(self.made.items()))

    def _block_for(self, found: Found, *, alone: bool) -> int:
        before = found.frame.before
        if (
            not self.offsets
            or alone
            or len(self.offsets) - 1 in self.block_index
            or before - self.befores[-1] >= BLOCK_POSITIONS
            or found.start - self.offsets[-1] >= BLOCK_BYTES
            or self._after_gap
        ):
            # The parallel lists first: a reader that sees the new offset must find the rest of the block, too.
            self.befores.append(before)
            self.earliest_us.append(2**63 - 1)
            self.latest_us.append(0)
            self.id_lows.append(self.id_max)
            self.offsets.append(found.start)
            self._after_gap = False
        return len(self.offsets) - 1

    def _add_records(self, frame: Frame, block: int) -> None:
        records = frame.records
        self.events += len(records)
        if len(records) == 1:
            self._add_one(records[0], block)
            return
        touched = {record.event.stream: record.sequence for record in records}
        self.sequences.update(touched)
        types, scopes, kinds = self.names
        _note_block(types, {record.event.type for record in records}, block)
        _note_block(scopes, {record.event.scope for record in records}, block)
        _note_block(self.streams, touched, block)
        _note_block(kinds, {stream.partition("/")[0] for stream in touched}, block)
        ids = [record.event.id for record in records]
        if ids[0] > self.id_max and ids == sorted(ids):
            self.id_max = ids[-1]
        else:
            self._add_unordered(frame)
        times = {record.received_us for record in records}
        self.earliest_us[block] = min(self.earliest_us[block], *times)
        self.latest_us[block] = max(self.latest_us[block], *times)

    def _add_one(self, record: Recorded, block: int) -> None:
        """Add the only record of a frame. Sets of one would cost more than everything else."""
        event = record.event
        stream = event.stream
        self.sequences[stream] = record.sequence
        kind = stream.partition("/")[0]
        names = (event.type, event.scope, kind, stream)
        for holder, name in zip((*self.names, self.streams), names, strict=True):
            _note_block(holder, (name,), block)
        if event.id > self.id_max:
            self.id_max = event.id
        else:
            self.strays[event.id] = record.position
        if record.received_us < self.earliest_us[block]:
            self.earliest_us[block] = record.received_us
        if record.received_us > self.latest_us[block]:
            self.latest_us[block] = record.received_us

    def _add_unordered(self, frame: Frame) -> None:
        for record in frame.records:
            if record.event.id > self.id_max:
                self.id_max = record.event.id
            else:
                self.strays[record.event.id] = record.position

    def _remember_ends(self, frame: Frame) -> None:
        raw, ends, links = frame.rest.raw, self._ends, self._links
        for record in frame.records:
            event = record.event
            known = ends.get(event.origin)
            if known is not None and known[0].origin_seq >= event.origin_seq:
                continue
            link = links.get(event.origin)
            if link is None or event.origin_seq > link.origin_seq:
                kept = raw.get(record.position) if raw else None
                ends[event.origin] = (event, kept[0] if kept else None)

    def _add_purged(self, purges: Sequence[Purge], purged: Sequence[Purged], *, known: bool) -> None:
        self.purges.extend(purges)
        self.purged.extend(purged)
        if not known:
            links = dict(self.links)
            for gone in purged:
                if gone.origin not in links or gone.origin_seq > links[gone.origin].origin_seq:
                    links[gone.origin] = Link(gone.origin_seq, gone.hash)
            self._links = links


def claims_of(frame: Frame) -> dict[bytes, Claim]:
    names, places, before = frame.rest.claim_names, frame.rest.claim_places, frame.rest.before
    return {
        names[number * CLAIM_BYTES : (number + 1) * CLAIM_BYTES]: Claim(
            Position(before + places[2 * number]), places[2 * number + 1]
        )
        for number in range(len(names) // CLAIM_BYTES)
    }


def _note_block(holder: dict[str, list[int]], names: Iterable[str], block: int) -> None:
    for name in names:
        blocks = holder.get(name)
        if blocks is None:
            holder[name] = [block]
        elif blocks[-1] != block:
            blocks.append(block)
