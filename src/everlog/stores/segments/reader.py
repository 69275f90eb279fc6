"""Read records from the blocks that the index selects. Each frame is verified by its hash."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from everlog.core.codec import Packed, header_bytes, payload_bytes
from everlog.core.event import START, Position, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.segments.format.frame import Frame, mark_of
from everlog.stores.segments.format.frames import Found, Gap, TailKind, Walk
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.index.block_index import BlockIndex
from everlog.stores.segments.index.lookup import Part, block_end, block_of_id, candidate_blocks
from everlog.stores.segments.segment import Lost, Segment, file_of_segment
from everlog.stores.segments.state import LogState

_BLOCKS_REMEMBERED_MAX = 256


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Adjacent blocks to read, or damage to report to the reader."""

    segment: Segment
    start: int
    end: int
    before: Position
    gap: Gap | None = None
    block_index: BlockIndex | None = None  # of a stretch that is one large frame


def stretches(
    state: LogState, query: Query, after: Position, upto: Position, *, whole: bool = True
) -> Iterator[Stretch]:
    """Return what has to be read for a query, in order. `whole` joins adjacent blocks into long stretches."""
    lost = [one for one in state.lost if _holds_any(one.gap, after, upto)]
    for segment in state.segments:
        while lost and segment.parts and lost[0].gap.head <= segment.parts[0].before:
            yield _of_lost(lost.pop(0))
        for part in segment.parts:
            if part.head <= after or part.before >= upto:
                continue
            blocks = candidate_blocks(part, query, after, upto)
            found = list(_of_blocks(segment, part, blocks, whole=whole, into=bool(query.stream and part.block_index)))
            found += [
                Stretch(segment, gap.start, gap.end, gap.before, gap)
                for gap in part.gaps
                if _holds_any(gap, after, upto)
            ]
            yield from sorted(found, key=_start) if part.gaps else found
    yield from map(_of_lost, lost)


def _of_lost(lost: Lost) -> Stretch:
    return Stretch(lost.segment, lost.gap.start, lost.gap.end, lost.gap.before, lost.gap)


def _start(stretch: Stretch) -> int:
    return stretch.start


def _of_blocks(segment: Segment, part: Part, blocks: Sequence[int], *, whole: bool, into: bool) -> Iterator[Stretch]:
    """Return the blocks as stretches, adjacent ones joined. With `into`, a large frame is a stretch with its
    index."""
    start, last = -1, -2
    for block in blocks:
        block_index = part.block_index.get(block) if into else None
        if block_index is not None:
            if last >= 0:
                yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))
                start, last = -1, -2
            before = Position(part.befores[block])
            yield Stretch(segment, part.offsets[block], block_end(part, block), before, None, block_index)
            continue
        if last >= 0 and not (whole and block == last + 1 and block_end(part, last) == part.offsets[block]):
            yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))
            start = block
        elif last < 0:
            start = block
        last = block
    if last >= 0:
        yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))


def frames(state: LogState, stretch: Stretch, after: Position, upto: Position) -> Iterator[Frame]:
    """Return the frames of a stretch. Raise at damage that covers one of these positions, known before or not."""
    if stretch.gap is not None:
        raise damage(state, stretch.segment, stretch.gap, after)
    with state.source(stretch.segment) as source:
        yield from _frames(state, source, stretch, after, upto)


def _frames(
    state: LogState, source: Source, stretch: Stretch, after: Position, upto: Position, holding: Sequence[bytes] = ()
) -> Iterator[Frame]:
    for found in _walk(state, source, stretch, holding):
        if not isinstance(found, Gap):
            yield found
        elif _holds_any(found, after, upto):
            raise damage(state, stretch.segment, found, after)


def _holds_any(gap: Gap, after: Position, upto: Position) -> bool:
    """Return whether a position in this range is lost. A damaged frame without events loses none."""
    return gap.head > max(after, gap.before) and gap.before < upto


