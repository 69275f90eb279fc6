"""The state of a log: its segments in order, what is known of each, and the state at its end. It never writes.

A process that only reads checks before each answer whether the writer has added something (`refresh`). It flushes new
frames before it returns them: the writer may have been killed between its write and its flush, and an event that was
read once must survive a power cut. Frames of a log that was closed cleanly need no such flush.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from copy import copy

from everlog.core.chain import NO_CHAIN, Chain
from everlog.core.event import START, Position, Purge, Purged
from everlog.core.ids import EventId
from everlog.errors import Damaged
from everlog.files import Files
from everlog.stores.contract import Claim, Erasure, Identity, Problem
from everlog.stores.lost import lost
from everlog.stores.segments.closed_end import SavedEnd, compare_ends, read_end
from everlog.stores.segments.format.frames import TailKind
from everlog.stores.segments.format.header import NoteValue, StartState
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.index.live_part import LivePart
from everlog.stores.segments.index.lookup import Part
from everlog.stores.segments.loading import CheckPart, SegmentLoader, SegmentReplaced
from everlog.stores.segments.lost_positions import MissingSegments, lost_positions
from everlog.stores.segments.segment import Lost, Segment, describe_gap, file_of_segment

_Block = tuple[tuple[int, int] | None, int, int]  # the inode of its segment, its start and its end


class LogState:
    def __init__(
        self,
        files: Files,
        layout: Layout,
        identity: Identity,
        *,
        newest: int = 0,
        check_part: CheckPart | None = None,
    ) -> None:
        self._files = files
        self._layout = layout
        self.identity = identity
        self.place = ""  # as log.json has it; known to a writer
        self._newest = newest
        self.erased_at: dict[Position, Erasure] = {}  # of which the payloads are still stored
        self._check_part = check_part
        self._frozen: LogState | None = None
        self.again: Callable[[], LogState] = self._reloaded  # returns a state in which no segment was replaced
        self.ids_in: dict[_Block, frozenset[str]] = {}  # of some blocks, see `reader`
        self.hashes_in: dict[_Block, dict[EventId, bytes]] = {}
        self.load()

    def load(self) -> None:
        """Read everything again: heads, index files, and the frames that no index file covers.

        The result replaces the old state in one step. If reading fails or is interrupted, the state stays as it was:
        a writer with half a state would overwrite the other half of the log.
        """
        fresh = copy(self)
        fresh._read()
        vars(self).update(vars(fresh))

    def _reloaded(self) -> LogState:
        self.load()
        return self

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
        if any(self._files.inode(self.loader.path(segment)) != segment.inode for segment in self.segments):
            return False
        return self.first_problem() is None or self._layout.numbers(self._files) == numbers

    def _load(self, numbers: Mapping[int, bool], known: Mapping[int, set[int]], saved_end: SavedEnd | None) -> None:
        self._frozen = None
        self._half_refreshed = False
        self.segments: list[Segment] = []
        self.problems: list[Problem] = []
        self.lost: list[Lost] = []
        self._forget_state()
        # A writer clears `closed` before its first frame, and sets it after its last flush.
        closed = saved_end is not None and saved_end.closed and saved_end.number == max(numbers, default=0)
        flushed = (saved_end.number, saved_end.end) if saved_end is not None and closed else (0, 0)
        loader = SegmentLoader(self._files, self._layout, self.identity, flushed=flushed, check_part=self._check_part)
        self.loader = loader
        if not closed and self._files.exists(self._layout.segments):
            self._files.fsync_dir(self._layout.segments)  # names, too, are flushed before anything is returned
        missing = MissingSegments(self._files, self._layout, self.identity.log_id, numbers, known)
        self._newest = max([*numbers, self._newest, missing.newest, 0 if saved_end is None else saved_end.number])
        for number in range(1, self._newest + 1):
            if number not in numbers:
                reason = f"the file {self._layout.segment(number).name} is missing"
                self.problems.append(Problem(START, "segment_missing", reason))
        for number, archived in numbers.items():
            self.segments.append(loader.open_segment(number, archived))
        for before, segment in zip([None, *self.segments], self.segments, strict=False):
            loader.set_limit(before, segment)
        for segment in self.segments:
            loader.fill(segment, known.get(segment.number, set()), self.parts, live=segment is self.live)
        if saved_end is not None:
            compare_ends(saved_end, self.live, self.identity.log_id)
        self._add_state()
        self._ends_damaged = self.live.tail is TailKind.DAMAGED
        accounted = {*self.purged_at, *(purge.reserved for purge in self.purges)}
        self.lost = list(
            lost_positions(
                self.segments,
                newest=self._newest,
                indexed_head=missing.head,
                saved_end=saved_end,
                accounted=accounted,
            )
        )

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

    def claims(self, names: Collection[bytes], *, since_us: int) -> dict[bytes, Claim]:
        """Return the last claim of each name that has one. Parts with only older claims are not loaded."""
        found: dict[bytes, Claim] = {}
        for segment in self.segments:
            for part in segment.parts:
                if part.claims_until_us >= since_us:
                    part.add_claims(names, found)
        return found

    def chain(self, origin: str) -> Chain:
        return self.chains.get(origin, NO_CHAIN)

    def gone(self, origin: str, number: int) -> bytes | None:
        """Return the hash of a purged event."""
        return self._purged_hashes.get((origin, number))

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
        """Whether a purge or an erasure was committed whose bytes may still be in the segments."""
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

    def refresh(self) -> None:
        """Load what the writer has added since."""
        if self._half_refreshed:  # the last refresh was interrupted, perhaps within a frame
            self.load()
            return
        self._half_refreshed = True
        self._take_in_growth()
        self._half_refreshed = False

    def _take_in_growth(self) -> None:
        try:
            with self.source(self.live) as source:
                if source.size < self.live.end:
                    raise SegmentReplaced
                grown = self.loader.walk_on(self.live, source)
        except SegmentReplaced:
            # It was packed, rewritten, cut or removed.
            self.load()
            return
        if (self.live.tail is TailKind.DAMAGED) != self._ends_damaged:
            self.load()  # it was damaged since, or repaired
            return
        if grown and any(isinstance(part, LivePart) and part.purges for part in self.live.parts):
            purges = sum(len(part.purges) for part in self.parts)
            if purges != len(self.purges):
                self.load()  # earlier segments are being rewritten
                return
        following = self.live.number + 1
        if self._files.exists(self._layout.segment(following)):
            self.load()
        elif grown:
            self.changed()
            self._add_state()

    def add_purges(self, purges: Collection[Purge], purged: Collection[Purged]) -> None:
        """Add purges that were written at the end."""
        for purge in purges:
            self.purges.append(purge)
            self._purged_sequences[purge.stream] = purge.sequence
        for gone in purged:
            self.purged[gone.id] = gone
            self.purged_at[gone.position] = gone
            self._purged_hashes[gone.origin, gone.origin_seq] = gone.hash

    def add_erased(self, erased: Collection[Erasure]) -> None:
        """Add erasures whose bytes are still in the segments."""
        # A new dict each time: a reader may still have the files open that had the bytes.
        self.erased_at = {**self.erased_at, **{erasure.position: erasure for erasure in erased}}
        self.changed()

    def swept(self) -> None:
        """The bytes of everything that was erased are gone."""
        self.erased_at = {}
        self.changed()

    def source(self, segment: Segment) -> AbstractContextManager[Source]:
        """Open the bytes of a segment. Raise `SegmentReplaced` if they are not those that its parts describe."""
        return self.loader.source(segment)

    # ---- internal

    def _forget_state(self) -> None:
        self.clock = 0
        self.fence = 0
        self.chains: dict[str, Chain] = {}
        self.notes: dict[str, NoteValue] = {}
        self.purges: list[Purge] = []
        self.purged: dict[EventId, Purged] = {}
        self.purged_at: dict[Position, Purged] = {}
        self.erased_at = {}
        self._purged_hashes: dict[tuple[str, int], bytes] = {}
        self._purged_sequences: dict[str, int] = {}

    def _add_state(self) -> None:
        """Compute what a write starts from: the head of the last segment and the frames after it."""
        self._forget_state()
        header = self.live.header
        parts: list[Part] = self.live.parts
        if header is None:
            parts = self.parts  # all that is known without a header; `first_problem` refuses writes
        start = StartState() if header is None else header.state
        self.clock, self.fence = start.clock, 0 if header is None else header.fence
        self.notes.update(start.notes)
        self.chains.update(start.chains)
        for part in parts:
            self.clock = max(self.clock, part.clock)
            self.fence = max(self.fence, part.fence)
            self.chains.update(part.chains)
            self.add_notes(part.notes)
        for part in self.parts:
            self.add_purges(part.purges, part.purged)
        if self.sweep_owed:
            self.add_erased([erasure for part in self.parts for erasure in part.erased])

    def add_notes(self, notes: Mapping[str, tuple[str | None, int | None]]) -> None:
        for key, (value, expires) in notes.items():
            if value is None:
                self.notes.pop(key, None)
            else:
                self.notes[key] = (value, expires)

    def lost_end(self) -> Damaged | None:
        """Return the error for a log that lost frames of its last segment, or that segment: the chains and the notes
        at its end are not known then."""
        live = self.live
        gaps = [*live.gaps, *(one.gap for one in self.lost if one.gap.head > live.head)]
        if not (gaps or live.header is None or self._ends_damaged):
            return None
        first = gaps[0].before + 1 if gaps else live.head + 1
        name = file_of_segment(self._layout, live).name
        return lost(
            first,
            max(first, gaps[0].head if gaps else first),
            why="the last segment is missing" if self._newest > live.number else f"{name} is not as it was written",
            file=f"segments/{name}",
        )

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
