"""The positions that no segment accounts for. Every reader stops there (G10)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from everlog.core.event import START, Position
from everlog.files import Files
from everlog.stores.segments.closed_end import SavedEnd
from everlog.stores.segments.format.frames import Gap, TailKind
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.index.packed_part import any_columns
from everlog.stores.segments.segment import Lost, Segment


class MissingSegments:
    """What index files still know of segments that are missing: the newest number, and the last position."""

    def __init__(
        self, files: Files, layout: Layout, log_id: str, numbers: Collection[int], known: Mapping[int, set[int]]
    ) -> None:
        self.newest, self.head = 0, START
        behind = [(number, start) for number, starts in known.items() if number not in numbers for start in starts]
        for number, start in behind:
            try:
                data = files.read_all(layout.part(number, start))
            except FileNotFoundError:
                continue
            columns = any_columns(data, log_id=log_id, number=number)
            if columns is not None:
                self.newest, self.head = max(self.newest, number), max(self.head, columns.head)


def lost_positions(
    segments: Sequence[Segment],
    *,
    newest: int,
    indexed_head: Position,
    saved_end: SavedEnd | None,
    accounted: Collection[Position],
) -> Iterator[Lost]:
    """Find them, in order. `accounted` are positions of purges and of what these removed."""
    there = {segment.number: segment for segment in segments}
    reached, last = START, Segment(0, archived=False)
    for number in range(1, newest + 1):
        segment = there.get(number)
        if segment is None:
            last = last if last.missing else Segment(number, archived=False, missing=True)
            continue
        before = reached if segment.header is None else segment.header.before
        if before > reached:
            yield from _lost(last, reached, before, accounted)
        reached, last = max(reached, segment.head), segment
    if last.missing or _lost_its_end(segments[-1], saved_end):
        # The greatest position that anything besides the segments mentions.
        heads = [segment.index_head for segment in segments]
        known = max(*heads, indexed_head, START if saved_end is None else saved_end.head)
        yield from _lost(last, reached, Position(max(reached + 1, known)), accounted)


def _lost(segment: Segment, before: Position, head: Position, accounted: Collection[Position]) -> Iterator[Lost]:
    # A rewritten segment may not mention purged positions at its end: the purge accounts for them.
    while before < head and before + 1 in accounted:
        before = Position(before + 1)
    if before < head:
        yield Lost(segment, Gap(segment.end, max(segment.size, segment.end), before, head))


def _lost_its_end(live: Segment, saved_end: SavedEnd | None) -> bool:
    if any(problem.code == "segment_cut" for problem in live.problems):
        return True
    if live.header is None and not any(part.offsets for part in live.parts):
        return True
    if saved_end is not None and saved_end.closed and (saved_end.number, saved_end.end) == (live.number, live.end):
        return False  # bytes after a clean end were not written by a log
    return live.tail is TailKind.DAMAGED and not live.lost_mark
