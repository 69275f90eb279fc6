"""Recover the end of a log before it is written to: a torn tail is cut, and a lost mark of a clean end restored."""

from __future__ import annotations

import logging

from everlog.errors import Damaged
from everlog.files import Files, Handle, replace_file
from everlog.stores.segments.format.frame import LENGTH
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.state import LogState

_logger = logging.getLogger("everlog")


def refuse_damage(layout: Layout, state: LogState) -> None:
    """Refuse to write to a damaged log: a lost frame may hold a claim or the end of a stream (G10)."""
    problem = state.first_problem()
    if problem is not None:
        raise Damaged(
            f"{layout.root} is damaged and takes no writes",
            why=problem.reason,
            hint="everlog verify; restore a backup, or save what is left: everlog export left.jsonl --past-damage",
        )


def recover(files: Files, layout: Layout, state: LogState, handle: Handle) -> int:
    """Cut what was never acknowledged and flush what was, before any read or write is served (F02, F05). Return the
    size of the live segment."""
    if state.live.lost_mark:
        _put_mark_back(files, layout, state, handle)
    segment, number = state.live, state.live.number
    end = segment.end
    rest = files.read(handle, max(0, files.size(handle) - end), at=end)
    torn = rest.rstrip(b"\0")
    if torn:
        _logger.warning(
            "%s: %d bytes of a write that was never acknowledged were cut off and kept in %s",
            layout.segment(number).name,
            len(torn),
            layout.torn(number, end).name,
        )
        replace_file(files, layout.torn(number, end), torn)
        # Zero the length last: if this is interrupted, the rest must still look like a torn write.
        files.write_all(handle, bytes(max(len(torn) - LENGTH.size, 0)), at=end + LENGTH.size)
        files.fsync(handle)
        files.write_all(handle, bytes(min(len(torn), LENGTH.size)), at=end)
    if not segment.parts[-1].closed:
        starts = [part.last_write for part in segment.parts if part.offsets]
        _write_again(files, handle, starts[-1] if starts else segment.start, end)
        files.fsync(handle)
        files.fsync_dir(layout.segments)
    return files.size(handle)


def _put_mark_back(files: Files, layout: Layout, state: LogState, handle: Handle) -> None:
    """Restore the lost mark of a clean end. Its bytes are known, and nothing else was lost."""
    segment, mark = state.live, state.live.lost_mark
    name = layout.segment(segment.number).name
    if not mark.startswith(segment.tail_bytes):
        kept = layout.torn(segment.number, segment.end)
        replace_file(files, kept, segment.tail_bytes)
        name += f" (the previous bytes are in {kept.name})"
    _logger.warning("%s: the mark of its clean end was lost and is restored; it holds no event", name)
    files.write_all(handle, mark, at=segment.end)
    files.fsync(handle)
    segment.lost_mark = b""
    state.refresh()


def _write_again(files: Files, handle: Handle, start: int, end: int) -> None:
    """Write the last write of a log again.

    After a failed flush the kernel may return bytes that never reached the disk and treat them as clean. Writing them
    again makes them dirty, so that the next flush writes them.
    """
    if start < end:
        files.write_all(handle, files.read(handle, end - start, at=start), at=start)
