"""The state of a log: its segments in order, what is known of each, and the state at its end. It never writes.

A process that only reads checks before each answer whether the writer has added something (`refresh`). It flushes new
frames before it returns them: the writer may have been killed between its write and its flush, and an event that was
read once must survive a power cut. Frames of a log that was closed cleanly need no such flush.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from pathlib import Path

from everlog.core.event import BEGINNING, START, Link, Position, Purge, Purged
from everlog.core.ids import EventId
from everlog.errors import Damaged, EverlogError
from everlog.files import Files
from everlog.stores.contract import Claim, Identity, Problem
from everlog.stores.segments.closed_end import SavedEnd, compare_ends, ends_whole, read_end
from everlog.stores.segments.format.frame import mark_of
from everlog.stores.segments.format.frames import Gap, TailKind, Walk
from everlog.stores.segments.format.header import (
    HEAD_READ_BYTES,
    NoteValue,
    StartState,
    decode_header,
    head_size,
)
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.format.source import ArchiveSource, PlainSource, Source
from everlog.stores.segments.index.live_part import LivePart
from everlog.stores.segments.index.lookup import Part
from everlog.stores.segments.index.packed_part import Columns, PackedPart, any_columns, columns_of, load_columns
from everlog.stores.segments.segment import Lost, Segment, describe_gap, file_of_segment


class SegmentReplaced(Exception):
    """A segment was rewritten or packed since it was loaded."""


class LogState:
    def __init__(
        self,
        files: Files,
        layout: Layout,
        identity: Identity,
        *,
        newest: int = 0,
        check_part: Callable[[Segment, LivePart], None] | None = None,
    ) -> None:
        """With `check_part` index files are ignored and all frames are read. Each complete part is passed to
        `check_part` and then emptied, because an index of all frames would need too much memory."""
        self._files = files
        self._layout = layout
        self.identity = identity
        self.place = ""  # as log.json has it; known to a writer
        self._newest = newest
        self._check_part = check_part
        self._frozen: LogState | None = None
        self.ids_in: dict[
            tuple[tuple[int, int] | None, int, int], frozenset[EventId]
        ] = {}  # ids per block, see `reader`
        self.load()

    def load(self) -> None:
        """Read everything again: heads, index files, and the frames that no index file covers.

        The result replaces the old state in one step. If reading fails or is interrupted, the state stays as it was:
        a writer with half a state would overwrite the other half of the log.
        """
        fresh = copy(self)
        fresh._read()
        vars(self).update(vars(fresh))

    def _read(self) -> None:
        while True:
            # First, before the writer can add to it.
            saved_end = read_end(self._files, self._layout, log_id=self.identity.log_id)
            parts = self._layout.parts(self._files)
            numbers = self._layout.numbers(self._files)
            if not numbers and not self._layout.numbers(self._files):
                raise no_segments(self._layout)
            try:
                self._load(numbers, parts, saved_end)
            except FileNotFoundError:
                # A writer that packs a segment, or rewrites one for a purge, removes a file that was listed.
                if self._layout.numbers(self._files) == numbers:
                    raise
            else:
                if self._is_unchanged(numbers):
                    return

    def _is_unchanged(self, numbers: Mapping[int, bool]) -> bool:
        """Return False if a writer replaced files while they were read, so that the result may mix old and new: a
        purge rewrites segments, and a listing of a changing folder may omit a file that exists."""
        if any(self._files.inode(self._path(segment)) != segment.inode for segment in self.segments):
            return False
        return self.first_problem() is None or self._layout.numbers(self._files) == numbers

    def _load(self, numbers: Mapping[int, bool], known: Mapping[int, set[int]], saved_end: SavedEnd | None) -> None:
        self._frozen = None
        self._half_refreshed = False
        self.segments: list[Segment] = []
        self.problems: list[Problem] = []
        self.purges: list[Purge] = []
        self.purged: dict[EventId, Purged] = {}
        self.purged_at: dict[Position, Purged] = {}
        self.lost: list[Lost] = []
        self._forget_state()
        # A writer clears `closed` before its first frame, and sets it after its last flush.
        closed = saved_end is not None and saved_end.closed and saved_end.number == max(numbers, default=0)
        self._flushed = (saved_end.number, saved_end.end) if saved_end is not None and closed else (0, 0)
        if not closed and self._files.exists(self._layout.segments):
            self._files.fsync_dir(self._layout.segments)  # names, too, are flushed before anything is returned
        self._newest = max([*numbers, self._newest, 0 if saved_end is None else saved_end.number])
        self._indexed_head = self._head_of_missing_segments(numbers, known)
        for number in range(1, self._newest + 1):
            if number not in numbers:
                reason = f"the file {self._layout.segment(number).name} is missing"
                self.problems.append(Problem(START, "segment_missing", reason))
        for number, archived in numbers.items():
            self.segments.append(self._open_segment(number, archived))
        for before, segment in zip([None, *self.segments], self.segments, strict=False):
            self._set_limit(before, segment)
        for segment in self.segments:
            self._fill(segment, known.get(segment.number, set()))
        if saved_end is not None:
            compare_ends(saved_end, self.live, self.identity.log_id)
        self._add_state()
        self._account(saved_end)

    def _head_of_missing_segments(self, numbers: Collection[int], known: Mapping[int, set[int]]) -> Position:
        """Return the last position in index files of missing segments that were the newest."""
        head = START
        behind = [(number, start) for number, starts in known.items() if number not in numbers for start in starts]
        for number, start in behind:
            try:
                data = self._files.read_all(self._layout.part(number, start))
            except FileNotFoundError:
                continue
            columns = any_columns(data, log_id=self.identity.log_id, number=number)
            if columns is not None:
                self._newest, head = max(self._newest, number), max(head, columns.head)
        return head

    def _account(self, saved_end: SavedEnd | None) -> None:
        """Find the positions that no segment accounts for. Every reader stops there (G10)."""
        self._ends_damaged = self.live.tail is TailKind.DAMAGED
        there = {segment.number: segment for segment in self.segments}
        reached, last = START, Segment(0, archived=False)
        for number in range(1, self._newest + 1):
            segment = there.get(number)
            if segment is None:
                last = last if last.missing else Segment(number, archived=False, missing=True)
                continue
            before = reached if segment.header is None else segment.header.before
            if before > reached:
                self._lose(last, reached, before)
            reached, last = max(reached, segment.head), segment
        if last.missing or self._lost_its_end(saved_end):
            head = Position(max(reached + 1, self._known_head(saved_end)))
            self._lose(last, reached, head)

    def _lose(self, segment: Segment, before: Position, head: Position) -> None:
        # A rewritten segment may not mention purged positions at its end: the purge accounts for them.
        removed = {purge.reserved for purge in self.purges}
        while before < head and (before + 1 in self.purged_at or before + 1 in removed):
            before = Position(before + 1)
        if before < head:
            self.lost.append(Lost(segment, Gap(segment.end, max(segment.size, segment.end), before, head)))

    def _lost_its_end(self, saved_end: SavedEnd | None) -> bool:
        live = self.live
        if any(problem.code == "segment_cut" for problem in live.problems):
            return True
        if live.header is None and not any(part.offsets for part in live.parts):
            return True
        if (
            saved_end is not None
            and saved_end.closed
            and (saved_end.number, saved_end.end) == (live.number, live.end)
        ):
            return False  # bytes after a clean end were not written by a log
        return self._ends_damaged and not live.lost_mark

    def _known_head(self, saved_end: SavedEnd | None) -> Position:
        """Return the greatest position that anything besides the segments mentions."""
        heads = [segment.index_head for segment in self.segments]
        return max(*heads, self._indexed_head, START if saved_end is None else saved_end.head)

    # ---- content

    @property
    def layout(self) -> Layout:
        return self._layout

    @property
    def live(self) -> Segment:
        return self.segments[-1]

    @property
    def head(self) -> Position:
        """The last position that was assigned, as far as known. Its event may be lost."""
        return self.lost[-1].gap.head if self.lost and self.lost[-1].gap.head > self.live.head else self.live.head

    @property
    def parts(self) -> list[Part]:
        return [part for segment in self.segments for part in segment.parts]

    def claim(self, name: bytes, *, since_us: int) -> Claim | None:
        """Return the last claim of a name. Parts with only older claims are not loaded."""
        for segment in reversed(self.segments):
            for part in reversed(segment.parts):
                found = part.claim(name) if part.claims_until_us >= since_us else None
                if found is not None:
                    return found
        return None

    def claimed_among(self, names: Collection[bytes], *, since_us: int) -> set[bytes]:
        young = [part for part in self.parts if part.claims_until_us >= since_us]
        return {name for part in young for name in part.claimed_among(names)}

    def link(self, origin: str) -> Link:
        return self.links.get(origin, BEGINNING)

    def sequence(self, stream: str) -> int:
        purged = self._purged_sequences.get(stream, 0)
        for segment in reversed(self.segments):
            for part in reversed(segment.parts):
                found = part.last_sequence(stream)
                if found:
                    return max(found, purged)
        return purged

    def gaps(self) -> Iterator[Lost]:
        """Return all positions that are known to be lost."""
        for segment in self.segments:
            yield from (Lost(segment, gap) for gap in segment.gaps if gap.head > gap.before)
        yield from self.lost

    def all_problems(self) -> Iterator[Problem]:
        yield from self.problems
        for segment in self.segments:
            yield from segment.problems
            for gap in segment.gaps:
                yield Problem(Position(gap.before + 1), "damaged_bytes", describe_gap(self._layout, segment, gap))
        if self.live.tail is TailKind.DAMAGED and not self.live.lost_mark:
            reason = f"{self.live.number:08}.seg is damaged from byte {self.live.end} to its end"
            yield Problem(Position(self.live.head + 1), "damaged_bytes", reason)

    @property
    def sweep_owed(self) -> bool:
        """Whether a purge was committed whose bytes may still be in the segments."""
        owed = [part.sweep_owed for part in self.parts if part.sweep_owed is not None]
        return bool(owed) and owed[-1] is True

    def frozen(self) -> LogState:
        """Return a copy of the state for a reader that does not block the writer. Only its live part still grows."""
        if self._frozen is None:
            made = copy(self)
            made.segments = [copy(segment) for segment in self.segments]
            for segment in made.segments:
                segment.parts = list(segment.parts)
            self._frozen = made
        return self._frozen

    def changed(self) -> None:
        """Segments or parts were replaced."""
        self._frozen = None

    # ---- refreshing

    def refresh(self) -> bool:
        """Load what the writer has added since. Return whether there was anything."""
        if self._half_refreshed:  # the last refresh was interrupted, perhaps within a frame
            self.load()
            return True
        self._half_refreshed = True
        grown = self._take_in_growth()
        self._half_refreshed = False
        return grown

    def _take_in_growth(self) -> bool:
        grown = False
        try:
            with self.source(self.live) as source:
                if source.size < self.live.end:
                    raise SegmentReplaced
                grown = self._walk_on(self.live, source)
        except SegmentReplaced:
            # It was packed, rewritten, cut or removed.
            self.load()
            return True
        if (self.live.tail is TailKind.DAMAGED) != self._ends_damaged:
            self.load()  # it was damaged since, or repaired
            return True
        if grown and any(isinstance(part, LivePart) and part.purges for part in self.live.parts):
            purges = sum(len(part.purges) for part in self.parts)
            if purges != len(self.purges):
                self.load()  # earlier segments are being rewritten
                return True
        following = self.live.number + 1
        if self._files.exists(self._layout.segment(following)):
            self.load()
            return True
        if grown:
            self.changed()
            self._add_state()
        return grown

    def add_purges(self, purges: list[Purge], purged: list[Purged]) -> None:
        """Add purges that were written at the end."""
        for purge in purges:
            self.purges.append(purge)
            self._purged_sequences[purge.stream] = purge.sequence
        for gone in purged:
            self.purged[gone.id] = gone
            self.purged_at[gone.position] = gone

    @contextmanager
    def source(self, segment: Segment) -> Iterator[Source]:
        """Open the bytes of a segment. Raise `SegmentReplaced` if they are not those that its parts describe."""
        try:
            source = self._open(segment)
        except FileNotFoundError as error:
            raise SegmentReplaced from error
        try:
            if self._files.inode(self._path(segment)) != segment.inode:
                raise SegmentReplaced
            yield source
        finally:
            source.close()

    # ---- internal

    def _path(self, segment: Segment) -> Path:
        return file_of_segment(self._layout, segment)

    def _open(self, segment: Segment) -> Source:
        path = self._path(segment)
        return ArchiveSource(self._files, path) if segment.archived else PlainSource(self._files, path)

    def _open_segment(self, number: int, archived: bool) -> Segment:
        segment = Segment(number, archived=archived)
        path = self._path(segment)
        segment.inode = self._files.inode(path)
        try:
            source = self._open(segment)
        except EverlogError as error:
            segment.problems.append(Problem(START, "segment_unreadable", str(error)))
            return segment
        try:
            segment.size = source.size
            if source.damage:
                segment.problems.append(Problem(START, "segment_unreadable", source.damage))
            data = source.read(0, HEAD_READ_BYTES)
            if head_size(data) > len(data):
                data = source.read(0, min(head_size(data), source.size))
        finally:
            source.close()
        found = decode_header(data, name=str(path))
        if found is None or found[0].number != number:
            why = "it is empty" if not data else "its head is damaged"
            segment.problems.append(Problem(START, "segment_head_damaged", f"{path.name}: {why}"))
            return segment
        segment.header, segment.start = found
        if segment.header.identity.log_id != self.identity.log_id:
            raise Damaged(
                f"{path} belongs to another log",
                why=f"it is of the log {segment.header.identity.log_id}, this one is {self.identity.log_id}",
                hint="restore the segment of this log",
            )
        return segment

    def _set_limit(self, before: Segment | None, segment: Segment) -> None:
        """Set where the segment before this one ends, from the head of this one."""
        header = segment.header
        if before is None or header is None or header.previous is None or before.number + 1 != segment.number:
            return
        before.limit = header.previous.size
        if before.header is not None and before.header.generation:
            before.limit = before.header.end
            if before.header.first_end != header.previous:
                reason = f"{segment.number:08}.seg does not follow {before.number:08}.seg: it was replaced"
                segment.problems.append(Problem(START, "segment_exchanged", reason))

    def _fill(self, segment: Segment, known: set[int]) -> None:
        """Fill the parts of a segment: from its index files as far as they reach, then from its frames."""
        at = segment.start
        others = set(known) if segment.limit is None else set()
        while at in known and self._check_part is None:
            others.discard(at)
            columns = self._columns(segment, at)
            if columns is None:
                break
            segment.index_end, segment.index_head = columns.end, columns.head
            if not self._reaches(segment, columns.end):
                break
            segment.parts.append(self.packed(segment, columns))
            at = columns.end
        for start in others:  # from these, only how far the log reached
            columns = self._columns(segment, start)
            if columns is not None:
                segment.index_end = max(segment.index_end, columns.end)
                segment.index_head = max(segment.index_head, columns.head)
        if segment is self.segments[-1] or segment.limit is None or at < segment.limit:
            self._walk_rest(segment, known)
        while not self._ends_as_indexed(segment):
            del segment.parts[-2:]
            self._walk_rest(segment, known)
        if segment.limit is None and segment.index_end > segment.end and segment.tail is not TailKind.DAMAGED:
            reason = f"{segment.number:08}.seg was cut: its index goes to byte {segment.index_end}"
            segment.problems.append(Problem(Position(segment.head + 1), "segment_cut", reason))
        if segment is not self.segments[-1] and segment.tail is not TailKind.END:
            reason = f"{segment.number:08}.seg is damaged from byte {segment.end} to its end"
            segment.problems.append(Problem(Position(segment.head + 1), "damaged_bytes", reason))

    def _walk_rest(self, segment: Segment, known: set[int]) -> None:
        segment.parts.append(self._new_part(segment))
        try:
            source = self._open(segment)
        except EverlogError:
            return  # reported by `_open_segment`
        try:
            self._walk_on(segment, source, cuts=known)
        finally:
            source.close()

    def packed(self, segment: Segment, columns: Columns) -> PackedPart:
        """Return a part that was written to its file."""
        return PackedPart(columns, lambda part: self._columns_again(segment, part))

    def _columns(self, segment: Segment, start: int) -> Columns | None:
        """Read the index file of a part. Return None if it is missing or unusable."""
        try:
            data = self._files.read_all(self._layout.part(segment.number, start))
        except FileNotFoundError:
            return None
        return load_columns(
            data,
            log_id=self.identity.log_id,
            number=segment.number,
            generation=segment.generation,
            start=start,
        )

    def _columns_again(self, segment: Segment, part: PackedPart) -> Columns:
        """Read the index file of a part again, or rebuild its content from the log if the file was removed."""
        found = self._columns(segment, part.start)
        if found is not None and found.end == part.end:
            return found
        mark = mark_of(self.identity.log_id, segment.number)
        made = LivePart(segment.number, part.start, part.before, id_max="", clock=0, fence=0)
        with self.source(segment) as source:
            for frame in Walk(source, mark=mark, start=part.start, head=part.before, limit=part.end):
                if isinstance(frame, Gap):
                    break  # damaged since it was indexed: the state is loaded again
                made.add(frame)
        if made.end != part.end:
            raise SegmentReplaced
        return columns_of(made, log_id=self.identity.log_id, generation=segment.generation)

    def _reaches(self, segment: Segment, end: int) -> bool:
        """Return whether a frame can end there: not if the segment was cut or zeroed before it."""
        if segment.limit is not None:
            return end <= min(segment.limit, segment.size)
        source = self._open(segment)
        try:
            if end > source.size or segment.archived:
                return end <= source.size
            return source.read(end - 1, 1) != b"\0"  # no frame ends in a zero byte
        finally:
            source.close()

    def _ends_as_indexed(self, segment: Segment) -> bool:
        """Return False if no frame follows the index files of a segment and their last frames are missing.

        The next write goes after those frames. Without this check, damage there would be found only later, in the
        middle of the log, where even a lost mark of a clean end cannot be restored.
        """
        if len(segment.parts) < 2 or segment.parts[-1].end > segment.parts[-1].start:
            return True
        indexed = segment.parts[-2]
        assert isinstance(indexed, PackedPart)
        source = self._open(segment)
        try:
            return ends_whole(source, indexed, mark=mark_of(self.identity.log_id, segment.number))
        finally:
            source.close()

    def _new_part(self, segment: Segment) -> LivePart:
        if segment.parts:
            before: Part | None = segment.parts[-1]
        else:
            earlier = [part for each in self.segments if each.number < segment.number for part in each.parts]
            before = earlier[-1] if earlier else None
        header = segment.header
        if header is not None and not segment.parts:
            return LivePart(
                segment.number,
                segment.start,
                header.before,
                id_max=header.state.id_max,
                clock=header.state.clock,
                fence=header.fence,
            )
        if before is None:
            return LivePart(segment.number, segment.start, START, id_max="", clock=0, fence=0)
        start = before.end if before.number == segment.number else segment.start
        return LivePart(
            segment.number, start, before.head, id_max=before.id_max, clock=before.clock, fence=before.fence
        )

    def _walk_on(self, segment: Segment, source: Source, *, cuts: Collection[int] = ()) -> bool:
        """Read frames from the known end on, and flush before new ones are added, unless a clean end shows that they
        are on the disk. Return whether there were any. A part ends at each cut."""
        part = segment.parts[-1]
        mark = mark_of(self.identity.log_id, segment.number)
        walk = Walk(source, mark=mark, start=part.end, head=part.head, limit=segment.limit)
        grown = flushed = False
        for found in walk:
            grown = True
            if not flushed and (segment.number, found.end) > self._flushed:
                source.flush()
                flushed = True
            assert isinstance(part, LivePart)
            if part.full or (part.end in cuts and part.end > part.start):
                self._check(segment, part)
                part = self._new_part(segment)
                segment.parts.append(part)
            if isinstance(found, Gap):
                part.add_gap(found)
            else:
                part.add(found)
        assert isinstance(part, LivePart)
        self._check(segment, part)
        segment.tail, segment.tail_bytes = walk.tail, walk.tail_bytes
        return grown

    def _check(self, segment: Segment, part: LivePart) -> None:
        if self._check_part is not None:
            self._check_part(segment, part)
            part.shed()

    def _forget_state(self) -> None:
        self.clock = 0
        self.fence = 0
        self.links: dict[str, Link] = {}
        self.notes: dict[str, NoteValue] = {}
        self._purged_sequences: dict[str, int] = {}

    def _add_state(self) -> None:
        """Compute what a write starts from: the head of the last segment and the frames after it."""
        self._forget_state()
        self.purges, self.purged, self.purged_at = [], {}, {}
        header = self.live.header
        parts: list[Part] = self.live.parts
        if header is None:
            parts = self.parts  # all that is known without a header; `first_problem` refuses writes
        start = StartState() if header is None else header.state
        self.clock, self.fence = start.clock, 0 if header is None else header.fence
        self.notes.update(start.notes)
        self.links.update({origin: Link(*link) for origin, link in start.links.items()})
        for part in parts:
            self.clock = max(self.clock, part.clock)
            self.fence = max(self.fence, part.fence)
            for origin, link in part.links.items():
                if link.origin_seq > self.link(origin).origin_seq:
                    self.links[origin] = link
            self.add_notes(part.notes)
        for part in self.parts:
            self.add_purges(list(part.purges), list(part.purged))

    def add_notes(self, notes: Mapping[str, tuple[str | None, int | None]]) -> None:
        for key, (value, expires) in notes.items():
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = (value, expires)

    def first_problem(self) -> Problem | None:
        """Return why writes are refused, or None. The log never writes over damage (G10)."""
        return next(self.all_problems(), None)


def no_segments(layout: Layout) -> Damaged:
    return Damaged(
        f"{layout.root} has no segments",
        why="log.json exists, but the folder segments is empty",
        hint="restore the segments, or a backup",
        position=1,
        after=1,
        file="segments",
    )
