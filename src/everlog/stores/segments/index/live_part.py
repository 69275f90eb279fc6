"""The sparse index: for a stretch of a segment, which blocks of it hold a stream, a type, a scope, an id or a claim.

A block is a run of whole frames with 32 positions or 64 KiB, or one frame with more. The index only selects blocks;
the reader reads them and filters. So the index never returns anything
that is not in the log. The newest stretch is a `LivePart`, in memory and valid from the moment of the commit. When it
has grown it becomes a `PackedPart`: sorted arrays in a file beside the segments, which is read instead of the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from everlog.core.chain import Chain
from everlog.core.event import START, Position, Purge, Purged
from everlog.stores.contract import CLAIM_BYTES, Claim, Erasure
from everlog.stores.segments.format.frame import CLOSED, NOTHING_ELSE, PURGING, SWEPT, Frame, Rest
from everlog.stores.segments.format.frames import Found, Gap
from everlog.stores.segments.index.chains import ShownChains, last_position

BLOCK_POSITIONS = 32
BLOCK_BYTES = 64 * 1024
PART_EVENTS_MAX = 65536
PART_BLOCKS_MAX = 60_000

TYPE, SCOPE, KIND = 0, 1, 2
FOR_EVER = 2**63 - 1


Entry = tuple[int, int, str, str, str, str]
"""Of a record: its position, sequence, id, type, stream and scope."""


class Added(msgspec.Struct, gc=False):  # which is made without a call of Python, as a named tuple is not
    """A frame as the index needs it. Its own records are not looked at."""

    frame: Frame
    end: int
    before: Position
    head: Position
    last: Position  # of the last event of its group
    entries: Sequence[Entry]


def added_of(found: Found) -> Added:
    """Return a frame that was read."""
    frame = found.frame
    entries: list[Entry] = [
        (record.position, record.sequence, event.id, event.type, event.stream, event.scope)
        for record in frame.records
        for event in (record.event,)
    ]
    first = (frame.records[0].position, frame.records[0].event.origin_seq) if frame.records else None
    last = START if frame.facts is None else last_position(frame.facts, first, frame.before)
    return Added(frame, found.end, frame.before, frame.head, last, entries)


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
        self.erased: list[Erasure] = []
        self.closed = False
        self.sweep_owed: bool | None = None
        self.streams: dict[str, list[int]] = {}
        self.sequences: dict[str, int] = {}
        self.names: tuple[dict[str, list[int]], ...] = ({}, {}, {})
        self.made: dict[bytes, Claim] = {}
        self.fence_back: Position | None = None  # the head after a frame of a writer that had been replaced
        self._after_gap = False
        self.last_write = start  # where the last write begins
        self._reached = start, before  # the end and the head with the frames of a write that is not complete yet
        self._chains = ShownChains()

    @property
    def full(self) -> bool:
        return self.events >= PART_EVENTS_MAX or len(self.offsets) >= PART_BLOCKS_MAX

    @property
    def chains(self) -> Mapping[str, Chain]:
        """The chains of the origins that its frames add to, after them."""
        return self._chains.all()

    def add(self, added: Added, claims: Mapping[bytes, Claim] | None = None) -> None:
        """Add a frame. `claims` are those in it, if the caller has them already.

        Readers see the frames of one write together: `end` and `head` move with the last of them.
        """
        frame = added.frame
        block = self._block_for(added)
        if added.entries:
            self._add_entries(added, block)
        self._chains.add(frame, added.last)
        rest = frame.rest
        if rest is not NOTHING_ELSE:
            if rest.claim_names:
                self.made.update(_claims(rest, added.before) if claims is None else claims)
            if rest.notes:
                self.notes.update(rest.notes)
            self.purges.extend(rest.purges)
            self.purged.extend(rest.purged)
            self.erased.extend(rest.erased)
            if rest.kind in (PURGING, SWEPT):
                self.sweep_owed = rest.kind == PURGING
        self.closed = rest.kind == CLOSED
        if frame.fence < self.fence:
            self.fence_back = added.head
        self.clock, self.fence = frame.clock, max(frame.fence, self.fence)
        self.last_write = frame.at if frame.batch is None else frame.write_at
        self._reached = added.end, added.head
        if frame.batch is None or frame.is_last:
            self.publish()

    def publish(self) -> None:
        """Show what was added. At damage, a write may lack its last frame."""
        self.end, self.head = self._reached

    def add_gap(self, gap: Gap) -> None:
        self.gaps.append(gap)
        self._after_gap = True
        self._reached = gap.end, gap.head
        self.publish()

    def shed(self) -> None:
        """Drop the lookup of blocks. Only what describes the whole stretch remains."""
        self.id_lows, self.earliest_us, self.latest_us, self.befores = [], [], [], []
        self.strays, self.streams, self.sequences, self.made = {}, {}, {}, {}
        self.names = ({}, {}, {})
        del self.offsets[1:]  # the first shows that the part is not empty

    def stream_blocks(self, stream: str) -> Sequence[int]:
        return tuple(self.streams.get(stream, ()))

    def last_sequence(self, stream: str) -> int:
        return self.sequences.get(stream, 0)

    def named_blocks(self, family: int) -> Iterable[tuple[str, Sequence[int]]]:
        return list(self.names[family].items())

    def add_claims(self, names: Collection[bytes], found: dict[bytes, Claim]) -> None:
        made = self.made
        if not made.keys().isdisjoint(names):
            found.update({name: made[name] for name in names if name in made})

    def claims(self) -> Iterator[tuple[bytes, Claim]]:
        return iter(list(self.made.items()))

    def _block_for(self, added: Added) -> int:
        if (
            not self.offsets
            or added.before - self.befores[-1] >= BLOCK_POSITIONS
            or added.frame.at - self.offsets[-1] >= BLOCK_BYTES
            or self._after_gap
        ):
            # The parallel lists first: a reader that sees the new offset must find the rest of the block, too.
            self.befores.append(added.before)
            self.earliest_us.append(2**63 - 1)
            self.latest_us.append(0)
            self.id_lows.append(self.id_max)
            self.offsets.append(added.frame.at)
            self._after_gap = False
        return len(self.offsets) - 1

    def _add_entries(self, added: Added, block: int) -> None:
        entries = added.entries
        self.events += len(entries)
        types, scopes, kinds = self.names
        if len(entries) == 1:  # sets of one would cost more than everything else
            ((position, sequence, id, type, stream, scope),) = entries
            self.sequences[stream] = sequence
            named: tuple[tuple[dict[str, list[int]], Iterable[str]], ...] = (
                (types, (type,)),
                (scopes, (scope,)),
                (self.streams, (stream,)),
                (kinds, (stream.partition("/")[0],)),
            )
            if id > self.id_max:
                self.id_max = id
            else:
                self.strays[id] = position
        else:
            positions, sequences, ids, of_types, streams, of_scopes = zip(*entries, strict=True)
            touched = dict(zip(streams, sequences, strict=True))
            self.sequences.update(touched)
            named = (
                (types, set(of_types)),
                (scopes, set(of_scopes)),
                (self.streams, touched),
                (kinds, {stream.partition("/")[0] for stream in touched}),
            )
            self._add_ids(positions, ids)
        for holder, names in named:
            for name in names:
                blocks = holder.get(name)
                if blocks is None:
                    holder[name] = [block]
                elif blocks[-1] != block:
                    blocks.append(block)
        assert added.frame.facts is not None  # a frame with records has them
        received_us = added.frame.facts.received_us
        if received_us < self.earliest_us[block]:
            self.earliest_us[block] = received_us
        if received_us > self.latest_us[block]:
            self.latest_us[block] = received_us

    def _add_ids(self, positions: Sequence[int], ids: Sequence[str]) -> None:
        if ids[0] > self.id_max and list(ids) == sorted(ids):
            self.id_max = ids[-1]
            return
        for position, id in zip(positions, ids, strict=True):
            if id > self.id_max:
                self.id_max = id
            else:
                self.strays[id] = position


def _claims(rest: Rest, before: Position) -> dict[bytes, Claim]:
    names, places = rest.claim_names, rest.claim_places
    return {
        names[number * CLAIM_BYTES : (number + 1) * CLAIM_BYTES]: Claim(
            Position(before + places[2 * number]), places[2 * number + 1]
        )
        for number in range(len(names) // CLAIM_BYTES)
    }
