"""The only writer of a log: it appends frames to the live segment, starts new segments, and recovers the tail.

Space for the next frames is written ahead as zeros, so that a flush only has to write data. Every frame carries the
writer's fencing number, which is one more than that of any earlier writer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from everlog.core.chain import Chain
from everlog.core.event import Position
from everlog.errors import Damaged, EverlogError, StorageFull, WriterStopped
from everlog.files import Files, leftover_temps, replace_file
from everlog.stores.contract import Claim, Identity
from everlog.stores.formats import FORMAT
from everlog.stores.open_write import OpenWrite
from everlog.stores.segments.closed_end import EndFile, SavedEnd, take_back_closed
from everlog.stores.segments.format.frame import (
    CLOSED,
    HASH_BYTES,
    NOTHING_ELSE,
    SWEPT,
    Frame,
    encode_frame,
    mark_of,
)
from everlog.stores.segments.format.header import End, SegmentHeader, StartState, encode_header
from everlog.stores.segments.format.layout import Layout, Manifest, write_manifest
from everlog.stores.segments.index.live_part import Added, LivePart
from everlog.stores.segments.index.lookup import Part
from everlog.stores.segments.index.packed_part import columns_of, file_of
from everlog.stores.segments.recovery import recover, refuse_damage
from everlog.stores.segments.segment import Segment
from everlog.stores.segments.staged_frames import StagedFrame, frames_of, mark_frame
from everlog.stores.segments.state import LogState

_logger = logging.getLogger("everlog")

SPACE_BYTES_MIN = 64 * 1024
SPACE_BYTES_MAX = 1024 * 1024
SPACE_PART = 16
"""Space ahead is at most this part of the segment, so that a small log does not take much more than its events."""

SPACE_AFTER_FRAMES = 16
"""Space is written ahead only after this many frames: a short command would never use it."""

NOTHING: Mapping[Any, Any] = {}

PART_EVENTS_MIN = 2048
"""Fewer events get no index file when the log is closed: reading them takes milliseconds."""


def begin_log(files: Files, layout: Layout, identity: Identity, *, place: str, now_us: int) -> None:
    """Write the first segment of a log and its manifest."""
    header = SegmentHeader(FORMAT, identity, 1, 1, Position(0), now_us, StartState())
    replace_file(files, layout.segment(1), encode_header(header))
    write_manifest(files, layout, Manifest(identity, 1, place))


def refuse_lost_file(writer: Writer) -> None:
    """Refuse to write if the open file is no longer the one with the segment's name."""
    if not writer.has_its_file():
        raise Damaged(
            f"{writer.path} was removed or replaced while it was open",
            why="a write now would be lost with the removed file",
            hint="restore it or a backup, then open the log again",
        )


