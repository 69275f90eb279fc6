"""The end of a log as it is, against the end that was put on record after the last write: a lost end is noticed.

Events that are gone are damage. The mark of a clean end, which says nothing that is not known without it, is not.
"""

from __future__ import annotations

from everlog.core.event import Position
from everlog.stores.contract import Problem
from everlog.stores.segments.frame import closing_frame, mark_of
from everlog.stores.segments.known_end import KnownEnd
from everlog.stores.segments.packed_index import PackedPart
from everlog.stores.segments.segment import Segment
from everlog.stores.segments.source import Source
from everlog.stores.segments.walk import Gap, Tail, Walk


def compare_ends(known: KnownEnd, live: Segment, log_id: str) -> None:
    """Whole frames that are gone from the end are missed only by who knows that they were there."""
    live.lost_mark = _lost_mark(known, live, log_id)
    if live.lost_mark:
        live.problems.clear()  # the index files told no more than that
        return
    if known.number == live.number and known.end > live.end and not live.problems and live.tail is not Tail.DAMAGED:
        reason = (
            f"{live.number:08}.seg lost its end: it stops at position {live.head}, byte {live.end}, and went to "
            f"position {known.head}, byte {known.end}"
        )
        live.problems.append(Problem(Position(live.head + 1), "segment_cut", reason))


def ends_whole(source: Source, part: PackedPart, *, mark: int) -> bool:
    """Whether the last block that an index file tells of is there, byte for byte: one read, some frames."""
    walk = Walk(source, mark=mark, start=part.offsets[-1], head=Position(part.befores[-1]), limit=part.end)
    return not any(isinstance(found, Gap) for found in walk) and walk.tail is Tail.END


def _lost_mark(known: KnownEnd, live: Segment, log_id: str) -> bytes:
    """The mark of a clean end, if the live segment lost that and nothing else.

    What ended here was closed, so that its last frame was such a mark, and nothing was written since. If no more is
    missing than one mark takes, then nothing stood before it; and what it said is known from the frame before.
    """
    if not known.closed or (known.number, known.head) != (live.number, live.head) or live.gaps:
        return b""
    if live.index_end > known.end or any(one.code != "segment_cut" for one in live.problems):
        return b""
    last = live.parts[-1]
    mark = closing_frame(mark_of(log_id, live.number), live.end, last.fence, last.clock, live.head)
    fits = live.end + len(mark) == known.end and len(live.tail_bytes) <= len(mark)
    return mark if fits else b""
