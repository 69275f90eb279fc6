"""Load the segments of a log: heads, index files, and the frames that no index file covers. It never writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from everlog.core.event import START, Position
from everlog.errors import Damaged, EverlogError
from everlog.files import Files
from everlog.stores.contract import Identity, Problem
from everlog.stores.segments.closed_end import ends_whole
from everlog.stores.segments.format.frame import mark_of
from everlog.stores.segments.format.frames import Gap, TailKind, Walk
from everlog.stores.segments.format.header import HEAD_READ_BYTES, decode_header, head_size
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.format.source import Source, open_source
from everlog.stores.segments.index.live_part import LivePart, added_of
from everlog.stores.segments.index.lookup import Part
from everlog.stores.segments.index.packed_part import Columns, PackedPart, columns_of, load_columns
from everlog.stores.segments.segment import Segment, file_of_segment

CheckPart = Callable[[Segment, LivePart], None]


class SegmentReplaced(Exception):
    """A segment was rewritten or packed since it was loaded."""


class SegmentLoader:
    """Loads the segments of one log. `flushed` is a segment and an offset up to which everything is on the disk.

    With `check_part` index files are ignored and all frames are read. Each complete part is passed to `check_part`
    and then emptied, because an index of all frames would need too much memory.
    """

    def __init__(
        self,
        files: Files,
        layout: Layout,
        identity: Identity,
        *,
        flushed: tuple[int, int],
        check_part: CheckPart | None = None,
    ) -> None:
        self._files = files
        self._layout = layout
        self._log_id = identity.log_id
        self._flushed = flushed
        self._check_part = check_part

    @contextmanager
    def source(self, segment: Segment) -> Iterator[Source]:
        """Open the bytes of a segment. Raise `SegmentReplaced` if they are not those that its parts describe."""
        try:
            source = self._open(segment)
        except FileNotFoundError as error:
            raise SegmentReplaced from error
        try:
            if self._files.inode(self.path(segment)) != segment.inode:
                raise SegmentReplaced
            yield source
        finally:
            source.close()

    def path(self, segment: Segment) -> Path:
        return file_of_segment(self._layout, segment)

    def _open(self, segment: Segment) -> Source:
        return open_source(self._files, self.path(segment), packed=segment.archived)

    def open_segment(self, number: int, archived: bool) -> Segment:
        segment = Segment(number, archived=archived)
        path = self.path(segment)
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
        if segment.header.identity.log_id != self._log_id:
            raise Damaged(
                f"{path} belongs to another log",
                why=f"it is of the log {segment.header.identity.log_id}, this one is {self._log_id}",
                hint="restore the segment of this log",
            )
        return segment

    def set_limit(self, before: Segment | None, segment: Segment) -> None:
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

    def fill(self, segment: Segment, known: set[int], earlier: Sequence[Part], *, live: bool) -> None:
        """Fill the parts of a segment: from its index files as far as they reach, then from its frames.

        `earlier` are the parts of the segments before it; it continues from the last of them.
        """
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
        if live or segment.limit is None or at < segment.limit:
            self._walk_rest(segment, known, earlier)
        while not self._ends_as_indexed(segment):
            del segment.parts[-2:]
            self._walk_rest(segment, known, earlier)
        if segment.limit is None and segment.index_end > segment.end and segment.tail is not TailKind.DAMAGED:
            reason = f"{segment.number:08}.seg was cut: its index goes to byte {segment.index_end}"
            segment.problems.append(Problem(Position(segment.head + 1), "segment_cut", reason))
        if not live and segment.tail is not TailKind.END:
            reason = f"{segment.number:08}.seg is damaged from byte {segment.end} to its end"
            segment.problems.append(Problem(Position(segment.head + 1), "damaged_bytes", reason))

    def _walk_rest(self, segment: Segment, known: set[int], earlier: Sequence[Part]) -> None:
        segment.parts.append(_new_part(segment, earlier))
        try:
            source = self._open(segment)
        except EverlogError:
            return  # reported by `open_segment`
        try:
            self.walk_on(segment, source, cuts=known)
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
            log_id=self._log_id,
            number=segment.number,
            generation=segment.generation,
            start=start,
        )

    def _columns_again(self, segment: Segment, part: PackedPart) -> Columns:
        """Read the index file of a part again, or rebuild its content from the log if the file was removed."""
        found = self._columns(segment, part.start)
        if found is not None and found.end == part.end:
            return found
        mark = mark_of(self._log_id, segment.number)
        made = LivePart(segment.number, part.start, part.before, id_max="", clock=0, fence=0)
        with self.source(segment) as source:
            for frame in Walk(source, mark=mark, start=part.start, head=part.before, limit=part.end):
                if isinstance(frame, Gap):
                    break  # damaged since it was indexed: the state is loaded again
                made.add(added_of(frame))
        if made.end != part.end:
            raise SegmentReplaced
        return columns_of(made, log_id=self._log_id, generation=segment.generation)

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
            return ends_whole(source, indexed, mark=mark_of(self._log_id, segment.number))
        finally:
            source.close()

    def walk_on(self, segment: Segment, source: Source, *, cuts: Collection[int] = ()) -> bool:
        """Read frames from the known end on, and flush before new ones are added, unless a clean end shows that they
        are on the disk. Return whether there were any. A part ends at each cut."""
        part = segment.parts[-1]
        mark = mark_of(self._log_id, segment.number)
        walk = Walk(source, mark=mark, start=part.end, head=part.head, limit=segment.limit)
        grown = flushed = False
        for found in walk:
            grown = True
            if not flushed and (segment.number, found.end) > self._flushed:
                source.flush()
                flushed = True
            assert isinstance(part, LivePart)
            begins = isinstance(found, Gap) or found.frame.write_at == found.start
            if begins and (part.full or (part.end in cuts and part.end > part.start)):
                self._check(segment, part)
                part = _new_part(segment)
                segment.parts.append(part)
            if isinstance(found, Gap):
                part.add_gap(found)
            else:
                part.add(added_of(found))
        assert isinstance(part, LivePart)
        part.publish()
        self._check(segment, part)
        segment.tail, segment.tail_bytes = walk.tail, walk.tail_bytes
        return grown

    def _check(self, segment: Segment, part: LivePart) -> None:
        if self._check_part is not None:
            self._check_part(segment, part)
            part.shed()


def _new_part(segment: Segment, earlier: Sequence[Part] = ()) -> LivePart:
    """Return an empty part that continues from the last one."""
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
    parts = segment.parts or earlier
    if not parts:
        return LivePart(segment.number, segment.start, START, id_max="", clock=0, fence=0)
    before = parts[-1]
    start = before.end if before.number == segment.number else segment.start
    return LivePart(segment.number, start, before.head, id_max=before.id_max, clock=before.clock, fence=before.fence)
