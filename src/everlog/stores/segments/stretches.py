"""What has to be read for a query: stretches of segments, their frames, and the damage in them.

Each frame is verified by its hash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec

from everlog.core.event import START, Position
from everlog.core.query import Query
from everlog.errors import Damaged
from everlog.stores.segments.format.frame import mark_of
from everlog.stores.segments.format.frames import Found, Gap, TailKind, Walk
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.index.lookup import Part, block_end, candidate_blocks
from everlog.stores.segments.segment import Lost, Segment, file_of_segment
from everlog.stores.segments.state import LogState


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Adjacent blocks to read, or damage to report to the reader."""

    segment: Segment
    start: int
    end: int
    before: Position
    gap: Gap | None = None


def stretches(
    state: LogState, query: Query, after: Position, upto: Position, *, whole: bool = True
) -> Iterator[Stretch]:
    """Return what has to be read for a query, in order. `whole` joins adjacent blocks into long stretches."""
    lost = [one for one in state.lost if holds_any(one.gap, after, upto)]
    for segment in state.segments:
        while lost and segment.parts and lost[0].gap.head <= segment.parts[0].before:
            yield _of_lost(lost.pop(0))
        for part in segment.parts:
            if part.head <= after or part.before >= upto:
                continue
            blocks = candidate_blocks(part, query, after, upto)
            found = list(_of_blocks(segment, part, blocks, whole=whole))
            found += [
                Stretch(segment, gap.start, gap.end, gap.before, gap)
                for gap in part.gaps
                if holds_any(gap, after, upto)
            ]
            yield from sorted(found, key=_start) if part.gaps else found
    yield from map(_of_lost, lost)


def _of_lost(lost: Lost) -> Stretch:
    return Stretch(lost.segment, lost.gap.start, lost.gap.end, lost.gap.before, lost.gap)


def _start(stretch: Stretch) -> int:
    return stretch.start


def _of_blocks(segment: Segment, part: Part, blocks: Sequence[int], *, whole: bool) -> Iterator[Stretch]:
    """Return the blocks as stretches, adjacent ones joined."""
    start, last = -1, -2
    for block in blocks:
        if last >= 0 and not (whole and block == last + 1 and block_end(part, last) == part.offsets[block]):
            yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))
            start = block
        elif last < 0:
            start = block
        last = block
    if last >= 0:
        yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))


def frames(
    state: LogState,
    source: Source,
    stretch: Stretch,
    after: Position,
    upto: Position,
    holding: Sequence[bytes] = (),
    *,
    whole: bool = True,
) -> Iterator[Found]:
    """Return the frames of a stretch. Raise at damage that covers one of these positions, known before or not.

    Records that hold none of the texts of `holding` may be left out of their frames, and so may those up to `after`
    if the frames need not be `whole`.
    """
    for found in steps(state, source, stretch, holding, START if whole else after):
        if isinstance(found, Found):
            yield found
        elif holds_any(found, after, upto):
            raise damage(state, stretch.segment, found, after)


def holds_any(gap: Gap, after: Position, upto: Position) -> bool:
    """Return whether a position in this range is lost. A damaged frame without events loses none."""
    return gap.head > max(after, gap.before) and gap.before < upto


def steps(
    state: LogState, source: Source, stretch: Stretch, holding: Sequence[bytes] = (), after: Position = START
) -> Iterator[Found | Gap]:
    """Return the frames of a stretch, and a gap for bytes that are not a frame."""
    mark = mark_of(state.identity.log_id, stretch.segment.number)
    walk = Walk(
        source, mark=mark, start=stretch.start, head=stretch.before, limit=stretch.end, holding=holding, after=after
    )
    yield from walk
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
