"""The end of the live segment, saved in a small file after every commit and when the log is closed.

Whole frames that disappear from the end of a segment leave no trace in it, because the frame before them is a valid
end. This file records the later end, so the loss is noticed. The file is derived and never flushed, which is safe:
the frames it describes were flushed before it was written. A power cut can make it older than the segment, never
newer. If the file is missing, a lost end is not noticed.

While `closed` is set, nothing was written after that end. A writer clears `closed`, and flushes that, before its
first frame. A writer that is killed later leaves an end that was reached but need not be the last one. Files of
earlier versions never have `closed` set.

Lost events are damage. The mark of a clean end is not: its content is known without it, and the next write restores
it.
"""

from __future__ import annotations

import logging

import msgspec
from msgspec.structs import replace

from everlog.core.event import Position
from everlog.errors import EverlogError, WriterStopped
from everlog.files import Files, Handle
from everlog.stores.contract import Problem
from everlog.stores.segments.format.frame import closing_frame, enclose, mark_of, open_body
from everlog.stores.segments.format.frames import Gap, TailKind, Walk
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.index.packed_part import PackedPart
from everlog.stores.segments.segment import Segment

_logger = logging.getLogger("everlog")


class SavedEnd(msgspec.Struct, frozen=True, array_like=True):
    log_id: str
    number: int
    end: int
    head: Position
    closed: bool = False  # nothing was written after it


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SavedEnd).decode


class EndFile:
    """The file, kept open by the writer. A failure here only means that a lost end may go unnoticed."""

    def __init__(self, files: Files, layout: Layout) -> None:
        self._files = files
        self._layout = layout
        self._handle: Handle | None = None
        self._failed = False

    def save(self, known: SavedEnd) -> None:
        if self._failed:
            return
        try:
            if self._handle is None:
                if not self._files.exists(self._layout.index):
                    self._files.make_dir(self._layout.index)
                self._handle = self._files.open(self._layout.end, write=True, create=True)
            self._files.write_all(self._handle, enclose(_encode(known)), at=0)
        except WriterStopped:
            raise
        except (OSError, EverlogError) as error:
            self._failed = True
            _logger.warning("the end of the log could not be saved in %s: %s", self._layout.end, error)

    def close(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            self._files.close(handle)


def take_back_closed(files: Files, layout: Layout, *, log_id: str) -> None:
    """Clear `closed` before something is written after the saved end. A crash after this returns cannot restore
    it."""
    if not files.exists(layout.end):  # it may have been removed; a crash must not bring it back
        files.fsync_dir(layout.index if files.exists(layout.index) else layout.root)
        return
    known = read_end(files, layout, log_id=log_id)
    handle = files.open(layout.end, write=True)
    try:
        if known is not None and known.closed:
            files.write_all(handle, enclose(_encode(replace(known, closed=False))), at=0)
        files.fsync(handle)  # even if already cleared: that writer may have been killed before its flush
    finally:
        files.close(handle)


def read_end(files: Files, layout: Layout, *, log_id: str) -> SavedEnd | None:
    """Return the saved end of this log, or None if the file is missing or damaged."""
    if not files.exists(layout.end):
        return None
    try:
        body = open_body(memoryview(files.read_all(layout.end)))
        known = None if body is None else _decode(body)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return known if known is not None and known.log_id == log_id else None


def compare_ends(known: SavedEnd, live: Segment, log_id: str) -> None:
    """Report a live segment that ends before its saved end: whole frames were lost."""
    live.lost_mark = _lost_mark(known, live, log_id)
    if live.lost_mark:
        live.problems.clear()  # they report the same loss
        return
    if (
        known.number == live.number
        and known.end > live.end
        and not live.problems
        and live.tail is not TailKind.DAMAGED
    ):
        reason = (
            f"{live.number:08}.seg lost its end: it stops at position {live.head}, byte {live.end}, and went to "
            f"position {known.head}, byte {known.end}"
        )
        live.problems.append(Problem(Position(live.head + 1), "segment_cut", reason))


def ends_whole(source: Source, part: PackedPart, *, mark: int) -> bool:
    """Return whether the last write of a part is complete in the segment. This costs one read of a few frames."""
    start = min(part.offsets[-1], part.last_write)
    walk = Walk(source, mark=mark, start=start, head=Position(part.befores[-1]), limit=part.end)
    return not any(isinstance(found, Gap) for found in walk) and walk.tail is TailKind.END


def _lost_mark(known: SavedEnd, live: Segment, log_id: str) -> bytes:
    """Return the mark of a clean end if the live segment lost that and nothing else, otherwise nothing.

    The log was closed here, so its last frame was such a mark, and nothing was written since. If no more bytes are
    missing than one mark has, no other frame was lost, and the content of the mark follows from the frame before it.
    """
    if not known.closed or (known.number, known.head) != (live.number, live.head) or live.gaps:
        return b""
    if live.index_end > known.end or any(one.code != "segment_cut" for one in live.problems):
        return b""
    last = live.parts[-1]
    mark = closing_frame(mark_of(log_id, live.number), live.end, last.fence, last.clock, live.head)
    fits = live.end + len(mark) == known.end and len(live.tail_bytes) <= len(mark)
    return mark if fits else b""
