"""Verify every byte of a log: its segments without using an index, then the index files against the segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from everlog.core.event import START, Position
from everlog.files import Files
from everlog.stores.contract import Identity, Problem
from everlog.stores.segments.format.layout import Layout, read_manifest
from everlog.stores.segments.index.live_part import LivePart
from everlog.stores.segments.index.packed_part import columns_of, file_of, load_columns
from everlog.stores.segments.segment import Segment
from everlog.stores.segments.state import LogState


def problems(files: Files, layout: Layout, identity: Identity) -> Iterator[Problem]:
    manifest = read_manifest(files, layout)
    if manifest is None and files.exists(layout.manifest):
        yield Problem(START, "manifest_damaged", "log.json is damaged; the next write rebuilds it")
    newest = 0 if manifest is None else manifest.newest
    state = LogState(files, layout, identity, newest=newest, check_part=_part_checker(files, layout, identity))
    yield from state.all_problems()
    yield from _lost_mark(state)
    yield from _fences(state)
    for segment in state.segments:
        yield from segment.index_problems


def file_name_of(layout: Layout, state: LogState, position: Position) -> str:
    """Return the file of the segment that holds a position, or held it before the file was lost."""
    number = 1
    for segment in state.segments:
        if segment.header is not None and position <= segment.header.before:
            break  # in a segment that is missing
        number = segment.number
        if position <= segment.head:
            path = layout.archive(number) if segment.archived else layout.segment(number)
            return str(path.relative_to(layout.root))
        number += 1
    if state.segments and not any(problem.code == "segment_missing" for problem in state.problems):
        number = state.live.number  # it lost its end
    return str(layout.segment(number).relative_to(layout.root))


def _lost_mark(state: LogState) -> Iterator[Problem]:
    """The last bytes, which hold no event, were cut or changed: this is reported, and writes are still accepted."""
    if state.segments and state.live.lost_mark:
        live = state.live
        reason = (
            f"{live.number:08}.seg lost the mark of its clean end, bytes {live.end} to"
            f" {live.end + len(live.lost_mark) - 1}; no event was in it, and the next write puts it back"
        )
        yield Problem(START, "mark_lost", reason)


def _fences(state: LogState) -> Iterator[Problem]:
    """A writer that continued after another had replaced it is recognised by its smaller fencing number."""
    for part in state.parts:
        if isinstance(part, LivePart) and part.fence_back is not None:
            yield Problem(part.fence_back, "stale_writer", "it was written by a writer that had been replaced")


def _part_checker(files: Files, layout: Layout, identity: Identity) -> Callable[[Segment, LivePart], None]:
    """Return a check for index files that differ from the log. A damaged index file is no problem: it is rebuilt."""
    known = layout.parts(files)

    def check(segment: Segment, part: LivePart) -> None:
        if part.start not in known.get(segment.number, ()) or part.gaps:
            return
        try:
            data = files.read_all(layout.part(segment.number, part.start))
        except FileNotFoundError:
            return  # the writer has removed it since the files were listed
        found = load_columns(
            data,
            log_id=identity.log_id,
            number=segment.number,
            generation=segment.generation,
            start=part.start,
        )
        if found is None or found.end != part.end:
            return
        if data != file_of(columns_of(part, log_id=identity.log_id, generation=segment.generation)):
            reason = f"{layout.part(segment.number, part.start).name} does not match the log"
            segment.index_problems.append(Problem(START, "index_disagrees", reason))

    return check