def _walk(state: LogState, source: Source, stretch: Stretch, holding: Sequence[bytes] = ()) -> Iterator[Frame | Gap]:
    """Return the frames of a stretch, and a gap for bytes that are not a frame."""
    mark = mark_of(state.identity.log_id, stretch.segment.number)
    walk = Walk(source, mark=mark, start=stretch.start, head=stretch.before, limit=stretch.end, holding=holding)
    for found in walk:
        yield found if isinstance(found, Gap) else found.frame
    if walk.tail is not TailKind.END or walk.end != stretch.end:
        yield Gap(walk.end, stretch.end, walk.head, _next_before(state, stretch))


def _next_before(state: LogState, stretch: Stretch) -> Position:
    """Return the head before the first frame after a stretch, from the index. Positions up to it are lost."""
    for segment in state.segments:
        if segment.number < stretch.segment.number:
            continue
        if segment.number > stretch.segment.number and segment.header is not None:
            return segment.header.before
        for part in segment.parts:
            block = bisect_left(part.offsets, stretch.end) if segment.number == stretch.segment.number else 0
            if block < len(part.offsets):
                return Position(part.befores[block])
    return state.head


def damage(state: LogState, segment: Segment, gap: Gap, after: Position = START) -> Damaged:
    """Return the error of a reader that reaches unreadable positions from `after`. It names where to continue."""
    path = file_of_segment(state.layout, segment)
    first, last = max(gap.before, after) + 1, gap.head
    why = f"{path.name} is not there" if segment.missing else f"{path.name} is damaged from byte {gap.start} on"
    lost = f"position {last}" if last == first else f"positions {first} to {last}"
    return Damaged(
        f"{lost} of the log cannot be read",
        why=why,
        hint=f"everlog verify names all that is damaged; what follows can be read after position {last}",
        position=first,
        after=last,
        file=str(path.relative_to(state.layout.root)),
        segment=segment.number,
        offset=gap.start,
    )


def records(
    state: LogState, query: Query, after: Position, upto: Position, *, newest_first: bool = False
) -> Iterator[list[Recorded]]:
    """Return the matching records, in one list per frame or block: yielding each would cost as much as decoding
    it."""
    wanted = stretches(state, query, after, upto, whole=not newest_first)
    in_order: Iterable[Stretch] = reversed(list(wanted)) if newest_first else wanted
    for (segment, gap), mine in groupby(in_order, key=lambda stretch: (stretch.segment, stretch.gap)):
        if gap is not None:
            raise damage(state, segment, gap, after)
        with state.source(segment) as source:
            for stretch in mine:
                if newest_first:
                    yield from _newest_first(state, source, stretch, query, after, upto)
                else:
                    yield from _pieces(state, source, stretch, query, after, upto)


def _newest_first(
    state: LogState, source: Source, stretch: Stretch, query: Query, after: Position, upto: Position
) -> Iterator[list[Recorded]]:
    """Return the matching records of a stretch, newest first. Records after damage are returned before it raises."""
    try:
        yield [record for piece in _pieces(state, source, stretch, query, after, upto) for record in piece][::-1]
    except Damaged:
        newer: list[Recorded] = []
        last: Gap | None = None
        for found in _walk(state, source, stretch):
            if isinstance(found, Gap):
                newer, last = ([], found) if _holds_any(found, after, upto) else (newer, last)
            else:
                newer += [r for r in found.records if _fits(state, r, query, after, upto, everything=False)]
        yield newer[::-1]
        if last is not None:
            raise damage(state, stretch.segment, last, after) from None


def _pieces(
    state: LogState, source: Source, stretch: Stretch, query: Query, after: Position, upto: Position
) -> Iterator[list[Recorded]]:
    everything = query == EVERYTHING
    if stretch.block_index is not None:
        found = stretch.block_index.read(source, stretch.start, query.stream)
        if found is not None:
            yield [r for r in found if _fits(state, r, query, after, upto, everything=everything)]
            return
    # Matching records contain one of these texts, so others need not be decoded.
    holding = [name.encode() for name in ([query.stream] if query.stream else sorted(query.types))]
    for frame in _frames(state, source, stretch, after, upto, holding):
        found = frame.records
        if everything and not state.purged_at and frame.before >= after and frame.head <= upto:
            yield found
        else:
            yield [r for r in found if _fits(state, r, query, after, upto, everything=everything)]


