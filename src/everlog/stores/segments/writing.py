"""The one writer: it puts frames at the end of the live segment, begins new segments, and recovers the tail.

The space in front of the writer is zeros that are on the disk already, so that a flush has only data to bring there.
Every frame carries the writer's fencing number, one more than any before it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from everlog.core.codec import header_bytes, payload_bytes
from everlog.core.event import Position, Recorded
from everlog.errors import Damaged, EverlogError, StorageFull, WriterStopped
from everlog.files import Files, leftover_temps, replace_file
from everlog.stores.contract import FORMAT, Claim, Identity, Sealed
from everlog.stores.segments.book import Book
from everlog.stores.segments.frame import (
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
from everlog.stores.segments.header import End, Header, State, encode_header
from everlog.stores.segments.index import LivePart
from everlog.stores.segments.known_end import EndFile, KnownEnd, take_back_closed
from everlog.stores.segments.layout import Layout, Manifest, write_manifest
from everlog.stores.segments.packed_index import columns_of, file_of
from everlog.stores.segments.walk import Found
from everlog.stores.staging import Staged

_logger = logging.getLogger("everlog")

SPACE_BYTES_MAX = 1024 * 1024
SPACE_AFTER_FRAMES = 16
"""Space is made ahead only for who writes many frames: a short command would pay for what it never uses."""

PART_EVENTS_MIN = 2048
"""A shorter stretch is not worth an index file when the log is closed: walking through it takes milliseconds."""


def begin_log(files: Files, layout: Layout, identity: Identity, *, now_us: int) -> None:
    """The first segment of a log and its manifest."""
    header = Header(FORMAT, identity, 1, 1, Position(0), now_us, State())
    replace_file(files, layout.segment(1), encode_header(header))
    write_manifest(files, layout, Manifest(identity, 1))


def refuse_damage(layout: Layout, book: Book) -> None:
    """The log does not write over damage: what is lost in it may be a claim or the end of a stream (G10)."""
    problem = book.unsound()
    if problem is not None:
        raise Damaged(
            f"{layout.root} is damaged and takes no writes",
            why=problem.reason,
            hint="everlog verify; restore a backup, or save what is left: everlog export left.jsonl --past-damage",
        )


def refuse_lost_file(writer: Writer) -> None:
    """The file that is open must be the one that others see."""
    if not writer.has_its_file():
        raise Damaged(
            f"{writer.path} was removed or replaced while it was open",
            why="what is written now would be lost with the file that is gone",
            hint="put it back or restore a backup, then open the log again",
        )


class Writer:
    """Made under the lock. It leaves the log alone until `commit`, but for cutting a torn tail."""

    def __init__(
        self,
        files: Files,
        layout: Layout,
        book: Book,
        *,
        segment_bytes_max: int,
        segment_us_max: int,
        space_bytes: int = SPACE_BYTES_MAX,
    ) -> None:
        self._files = files
        self._layout = layout
        self._book = book
        self._segment_bytes_max = segment_bytes_max
        self._segment_us_max = segment_us_max
        self._space_bytes = space_bytes
        self._space_end = 0
        self._frames = 0
        self._end_file = EndFile(files, layout)
        self._begun = False  # something may stand behind the end at which the log was closed
        self.unsure = False  # what is on the disk behind the last frame is unknown: never write again (G12)
        self.outdated = False  # the files are not what this writer knows: look at them again before the next write
        self.stopped: WriterStopped | None = None  # a flush failed that no event depended on: no more writes (G12)
        refuse_damage(layout, book)
        for temp in (*leftover_temps(files, layout.segments), *leftover_temps(files, layout.root)):
            files.unlink(temp)
        self._handle = files.open(layout.segment(book.live.number), write=True)
        try:
            self._watch = files.watch(self._handle)
            refuse_lost_file(self)
            self._recover()
        except BaseException:
            files.close(self._handle)
            raise
        self.fence = book.fence + 1
        self._mark = mark_of(book.identity.log_id, book.live.number)

    @property
    def path(self) -> Path:
        """The live segment."""
        return self._handle.path

    def has_its_file(self) -> bool:
        """Whether what is written now will be found under the name of the live segment, where the book says."""
        return self._watch.inode == self._book.live.inode and self._watch.holds()

    # ---- recovering

    def _recover(self) -> None:
        """Cut what was never acknowledged, and make sure of what was: before anybody is served (F02, F05)."""
        if self._book.live.lost_mark:
            self._put_mark_back()
        files, segment, number = self._files, self._book.live, self._book.live.number
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
            # The length last: if this is cut short in turn, what is left must still look like what it is.
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
        """Nothing but the mark of a clean end was lost, and its bytes are known: the log is as it was."""
        segment, mark = self._book.live, self._book.live.lost_mark
        name = self._layout.segment(segment.number).name
        if not mark.startswith(segment.tail_bytes):
            kept = self._layout.torn(segment.number, segment.end)
            replace_file(self._files, kept, segment.tail_bytes)
            name += f" (what stood there is in {kept.name})"
        _logger.warning("%s: the mark of its clean end was lost and is put back; no event was in it", name)
        self._files.write_all(self._handle, mark, at=segment.end)
        self._files.fsync(self._handle)
        segment.lost_mark = b""
        self._book.refresh()

    def _write_last_again(self, start: int, end: int) -> None:
        # If a flush failed, the kernel may show bytes that never reached the disk and hold them for clean. Written
        # again they are dirty, and the flush that follows is an honest one.
        if start < end:
            self._files.write_all(self._handle, self._files.read(self._handle, end - start, at=start), at=start)

    # ---- committing

    def commit(self, staged: Staged, now_us: int) -> None:
        """Everything that was staged is on the disk when this returns, in one frame; or it raises, and is not."""
        self._rotate_if_due(now_us)
        records = [record for record, _ in staged.records]
        rest = _rest(staged, self._book)
        at = self._book.live.end
        frame = Frame(self._mark, at, self.fence, staged.clock, records, rest) if rest is not None else None
        data = encode_frame(self._mark, at, self.fence, staged.clock, records, rest)
        self._put(data, at)
        if frame is None:
            frame = Frame(self._mark, at, self.fence, staged.clock, records)
        self._book.links.update(staged.links)
        self._took(Found(frame, at, at + len(data), memoryview(data), at), staged.staged_claims)

    def _begin(self) -> None:
        """Before the first byte behind the known end: it is not to be taken for the last one any more."""
        if not self._begun:
            take_back_closed(self._files, self._layout, log_id=self._book.identity.log_id)
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
            # Nobody was told of it. Other processes that read this file should not be, either.
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
                # What is written now may fit all the same.
                self._files.truncate(self._handle, self._space_end)
                self._space_bytes = 0
                return
            self._files.fsync(self._handle)
            self._space_end += size

    def _wipe(self, at: int, size: int, *, after: BaseException) -> bool:
        """A write that failed half-way leaves no bytes for the next one to stand in front of. False if they stay."""
        try:
            left = min(size, self._files.size(self._handle) - at)
            if left > 0:
                self._files.write_all(self._handle, bytes(left), at=at)
        except (OSError, EverlogError) as also:
            after.add_note(f"and what it left in {self.path} could not be wiped: {also}")
            return False
        return True

    def _took(self, found: Found, claims: Mapping[bytes, Claim]) -> None:
        """The frame is on the disk: know it before anything else can fail."""
        book, frame = self._book, found.frame
        part = book.live.parts[-1]
        begun = not isinstance(part, LivePart) or part.full
        if begun:
            part = self._next_part()
        assert isinstance(part, LivePart)
        part.add(found, claims)
        book.clock = frame.clock
        if frame.rest.notes:
            book.add_notes(frame.rest.notes)
        if frame.rest.purges or frame.rest.purged:
            book.took(list(frame.rest.purges), list(frame.rest.purged))
        self.unsure = False
        self._save_end(closed=False)
        if begun:
            self.save_index(newest=False)

    def _save_end(self, *, closed: bool) -> None:
        live = self._book.live
        known = KnownEnd(self._book.identity.log_id, live.number, live.end, live.head, closed=closed)
        try:
            self._end_file.save(known)
        except WriterStopped as error:
            self.stopped = error

    # ---- index files

    def _next_part(self) -> LivePart:
        book = self._book
        last = book.live.parts[-1]
        part = LivePart(last.number, last.end, last.head, id_max=last.id_max, clock=last.clock, fence=last.fence)
        book.live.parts.append(part)
        book.changed()
        return part

    def save_index(self, *, events_min: int = 0, newest: bool = True) -> None:
        """Write the index files that are missing. Derived: what fails costs only time, and is tried again."""
        book = self._book
        for segment in book.segments:
            for place, part in enumerate(segment.parts):
                if not isinstance(part, LivePart) or part.gaps or part.end == part.start:
                    continue
                if segment is book.live and part.events < events_min:
                    continue
                if part is book.live.parts[-1] and not newest:
                    continue
                columns = columns_of(part, log_id=book.identity.log_id, generation=segment.generation)
                path = self._layout.part(part.number, part.start)
                try:
                    self._files.make_dir(self._layout.index)
                    replace_file(self._files, path, file_of(columns))
                except (OSError, EverlogError) as error:
                    _logger.warning("the index file %s could not be written: %s", path, error)
                    if isinstance(error, WriterStopped):
                        self.stopped = error
                    return
                segment.parts[place] = book.packed(segment, columns)
                book.changed()

    # ---- segments

    def _rotate_if_due(self, now_us: int) -> None:
        live = self._book.live
        assert live.header is not None
        if live.end == live.start or live.head == live.header.before:
            return
        if live.end >= self._segment_bytes_max or now_us - live.header.opened_us >= self._segment_us_max:
            self.rotate(now_us)

    def rotate(self, now_us: int) -> None:
        """Begin the next segment. The one before is complete: its end stands in the head of the new one."""
        self._begin()
        book, live = self._book, self._book.live
        number = live.number + 1
        end = End(live.end, self._files.read(self._handle, HASH_BYTES, at=live.end - HASH_BYTES))
        notes = {key: kept for key, kept in book.notes.items() if kept[1] is None or kept[1] > now_us}
        state = State(
            clock=book.clock,
            links={origin: (link.origin_seq, link.hash) for origin, link in book.links.items()},
            notes=notes,
            id_max=live.parts[-1].id_max,
        )
        header = Header(FORMAT, book.identity, number, self.fence, book.head, now_us, state, end)
        self._files.truncate(self._handle, live.end)
        self._files.fsync(self._handle)
        self.outdated = True  # from here on a frame in the old one might stand behind its end
        replace_file(self._files, self._layout.segment(number), encode_header(header))
        write_manifest(self._files, self._layout, Manifest(book.identity, number))
        self.save_index()
        if self.stopped is not None:
            raise self.stopped
        before, self._handle = self._handle, self._files.open(self._layout.segment(number), write=True)
        self._watch = self._files.watch(self._handle)
        self._files.close(before)
        book.load()
        self._mark = mark_of(book.identity.log_id, number)
        self._space_end = self._files.size(self._handle)
        self.outdated = False

    def mark(self, kind: int) -> None:
        """Put a frame that only says something of the log itself."""
        book = self._book
        at = book.live.end
        rest = Rest(kind, book.head, book.head)
        data = encode_frame(self._mark, at, self.fence, book.clock, [], rest)
        self._put(data, at)
        frame = Frame(self._mark, at, self.fence, book.clock, [], rest)
        self._took(Found(frame, at, at + len(data), memoryview(data), at), {})

    def close(self) -> None:
        """Mark the end as a clean one, give unused space back, and keep the index."""
        try:
            if self._frames:
                self.mark(CLOSED)
                if self._space_end > self._book.live.end:
                    self._files.truncate(self._handle, self._book.live.end)
                    self._files.fsync(self._handle)
                self.save_index(events_min=PART_EVENTS_MIN)
                self._save_end(closed=True)
        except StorageFull as error:
            # Every event is there; the next one to open it has to walk through the end once more.
            _logger.warning("%s: closed without the mark of a clean end: %s", self._layout.root, error)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without a word: what is on the disk is unknown."""
        try:
            self._end_file.close()
        finally:
            self._files.close(self._handle)


def _rest(staged: Staged, book: Book) -> Rest | None:
    """Everything of a write that is not a plain record."""
    raw = _raw(staged, book)
    plain = staged.records and not (
        staged.staged_claims or staged.staged_notes or staged.staged_purges or staged.placed_purged or raw
    )
    if plain:
        return None
    before = book.head
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


def _raw(staged: Staged, book: Book) -> dict[int, tuple[bytes, bytes]]:
    """The bytes of events that would not give them back. What this log stamped itself just now always does."""
    origin, now_us = book.identity.origin, staged.now_us
    return {
        recorded.position: (sealed.header, sealed.payload)
        for recorded, sealed in staged.records
        if (sealed.event.origin != origin or recorded.received_us != now_us) and not _gives_back(recorded, sealed)
    }


def _gives_back(recorded: Recorded, sealed: Sealed) -> bool:
    event = sealed.event
    return (
        header_bytes(event) == sealed.header
        and (payload_bytes(event.payload) if event.salt else b"") == sealed.payload
    )
