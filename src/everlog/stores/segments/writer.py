"""The only writer of a log: it appends frames to the live segment, starts new segments, and recovers the tail.

Space for the next frames is written ahead as zeros, so that a flush only has to write data. Every frame carries the
writer's fencing number, which is one more than that of any earlier writer.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from everlog.core.codec import header_bytes, payload_bytes
from everlog.core.event import Position, Recorded, whole
from everlog.errors import Damaged, EverlogError, StorageFull, WriterStopped
from everlog.files import Files, leftover_temps, replace_file
from everlog.stores.contract import Claim, Encoded, Identity
from everlog.stores.formats import FORMAT
from everlog.stores.open_write import OpenWrite
from everlog.stores.segments.closed_end import EndFile, SavedEnd, take_back_closed
from everlog.stores.segments.format.frame import (
    CLOSED,
    COMMIT,
    HASH_BYTES,
    LENGTH,
    PURGING,
    Frame,
    Rest,
    encode_frame,
    mark_of,
)
from everlog.stores.segments.format.frames import Found
from everlog.stores.segments.format.header import End, SegmentHeader, StartState, encode_header
from everlog.stores.segments.format.layout import Layout, Manifest, write_manifest
from everlog.stores.segments.index.live_part import LivePart
from everlog.stores.segments.index.packed_part import columns_of, file_of
from everlog.stores.segments.state import LogState

_logger = logging.getLogger("everlog")

SPACE_BYTES_MAX = 1024 * 1024
SPACE_AFTER_FRAMES = 16
"""Space is written ahead only after this many frames: a short command would never use it."""

PART_EVENTS_MIN = 2048
"""Fewer events get no index file when the log is closed: reading them takes milliseconds."""


def begin_log(files: Files, layout: Layout, identity: Identity, *, place: str, now_us: int) -> None:
    """Write the first segment of a log and its manifest."""
    header = SegmentHeader(FORMAT, identity, 1, 1, Position(0), now_us, StartState())
    replace_file(files, layout.segment(1), encode_header(header))
    write_manifest(files, layout, Manifest(identity, 1, place))


def refuse_damage(layout: Layout, state: LogState) -> None:
    """Refuse to write to a damaged log: a lost frame may hold a claim or the end of a stream (G10)."""
    problem = state.first_problem()
    if problem is not None:
        raise Damaged(
            f"{layout.root} is damaged and takes no writes",
            why=problem.reason,
            hint="everlog verify; restore a backup, or save what is left: everlog export left.jsonl --past-damage",
        )


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
            self._recover()
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

    # ---- recovering

    def _recover(self) -> None:
        """Cut what was never acknowledged and flush what was, before any read or write is served (F02, F05)."""
        if self._state.live.lost_mark:
            self._put_mark_back()
        files, segment, number = self._files, self._state.live, self._state.live.number
        end = segment.end
        rest = files.read(self._handle, max(0, files.size(self._handle) - end), at=end)
        torn = rest.rstrip(b"\0")
        if torn:
            _logger.warning(
                "%s: %d bytes of a write that was never acknowledged were cut off and kept in %s",
                self._layout.segment(number).name,
                len(torn),
                self._layout.torn(number, end).name,
            )
            replace_file(files, self._layout.torn(number, end), torn)
            # Zero the length last: if this is interrupted, the rest must still look like a torn write.
            files.write_all(self._handle, bytes(max(len(torn) - LENGTH.size, 0)), at=end + LENGTH.size)
            files.fsync(self._handle)
            files.write_all(self._handle, bytes(min(len(torn), LENGTH.size)), at=end)
        part = segment.parts[-1]
        if not part.closed:
            self._write_last_again(part.offsets[-1] if part.offsets else segment.start, end)
            files.fsync(self._handle)
            files.fsync_dir(self._layout.segments)
        self._space_end = files.size(self._handle)

    def _put_mark_back(self) -> None:
        """Restore the lost mark of a clean end. Its bytes are known, and nothing else was lost."""
        segment, mark = self._state.live, self._state.live.lost_mark
        name = self._layout.segment(segment.number).name
        if not mark.startswith(segment.tail_bytes):
            kept = self._layout.torn(segment.number, segment.end)
            replace_file(self._files, kept, segment.tail_bytes)
            name += f" (the previous bytes are in {kept.name})"
        _logger.warning("%s: the mark of its clean end was lost and is restored; it holds no event", name)
        self._files.write_all(self._handle, mark, at=segment.end)
        self._files.fsync(self._handle)
        segment.lost_mark = b""
        self._state.refresh()

    def _write_last_again(self, start: int, end: int) -> None:
        # After a failed flush the kernel may return bytes that never reached the disk and treat them as clean.
        # Writing them again makes them dirty, so that the next flush writes them.
        if start < end:
            self._files.write_all(self._handle, self._files.read(self._handle, end - start, at=start), at=start)

    # ---- committing

    def commit(self, staged: OpenWrite, now_us: int) -> None:
        """Write everything that was staged as one frame. When this returns it is on the disk; if it raises, it is
        not."""
        self._rotate_if_due(now_us)
        records = [
            record if record.event.group is None else replace(record, event=whole(record.event))
            for record, _ in staged.records
        ]
        rest = _rest(staged, self._state)
        at = self._state.live.end
        frame = Frame(self._mark, at, self.fence, staged.clock, records, rest) if rest is not None else None
        data = encode_frame(self._mark, at, self.fence, staged.clock, records, rest)
        self._put(data, at)
        if frame is None:
            frame = Frame(self._mark, at, self.fence, staged.clock, records)
        self._state.links.update(staged.links)
        self._add_frame(Found(frame, at, at + len(data), memoryview(data), at), staged.staged_claims)

    def _begin(self) -> None:
        """Clear `closed` before the first byte after the saved end."""
        if not self._begun:
            take_back_closed(self._files, self._layout, log_id=self._state.identity.log_id)
            self._begun = True

    def _put(self, data: bytes, at: int) -> None:
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
            size = min(self._space_bytes, max(self._segment_bytes_max - end, 0)) + (end - self._space_end)
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

    def _add_frame(self, found: Found, claims: Mapping[bytes, Claim]) -> None:
        """Add a frame that is on the disk to the state, before anything else can fail."""
        state, frame = self._state, found.frame
        part = state.live.parts[-1]
        begun = not isinstance(part, LivePart) or part.full
        if begun:
            part = self._next_part()
        assert isinstance(part, LivePart)
        part.add(found, claims)
        state.clock = frame.clock
        if frame.rest.notes:
            state.add_notes(frame.rest.notes)
        if frame.rest.purges or frame.rest.purged:
            state.add_purges(list(frame.rest.purges), list(frame.rest.purged))
        self.unsure = False
        self._save_end(closed=False)
        if begun:
            self.save_index(newest=False)

    def _save_end(self, *, closed: bool) -> None:
        live = self._state.live
        known = SavedEnd(self._state.identity.log_id, live.number, live.end, live.head, closed=closed)
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
                segment.parts[place] = state.packed(segment, columns)
                state.changed()

    # ---- segments

    def _rotate_if_due(self, now_us: int) -> None:
        live = self._state.live
        assert live.header is not None
        if live.end == live.start or live.head == live.header.before:
            return
        if live.end >= self._segment_bytes_max or now_us - live.header.opened_us >= self._segment_us_max:
            self.rotate(now_us)

    def rotate(self, now_us: int) -> None:
        """Start the next segment. Its head records where the previous one ends."""
        self._begin()
        state, live = self._state, self._state.live
        number = live.number + 1
        end = End(live.end, self._files.read(self._handle, HASH_BYTES, at=live.end - HASH_BYTES))
        notes = {key: kept for key, kept in state.notes.items() if kept[1] is None or kept[1] > now_us}
        start = StartState(
            clock=state.clock,
            links={origin: (link.origin_seq, link.hash) for origin, link in state.links.items()},
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
        at = state.live.end
        rest = Rest(kind, state.head, state.head)
        data = encode_frame(self._mark, at, self.fence, state.clock, [], rest)
        self._put(data, at)
        frame = Frame(self._mark, at, self.fence, state.clock, [], rest)
        self._add_frame(Found(frame, at, at + len(data), memoryview(data), at), {})

    def close(self) -> None:
        """Write the mark of a clean end, release unused space, and save the index."""
        try:
            if self._frames:
                self.mark(CLOSED)
                if self._space_end > self._state.live.end:
                    self._files.truncate(self._handle, self._state.live.end)
                    self._files.fsync(self._handle)
                self.save_index(events_min=PART_EVENTS_MIN)
                self._save_end(closed=True)
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


def _rest(staged: OpenWrite, state: LogState) -> Rest | None:
    """Return what a write has besides plain records, or None."""
    raw = _raw(staged, state)
    plain = staged.records and not (
        staged.staged_claims or staged.staged_notes or staged.staged_purges or staged.placed_purged or raw
    )
    if plain:
        return None
    before = state.head
    claims = staged.staged_claims
    removed = [gone for _, gone_with_it in staged.staged_purges for gone in gone_with_it]
    return Rest(
        PURGING if removed else COMMIT,
        before=before,
        head=staged.position,
        claim_names=b"".join(claims),
        claim_places=tuple([number for claim in claims.values() for number in (claim.first - before, claim.count)]),
        notes=staged.staged_notes,
        purges=tuple(purge for purge, _ in staged.staged_purges),
        purged=(*removed, *staged.placed_purged),
        raw=raw,
    )


def _raw(staged: OpenWrite, state: LogState) -> dict[int, tuple[bytes, bytes]]:
    """Return the bytes of events that do not encode to the same bytes again. New events of this log always do."""
    origin, now_us = state.identity.origin, staged.now_us
    return {
        recorded.position: (encoded.header, encoded.payload)
        for recorded, encoded in staged.records
        if (encoded.event.origin != origin or recorded.received_us != now_us) and not _gives_back(recorded, encoded)
    }


def _gives_back(recorded: Recorded, encoded: Encoded) -> bool:
    event = encoded.event
    return (
        header_bytes(event) == encoded.header
        and (payload_bytes(event.payload) if event.salt else b"") == encoded.payload
    )