def _fits(
    state: LogState, record: Recorded, query: Query, after: Position, upto: Position, *, everything: bool
) -> bool:
    return (
        after < record.position <= upto
        and record.position not in state.purged_at
        and (everything or query.matches(record))
    )


def with_headers(state: LogState, query: Query, after: Position, upto: Position) -> Iterator[tuple[Recorded, bytes]]:
    """Return what `records` returns, each with the bytes of its header."""
    for stretch in stretches(state, query, after, upto):
        for frame in frames(state, stretch, after, upto):
            for record in frame.records:
                if _fits(state, record, query, after, upto, everything=False):
                    yield record, _header(frame, record)


def _header(frame: Frame, record: Recorded) -> bytes:
    kept = frame.rest.raw.get(record.position)
    return kept[0] if kept else header_bytes(record.event)


def find(state: LogState, event_id: EventId) -> tuple[Recorded, bytes] | None:
    """Return the record of an id with the bytes of its header, or None if it is unknown or purged."""
    for segment in reversed(state.segments):
        for part in reversed(segment.parts):
            if not part.id_lows or (event_id not in part.strays and not part.id_lows[0] < event_id <= part.id_max):
                continue
            block = block_of_id(part, event_id)
            if block < 0:
                continue
            stretch = Stretch(segment, part.offsets[block], block_end(part, block), Position(part.befores[block]))
            if event_id not in _ids_in(state, stretch):
                continue
            for frame in frames(state, stretch, START, state.head):
                for record in frame.records:
                    if record.event.id == event_id and record.position not in state.purged_at:
                        return record, _header(frame, record)
    if event_id not in state.purged:
        for lost in state.gaps():
            raise damage(state, lost.segment, lost.gap)  # the event may have been in it
    return None


def _ids_in(state: LogState, stretch: Stretch) -> frozenset[EventId]:
    """Return the ids in a block. Those of recent blocks are remembered: a caller that looks for many ids, such as an
    import, reaches the same blocks again and rarely finds the id there."""
    place = (stretch.segment.inode, stretch.start, stretch.end)
    found = state.ids_in.get(place)
    if found is None:
        wanted = frames(state, stretch, START, state.head)
        found = frozenset(record.event.id for frame in wanted for record in frame.records)
        if len(state.ids_in) >= _BLOCKS_REMEMBERED_MAX:
            state.ids_in.clear()
        state.ids_in[place] = found
    return found


def places(state: LogState, after: Position, upto: Position) -> Iterator[Packed | Purged]:
    """Return every slot as stored bytes, including purged ones. Damage is skipped: `verify` counts what is lost."""
    purged = sorted((gone for gone in state.purged_at.values() if after < gone.position <= upto), key=_position)
    waiting = iter(purged)
    gone = next(waiting, None)
    for place in _packed(state, after, upto):
        while gone is not None and gone.position < place.position:
            yield gone
            gone = next(waiting, None)
        yield place
    while gone is not None:
        yield gone
        gone = next(waiting, None)


def _position(place: Packed | Purged) -> Position:
    return place.position


def _packed(state: LogState, after: Position, upto: Position) -> Iterator[Packed]:
    for stretch in stretches(state, EVERYTHING, after, upto):
        if stretch.gap is not None:
            continue
        with state.source(stretch.segment) as source:
            mark = mark_of(state.identity.log_id, stretch.segment.number)
            for found in Walk(source, mark=mark, start=stretch.start, head=stretch.before, limit=stretch.end):
                if isinstance(found, Found):
                    yield from _packed_of(state, found.frame, after, upto)


def _packed_of(state: LogState, frame: Frame, after: Position, upto: Position) -> Iterator[Packed]:
    raw = frame.rest.raw
    for record in frame.records:
        position, event = record.position, record.event
        if not after < position <= upto or position in state.purged_at:
            continue
        kept = raw.get(position) if raw else None
        if kept is None:
            kept = header_bytes(event), payload_bytes(event.payload) if event.salt else b""
        yield Packed(position, record.sequence, record.received_us, *kept, event.salt, event.signature, event.path)