class Writer:
    """Created while the lock is held. Until `commit` it changes nothing, except that it cuts a torn tail."""

    def __init__(
        self,
        files: Files,
        layout: Layout,
        state: LogState,
        *,
        segment_bytes_max: int,
        segment_us_max: int,
        space_bytes: int = SPACE_BYTES_MAX,
    ) -> None:
        self._files = files
        self._layout = layout
        self._state = state
        self._segment_bytes_max = segment_bytes_max
        self._segment_us_max = segment_us_max
        self._space_bytes = space_bytes
        self._space_end = 0
        self._frames = 0
        self._end_file = EndFile(files, layout)
        self._begun = False  # something may follow the end at which the log was closed
        self.unsure = False  # the bytes on the disk after the last frame are unknown: never write again (G12)
        self.outdated = False  # files were replaced: load them again before the next write
        self.stopped: WriterStopped | None = None  # a flush failed on which no event depended: no more writes (G12)
        refuse_damage(layout, state)
        for temp in (*leftover_temps(files, layout.segments), *leftover_temps(files, layout.root)):
            files.unlink(temp)
        self._handle = files.open(layout.segment(state.live.number), write=True)
        try:
            self._watch = files.watch(self._handle)
            refuse_lost_file(self)
            self._space_end = recover(files, layout, state, self._handle)
        except BaseException:
            files.close(self._handle)
            raise
        self.fence = state.fence + 1
        self._mark = mark_of(state.identity.log_id, state.live.number)

    @property
    def path(self) -> Path:
        """The live segment."""
        return self._handle.path

    def has_its_file(self) -> bool:
        """Return whether the open file is still the live segment."""
        return self._watch.inode == self._state.live.inode and self._watch.holds()

    # ---- committing

    def commit(self, staged: OpenWrite) -> dict[str, int]:
        """Write everything that was staged under one flush, and return the last sequences of its streams. When this
        returns it is on the disk; if it raises, it is not."""
        self._rotate_if_due(staged.now_us)
        frames = frames_of(staged)
        self._write(frames, staged.clock, claims=staged.staged_claims, chains=staged.chains)
        touched: dict[str, int] = {}
        for frame in frames:
            for _, sequence, _, _, stream, _ in frame.entries:
                touched[stream] = sequence  # noqa: PERF403 - a comprehension would be a call
        return touched

    def _write(
        self,
        frames: Sequence[StagedFrame],
        clock: int,
        *,
        claims: Mapping[bytes, Claim] = NOTHING,
        chains: Mapping[str, Chain] = NOTHING,
    ) -> None:
        live = self._state.live
        start = at = live.parts[-1].end
        pieces, added = [], []
        for left, staged in zip(range(len(frames))[::-1], frames, strict=True):
            batch = None if len(frames) == 1 else (at - start, left)
            facts, rest = staged.facts, staged.rest
            data = encode_frame(self._mark, at, self.fence, clock, facts, staged.rows, rest, batch=batch)
            frame = Frame(self._mark, at, self.fence, clock, batch, facts, [], rest or NOTHING_ELSE)
            pieces.append(data)
            at += len(data)
            added.append(Added(frame, at, staged.before, staged.head, staged.last, staged.entries))
        self._put(pieces[0] if len(pieces) == 1 else b"".join(pieces), start)
        self._state.chains.update(chains)
        self._add(live, added, claims)

    def _begin(self) -> None:
        """Clear `closed` before the first byte after the saved end."""
        take_back_closed(self._files, self._layout, log_id=self._state.identity.log_id)
        self._begun = True

    def _put(self, data: bytes, at: int) -> None:
        if not self._begun:
            self._begin()
        end = at + len(data)
        if end > self._space_end:
            self._make_space(end)
        self.unsure = True
        written = False
        try:
            self._files.write_all(self._handle, data, at=at)
            written = True
            self._files.flush(self._handle)
        except BaseException as error:
            # The write was not acknowledged, so other processes must not read it either.
            self.unsure = not self._wipe(at, len(data), after=error) or written
            raise
        self._frames += 1
        self._space_end = max(self._space_end, end)

    def _make_space(self, end: int) -> None:
        if self._space_bytes and self._frames >= SPACE_AFTER_FRAMES:
            ahead = min(self._space_bytes, max(SPACE_BYTES_MIN, end // SPACE_PART))
            size = min(ahead, max(self._segment_bytes_max - end, 0)) + (end - self._space_end)
            try:
                self._files.write_all(self._handle, bytes(size), at=self._space_end)
            except StorageFull:
                # The frame itself may still fit.
                self._files.truncate(self._handle, self._space_end)
                self._space_bytes = 0
                return
            self._files.fsync(self._handle)
            self._space_end += size

    def _wipe(self, at: int, size: int, *, after: BaseException) -> bool:
        """Zero the bytes of a failed write. Return False if they could not be zeroed."""
        try:
            left = min(size, self._files.size(self._handle) - at)
            if left > 0:
                self._files.write_all(self._handle, bytes(left), at=at)
        except (OSError, EverlogError) as also:
            after.add_note(f"and its bytes in {self.path} could not be zeroed: {also}")
            return False
        return True

    def _add(self, live: Segment, frames: Sequence[Added], claims: Mapping[bytes, Claim]) -> None:
        """Add a write that is on the disk to the state, before anything else can fail."""
        state, last = self._state, frames[-1].frame
        part = live.parts[-1]
        begun = not isinstance(part, LivePart) or part.full
        if begun:
            part = self._next_part()
        assert isinstance(part, LivePart)
        for added in frames:
            part.add(added, claims)
        state.clock = last.clock
        rest = last.rest
        if rest.notes:
            state.add_notes(rest.notes)
        if rest.purges or rest.purged:
            state.add_purges(rest.purges, rest.purged)
        if rest.erased:
            state.add_erased(rest.erased)
        if rest.kind == SWEPT:
            state.swept()
        self.unsure = False
        self._save_end(part, closed=False)
        if begun:
            self.save_index(newest=False)

    def _save_end(self, last: Part, *, closed: bool) -> None:
        """Save the end of the live segment, which is that of its last part."""
        known = SavedEnd(self._state.identity.log_id, last.number, last.end, last.head, closed=closed)
        try:
            self._end_file.save(known)
        except WriterStopped as error:
            self.stopped = error

    # ---- index files

    def _next_part(self) -> LivePart:
        state = self._state
        last = state.live.parts[-1]
        part = LivePart(last.number, last.end, last.head, id_max=last.id_max, clock=last.clock, fence=last.fence)
        state.live.parts.append(part)
        state.changed()
        return part

    def save_index(self, *, events_min: int = 0, newest: bool = True) -> None:
        """Write the index files that are missing. They are derived: a failure only costs time, and is retried."""
        state = self._state
        for segment in state.segments:
            for place, part in enumerate(segment.parts):
                if not isinstance(part, LivePart) or part.gaps or part.end == part.start:
                    continue
                if segment is state.live and part.events < events_min:
                    continue
                if part is state.live.parts[-1] and not newest:
                    continue
                columns = columns_of(part, log_id=state.identity.log_id, generation=segment.generation)
                path = self._layout.part(part.number, part.start)
                try:
                    self._files.make_dir(self._layout.index)
                    replace_file(self._files, path, file_of(columns))
                except (OSError, EverlogError) as error:
                    _logger.warning("the index file %s could not be written: %s", path, error)
                    if isinstance(error, WriterStopped):
                        self.stopped = error
                    return
                segment.parts[place] = state.loader.packed(segment, columns)
                state.changed()

    # ---- segments

    def _rotate_if_due(self, now_us: int) -> None:
        live = self._state.live
        assert live.header is not None
        last = live.parts[-1]
        if last.end == live.start or last.head == live.header.before:
            return
        if last.end >= self._segment_bytes_max or now_us - live.header.opened_us >= self._segment_us_max:
            self.rotate(now_us)

    def rotate(self, now_us: int) -> None:
        """Start the next segment. Its head records where the previous one ends."""
        if not self._begun:
            self._begin()
        state, live = self._state, self._state.live
        number = live.number + 1
        end = End(live.end, self._files.read(self._handle, HASH_BYTES, at=live.end - HASH_BYTES))
        notes = {key: kept for key, kept in state.notes.items() if kept[1] is None or kept[1] > now_us}
        start = StartState(
            clock=state.clock,
            chains=state.chains,
            notes=notes,
            id_max=live.parts[-1].id_max,
        )
        header = SegmentHeader(FORMAT, state.identity, number, self.fence, state.head, now_us, start, end)
        self._files.truncate(self._handle, live.end)
        self._files.fsync(self._handle)
        self.outdated = True  # from here on, a frame in the old segment would be after its recorded end
        replace_file(self._files, self._layout.segment(number), encode_header(header))
        write_manifest(self._files, self._layout, Manifest(state.identity, number, state.place))
        self.save_index()
        if self.stopped is not None:
            raise self.stopped
        before, self._handle = self._handle, self._files.open(self._layout.segment(number), write=True)
        self._watch = self._files.watch(self._handle)
        self._files.close(before)
        state.load()
        self._mark = mark_of(state.identity.log_id, number)
        self._space_end = self._files.size(self._handle)
        self.outdated = False

    def mark(self, kind: int) -> None:
        """Write a frame without events, such as the mark of a clean end."""
        state = self._state
        self._write([mark_frame(kind, state.head)], state.clock)

    def close(self) -> None:
        """Write the mark of a clean end, release unused space, and save the index."""
        try:
            if self._frames:
                self.mark(CLOSED)
                if self._space_end > self._state.live.end:
                    self._files.truncate(self._handle, self._state.live.end)
                    self._files.fsync(self._handle)
                self.save_index(events_min=PART_EVENTS_MIN)
                self._save_end(self._state.live.parts[-1], closed=True)
        except StorageFull as error:
            # Every event is stored; the next process that opens the log reads its end again.
            _logger.warning("%s: closed without the mark of a clean end: %s", self._layout.root, error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without writing anything: the bytes on the disk are unknown."""
        try:
            self._end_file.close()
        finally:
            self._files.close(self._handle)
