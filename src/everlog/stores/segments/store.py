"""The segments store: numbered append-only files of frames, one writer, any number of readers. A frame is one group.

Reading takes no lock. The process that writes first holds the lock until it closes the log; a second writer is
refused, and the error names the first. What a write starts from, and the index of the newest frames, are in memory
and true at the moment of the commit; everything else is found through the index files, which are derived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise

from everlog.core.chain import Chain
from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.group import Group
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import WriterStopped
from everlog.stores.contract import Block, Ends, Known, Problem
from everlog.stores.open_write import OpenWrite
from everlog.stores.put_back import missing_own_events
from everlog.stores.segments import check, columns, groups, reader
from everlog.stores.segments.archive import archive_segment
from everlog.stores.segments.loading import SegmentReplaced
from everlog.stores.segments.open_log import HOUR_US, OpenLog
from everlog.stores.segments.state import LogState

_STREAMS_REMEMBERED_MAX = 200_000


class SegmentsStore(OpenLog):
    """A log in segments. How it is opened and written to is in `OpenLog`."""

    # ---- reading

    def read(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Recorded]:
        pieces = self.read_pieces(query, after=after, upto=upto, limit=limit, newest_first=newest_first)
        return chain.from_iterable(pieces)  # not a generator: per event, that would cost as much as its hash

    def read_pieces(
        self,
        query: Query = EVERYTHING,
        *,
        after: Position = START,
        upto: Position | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[list[Recorded]]:
        left = -1 if limit is None else limit  # below zero: no end
        end: Position | None = upto
        while left != 0:
            state = self._look()
            head = state.head if end is None else min(end, state.head)
            try:
                for found in reader.records(state, query, after, head, newest_first=newest_first):
                    if not found:
                        continue
                    if 0 <= left <= len(found):
                        yield found[:left]
                        return
                    if newest_first:
                        end = Position(found[-1].position - 1)
                    else:
                        after = found[-1].position
                    left -= len(found)
                    yield found
                return
            except SegmentReplaced:
                self._reload()

    def blocks(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Block]:
        while True:
            state = self._look()
            try:
                for block in columns.blocks(
                    state, query, after, state.head if upto is None else min(upto, state.head)
                ):
                    after = Position(block.positions[-1])
                    yield block
                return
            except SegmentReplaced:
                self._reload()

    def get(self, event_id: EventId) -> Recorded | None:
        while True:
            try:
                return reader.find(self._look(), event_id)
            except SegmentReplaced:
                self._reload()

    def head(self) -> Position:
        return self._look().head

    def purges(self, *, after: Position = START) -> list[Purge]:
        return [purge for purge in self._look().purges if purge.reserved > after]

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        while True:
            state = self._look()
            try:
                for place in groups.places(state, after, state.head):
                    after = place.position
                    yield place
                return
            except SegmentReplaced:
                self._reload()

    def groups(self, *, after: Position = START, upto: Position | None = None) -> Iterator[Group | Purged]:
        """Return every group in order of position, as it is stored; before each, what purges left of it.

        The records of a group do not have it: `Group.linked` and `Group.packed` compute what they leave out.
        """
        while True:
            state = self._look()
            try:
                for reached, group in groups.groups(
                    state, after, state.head if upto is None else min(upto, state.head)
                ):
                    after = max(after, reached)
                    yield group
                return
            except SegmentReplaced:
                self._reload()

    def check(self) -> Iterator[Problem]:
        self._require_open()
        yield from check.problems(self.files, self.layout, self.identity)

    def file_of(self, position: Position) -> str:
        return check.file_name_of(self.layout, self._look(), position)

    # ---- writing

    @contextmanager
    def open_write(self) -> Iterator[OpenWrite]:
        with self._mutex:
            writer = self._begin_write()
            staged = OpenWrite(
                self,
                now_us=self._now_us(),
                head=self.state.head,
                clock=self.state.clock,
                settle=None if self._settled else self._settle_origin,
                continue_as=self._continue_as,
            )
            self._writing = True
            try:
                yield staged
                if staged.dirty:
                    self._commit(writer, staged)
            finally:
                self._writing = False
                if self._before is not None:
                    self._unsettle()

    def watch(self, callback: Callable[[], None]) -> None:
        """Do nothing: commits of other processes are noticed by looking at the head."""

    # ---- what a write starts from

    def ends(
        self,
        *,
        streams: Collection[str] = (),
        origins: Collection[str] = (),
        ids: Collection[EventId] = (),
        purging: str = "",
    ) -> Ends:
        # Loops, because this runs in every append: a comprehension would be a call each.
        sequences: dict[str, int] = {}
        for stream in streams:
            sequences[stream] = self._sequence(stream)
        chains: dict[str, Chain] = {}
        for origin in origins:
            chains[origin] = self.state.chain(origin)
        if self._writing:
            clock = self.state.clock
        else:
            with self._mutex:
                clock = self._now().clock
        known: dict[EventId, Known] = {}
        for event_id in ids:
            there = self._find_known(event_id)
            if there is not None:
                known[event_id] = there
        removable = self._query(lambda state: reader.removable(state, purging)) if purging else None
        return Ends(clock, sequences, chains, known, removable)

    def chains(self) -> dict[str, Chain]:
        def whole(state: LogState) -> dict[str, Chain]:
            if (error := state.lost_end()) is not None:
                raise error
            return dict(state.chains)

        return self._query(whole)

    def missing_own_events(self) -> int:
        origin = self.identity.origin
        return missing_own_events(
            self.files, self.layout.lock, origin, lambda: self._look().chain(origin).end.origin_seq
        )

    def _sequence(self, stream: str) -> int:
        found = self._sequences.get(stream)
        if found is None:
            if len(self._sequences) >= _STREAMS_REMEMBERED_MAX:
                self._sequences.clear()
            found = self._sequences[stream] = self._query(lambda state: state.sequence(stream))
        return found

    def _find_known(self, event_id: EventId) -> Known | None:
        gone = self.state.purged.get(event_id)
        if gone is not None:
            return Known(gone.hash, True)
        found = self._query(lambda state: reader.hash_of(state, event_id))
        return None if found is None else Known(found, False)

    # ---- maintenance

    def archive(self, *, days: int) -> list[tuple[int, int, int]]:
        """Pack the segments that were complete that many days ago: number, size before, size after."""
        packed = []
        with self._mutex:
            writer = self._begin_write()
            until_us = self._now_us() - days * 24 * HOUR_US
            writer.outdated = True  # segments are swapped under it
            for segment, following in pairwise(self.state.segments):
                complete_us = following.header.opened_us if following.header is not None else until_us + 1
                if not segment.archived and complete_us <= until_us:
                    packed.append((segment.number, *self._archive(segment.number)))
            if packed:
                self._load()
            writer.outdated = False
        return packed

    def _archive(self, number: int) -> tuple[int, int]:
        try:
            return archive_segment(self.files, self.layout, number)
        except WriterStopped as error:
            self._stop(error)
            raise
