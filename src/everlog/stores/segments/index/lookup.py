"""Find the blocks of a part that may hold the result of a query."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from everlog.core.event import Position, microseconds
from everlog.core.query import Query, in_scope
from everlog.stores.segments.index.live_part import KIND, SCOPE, TYPE, LivePart
from everlog.stores.segments.index.packed_part import PackedPart

Part = LivePart | PackedPart
"""The index of one stretch of one segment."""


def block_end(part: Part, block: int) -> int:
    """Return where a block ends: at the next block, or at damage before it."""
    end = part.offsets[block + 1] if block + 1 < len(part.offsets) else part.end
    for gap in part.gaps:
        if part.offsets[block] < gap.start < end:
            return gap.start
    return end


def block_of_position(part: Part, position: Position) -> int:
    return bisect_left(part.befores, position) - 1


def block_of_id(part: Part, event_id: str) -> int:
    """Return the only block that may hold this id."""
    stray = part.strays.get(event_id)
    if stray is not None:
        return block_of_position(part, Position(stray))
    return bisect_left(part.id_lows, event_id) - 1


def candidate_blocks(part: Part, query: Query, after: Position, upto: Position | None) -> Sequence[int]:
    """Return the blocks that may hold matching events, in order."""
    first = max(0, bisect_right(part.befores, after) - 1)
    last = len(part.befores) if upto is None else bisect_left(part.befores, upto)
    found: Sequence[int] = range(first, last)
    if query.stream:
        found = [block for block in part.stream_blocks(query.stream) if first <= block < last]
    for family, wanted in (
        (TYPE, query.types.__contains__ if query.types else None),
        (SCOPE, (lambda name: in_scope(name, query.scope)) if query.scope else None),
        (KIND, query.kind.__eq__ if query.kind else None),
    ):
        if wanted is not None and found:
            holding = {block for name, blocks in part.named_blocks(family) if wanted(name) for block in blocks}
            found = [block for block in found if block in holding]
    if query.since is not None:
        since_us = microseconds(query.since)
        found = [block for block in found if part.latest_us[block] >= since_us]
    if query.until is not None:
        until_us = microseconds(query.until)
        found = [block for block in found if part.earliest_us[block] < until_us]
    return found
