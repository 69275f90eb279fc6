"""What is known of one segment file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from everlog.core.event import START, Position
from everlog.stores.contract import Problem
from everlog.stores.segments.format.frames import Gap, TailKind
from everlog.stores.segments.format.header import HEAD_START, SegmentHeader
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.index.lookup import Part


class Segment:
    """One segment: its head, its parts, and where it ends if that is known."""

    def __init__(self, number: int, *, archived: bool, missing: bool = False) -> None:
        self.number = number
        self.archived = archived
        self.missing = missing  # there should be such a file
        self.inode: tuple[int, int] | None = None
        self.header: SegmentHeader | None = None
        self.start = HEAD_START
        self.size = 0  # how many bytes are there, unpacked
        self.limit: int | None = None
        self.parts: list[Part] = []
        self.tail = TailKind.END
        self.tail_bytes = b""
        self.index_end = 0  # how far its index files go
        self.index_head = START  # and to which position
        self.lost_mark = b""  # the frame of its clean end, if all that it lost is that
        self.problems: list[Problem] = []
        self.index_problems: list[Problem] = []  # of its index files, which matter to `verify` alone

    @property
    def generation(self) -> int:
        return 0 if self.header is None else self.header.generation

    @property
    def end(self) -> int:
        return self.parts[-1].end if self.parts else self.start

    @property
    def head(self) -> Position:
        return self.parts[-1].head if self.parts else START

    @property
    def gaps(self) -> list[Gap]:
        return [gap for part in self.parts for gap in part.gaps]


class Lost(msgspec.Struct, frozen=True, gc=False):
    """Positions that no segment accounts for, and the segment that had them; its file may be gone."""

    segment: Segment
    gap: Gap


def file_of_segment(layout: Layout, segment: Segment) -> Path:
    return layout.archive(segment.number) if segment.archived else layout.segment(segment.number)


def describe_gap(layout: Layout, segment: Segment, gap: Gap) -> str:
    name = file_of_segment(layout, segment).name
    lost = (
        "no position is missing" if gap.head <= gap.before else f"positions {gap.before + 1} to {gap.head} were there"
    )
    return f"{name}, bytes {gap.start} to {gap.end - 1} are not a frame; {lost}"
