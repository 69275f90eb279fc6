"""The segments store: numbered append-only files of frames, one frame a write, one writer, any number of readers.

Reading takes no lock. Whoever writes first holds the lock until the log is closed; a second writer is refused and
told who holds it. What a write starts from, and the index of the newest frames, are in memory and true at the moment
of the commit; everything else is found through the index files, which are derived.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import chain, pairwise
from pathlib import Path
from typing import TypeVar

from everlog.core.codec import Packed, header_hash
from everlog.core.event import START, Link, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Busy, LogClosed, NotFound, Unavailable, WriterStopped
from everlog.files import DiskFiles, Files
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Claim, Claimed, Identity, Note, Problem, Slab
from everlog.stores.identity import new_identity
from everlog.stores.inherited import WHY_ABANDONED, tell_of_forks
from everlog.stores.segments import checking, reading, scanning, sweeping
from everlog.stores.segments.archive import archive_segment, remove_superseded
from everlog.stores.segments.book import Book, Moved, no_segments
from everlog.stores.segments.frame import SWEPT
from everlog.stores.segments.layout import Layout, Manifest, read_manifest, write_manifest
from everlog.stores.segments.opening import identity_of, make_folders
from everlog.stores.segments.writing import SPACE_BYTES_MAX, Writer, begin_log, refuse_damage, refuse_lost_file
from everlog.stores.shelf import Shelf
from everlog.stores.staging import Staged

SEGMENT_BYTES_MAX = 100 * 1024 * 1024
SEGMENT_HOURS_MAX = 24
LOCK_WAIT_S = 0.8
_STREAMS_REMEMBERED_MAX = 200_000
_HOUR_US = 3_600_000_000
T = TypeVar("T")


class SegmentsStore:
    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        files: Files | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        identity: Identity | None = None,
        claims_kept_us: int = CLAIMS_KEPT_US_MIN,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        segment_hours_max: int = SEGMENT_HOURS_MAX,
        space_bytes: int = SPACE_BYTES_MAX,
    ) -> None:
        self.path = Path(path)
        self.files = files or DiskFiles()
        self.layout = Layout(self.path)
        self._now_us = now_us
        self._claims_kept_us = max(claims_kept_us, CLAIMS_KEPT_US_MIN)
        self._segment_bytes_max = segment_bytes_max
        self._segment_us_max = segment_hours_max * _HOUR_US
        self._space_bytes = space_bytes
        self._mutex = threading.RLock()
        self._lock = self.files.lock(self.layout.lock)
        self._writer: Writer | None = None
        self._writing = False
        self._failed: BaseException | None = None
        self._lock_inode: tuple[int, int] | None = None
        self._closed = False
        self._why_closed = "open it again"
        self._sequences: dict[str, int] = {}
        self._shelf: Shelf | None = None
        if not self.layout.numbers(self.files):
            self._begin(create, identity)
        self._identity, newest = identity_of(self.files, self.layout)
        self.book = Book(self.files, self.layout, self._identity, newest=newest)
        tell_of_forks(self)

    @property
    def identity(self) -> Identity:
        return self._identity

    @property
    def shelf(self) -> Shelf:
        """Where views keep what they derive: a file that may be deleted. Most logs here never need its library."""
        if self._shelf is None:
            from everlog.stores.shelf_rows import ShelfFile

            self._shelf = ShelfFile(self.layout.views, self.files)
        return self._shelf

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
        return chain.from_iterable(pieces)  # not a generator: that would cost an event as much as its hash

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
            book = self._look()
            head = book.head if end is None else min(end, book.head)
            try:
                for found in reading.records(book, query, after, head, newest_first=newest_first):
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
            except Moved:
                self._look_anew()

    def scan(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Slab]:
        while True:
            book = self._look()
            try:
                for slab in scanning.slabs(book, query, after, book.head if upto is None else min(upto, book.head)):
                    after = Position(slab.positions[-1])
                    yield slab
                return
            except Moved:
                self._look_anew()

    def get(self, event_id: EventId) -> Recorded | None:
        found = self._find(event_id)
        return None if found is None else found[0]

    def head(self) -> Position:
        return self._look().head

    def purges(self, *, after: Position = START) -> list[Purge]:
        return [purge for purge in self._look().purges if purge.reserved > after]

    def claimed(self, name: bytes) -> Claim | None:
        since_us = self._now_us() - self._claims_kept_us
        return self._asked(lambda book: book.claim(name, since_us=since_us))

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        since_us = self._now_us() - self._claims_kept_us
        return self._asked(lambda book: book.claimed_among(names, since_us=since_us))

    def noted(self, key: str) -> str | None:
        with self._mutex:
            value, expires = self._now().notes.get(key, (None, None))
        return None if expires is not None and expires <= self._now_us() else value

    def notes(self, prefix: str, *, limit: int | None = None, newest_first: bool = False) -> dict[str, str]:
        now = self._now_us()
        with self._mutex:
            found = [
                (key, value)
                for key, (value, expires) in self._now().notes.items()
                if key.startswith(prefix) and (expires is None or expires > now)
            ]
        return dict(sorted(found, reverse=newest_first)[:limit])

    def packed(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        while True:
            book = self._look()
            try:
                for place in reading.places(book, after, book.head):
                    after = place.position
                    yield place
                return
            except Moved:
                self._look_anew()

    def kept(self) -> Iterator[Note | Claimed]:
        now = self._now_us()
        notes, claims = self._asked(
            lambda book: (
                [Note(key, value, expires) for key, (value, expires) in book.notes.items()],
                {name: claim for part in book.parts for name, claim in part.claims()},
            )
        )
        yield from (Claimed(name, claim) for name, claim in claims.items())
        yield from (note for note in notes if note.expires_us is None or note.expires_us > now)

    def check(self) -> Iterator[Problem]:
        self._require_open()
        yield from checking.problems(self.files, self.layout, self._identity)

    def file_of(self, position: Position) -> str:
        return checking.file_name_of(self.layout, self._look(), position)

    # ---- writing

    @contextmanager
    def write(self) -> Iterator[Staged]:
        with self._mutex:
            writer = self._begin_write()
            staged = Staged(self, now_us=self._now_us(), head=self.book.head, clock=self.book.clock)
            self._writing = True
            try:
                yield staged
                if staged.dirty:
                    self._commit(writer, staged)
            finally:
                self._writing = False

    def close(self) -> None:
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            writer, self._writer = self._writer, None
            try:
                if writer is not None:
                    knows = not writer.unsure and not writer.outdated
                    if self._failed is None and knows and writer.has_its_file():
                        writer.close()
                    else:
                        writer.abandon()
            finally:
                if self._shelf is not None:
                    self._shelf.close()
                self._lock.close()

    # ---- what a write starts from

    def clock(self) -> int:
        with self._mutex:
            return self._now().clock

    def link(self, origin: str) -> Link:
        return self.book.link(origin)

    def sequence(self, stream: str) -> int:
        found = self._sequences.get(stream)
        if found is None:
            if len(self._sequences) >= _STREAMS_REMEMBERED_MAX:
                self._sequences.clear()
            found = self._sequences[stream] = self._asked(lambda book: book.sequence(stream))
        return found

    def meet(self, streams: Collection[str]) -> None:
        pass  # the book is in memory

    def find_hash(self, event_id: EventId) -> tuple[bytes, bool] | None:
        gone = self.book.purged.get(event_id)
        if gone is not None:
            return gone.hash, True
        found = self._find(event_id)
        return None if found is None else (header_hash(found[1]), False)

    def purgeable(self, stream: str) -> tuple[list[Purged], tuple[str, ...]]:
        query = Query(stream=stream)
        removed, scopes = [], set()
        for record, header in self._asked(lambda book: [*reading.with_headers(book, query, START, book.head)]):
            event = record.event
            place = (record.position, record.sequence, event.id, event.origin, event.origin_seq)
            removed.append(Purged(*place, header_hash(header), event.previous))
            scopes.add(event.scope)
        return removed, tuple(sorted(scopes))

    # ---- maintenance

    def archive(self, *, days: int) -> list[tuple[int, int, int]]:
        """Pack the segments that were complete that many days ago: number, size before, size after."""
        packed = []
        with self._mutex:
            writer = self._begin_write()
            until_us = self._now_us() - days * 24 * _HOUR_US
            writer.outdated = True  # segments are swapped under it
            for segment, following in pairwise(self.book.segments):
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

    # ---- inside: reading

    def _now(self) -> Book:
        """The book, up to date. Under the mutex."""
        self._require_open()
        if self._writer is None:
            try:
                self.book.refresh()
            except WriterStopped as error:
                self._stop(error)
                raise
        return self.book

    def _look(self) -> Book:
        with self._mutex:
            return self._now().frozen()

    def _asked(self, ask: Callable[[Book], T]) -> T:
        """What the book answers; when a segment was written anew meanwhile, what it answers then."""
        with self._mutex:
            while True:
                try:
                    return ask(self._now())
                except Moved:
                    self._look_anew()

    def _look_anew(self) -> None:
        with self._mutex:
            writer = self._writer
            if writer is None:
                self._load()
                return
            outdated, writer.outdated = writer.outdated, True  # until it is known what is there now
            self._load()
            if self.book.unsound() is None:
                writer.outdated = outdated
            elif self._writing:  # it was made when nothing was wrong: whoever writes next is refused
                refuse_damage(self.layout, self.book)

    def _load(self) -> None:
        try:
            self.book.load()
        except WriterStopped as error:
            self._stop(error)
            raise

    def _find(self, event_id: EventId) -> tuple[Recorded, bytes] | None:
        while True:
            try:
                return reading.find(self._look(), event_id)
            except Moved:
                self._look_anew()

    # ---- inside: writing

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.path} is closed", hint=self._why_closed)

    def _begin_write(self) -> Writer:
        self._require_open()
        if self._writing:
            raise RuntimeError("a write is open already in this thread")
        self._refuse_if_stopped()
        if self._writer is not None and self._writer.outdated:
            self._step_back(self._writer)
        if self._writer is None:
            self._become_writer()
            self._refuse_if_stopped()
        assert self._writer is not None
        self._require_the_lock()
        refuse_lost_file(self._writer)
        return self._writer

    def _stop(self, error: BaseException) -> None:
        """A flush of this handle failed: it never writes again (G12)."""
        self._failed = self._failed or error

    def _refuse_if_stopped(self) -> None:
        writer = self._writer
        if writer is not None and writer.stopped is not None:
            self._stop(writer.stopped)
        if writer is not None and writer.unsure:
            self._stop(InterruptedError("interrupted"))  # twice, before it could be put down
        if self._failed is not None:
            raise WriterStopped(
                f"{self.path} takes no more writes from this process",
                why=f"a write or its flush failed before ({self._failed}), so that what is on the disk is unknown",
                hint="check the disk, then open the log again",
            ) from self._failed

    def _require_the_lock(self) -> None:
        """The lock that is held must be the one that others see. If its file was removed, another writer may be
        there, and what this one says from now on is worth nothing."""
        if self.files.inode(self.layout.lock) == self._lock_inode:
            return
        self._failed = WriterStopped(
            f"{self.path} takes no more writes from this process",
            why=f"{self.layout.lock} was removed or replaced while it was held, so that there may be another writer",
            hint="never remove that file; open the log again",
        )
        raise self._failed

    def _become_writer(self) -> None:
        try:
            self._lock.acquire(LOCK_WAIT_S)
        except Busy as error:
            raise Busy(
                f"another writer has {self.path} open",
                why=error.why or str(error),
                hint="a segments log has one writer at a time: wait until it is closed, or send it your events",
                **error.details,
            ) from error
        self._lock_inode = self.files.inode(self.layout.lock)
        try:
            self.book.load()
            self._sequences.clear()
            manifest = Manifest(self._identity, self.book.live.number)
            self._writer = Writer(
                self.files,
                self.layout,
                self.book,
                segment_bytes_max=self._segment_bytes_max,
                segment_us_max=self._segment_us_max,
                space_bytes=self._space_bytes,
            )
            if read_manifest(self.files, self.layout) != manifest:
                write_manifest(self.files, self.layout, manifest)
            remove_superseded(self.files, self.layout, self.book)
            if self.book.sweep_owed:
                self._sweep(self._writer)
        except BaseException as error:
            if isinstance(error, WriterStopped):
                self._stop(error)
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.abandon()
            self._lock.release()
            raise

    def _commit(self, writer: Writer, staged: Staged) -> None:
        try:
            self._refuse_if_stopped()
            if writer.outdated:
                refuse_damage(self.layout, self.book)
                raise Unavailable(
                    f"{self.path} could not be read anew while this was written",
                    why="a segment was packed or written anew and looking at it failed; nothing was recorded",
                    hint="write it again",
                )
            removed = {gone.position for _, purged in staged.staged_purges for gone in purged}
            if removed:
                sweeping.refuse_damage_under(self.book, removed)
            writer.commit(staged, self._now_us())
            self._require_the_lock()  # before anybody is told: this process may have slept
            if removed:
                self._sweep(writer)
        except BaseException as error:
            self._sequences.clear()  # it may be recorded all the same
            if isinstance(error, WriterStopped) or writer.unsure:
                self._stop(error)  # G12: never again from this process
            elif writer.outdated:
                self._step_back(writer)
            raise
        for recorded, _ in staged.records:
            self._sequences[recorded.event.stream] = recorded.sequence
        for purge, _ in staged.staged_purges:
            self._sequences.pop(purge.stream, None)

    def _step_back(self, writer: Writer) -> None:
        """Nothing is wrong with the log, but the writer does not know its files any more: the next write opens them
        anew, and finishes what was begun."""
        self._writer = None
        try:
            writer.abandon()
        finally:
            self._lock.release()

    def _sweep(self, writer: Writer) -> None:
        writer.rotate(self._now_us())
        writer.outdated = True  # segments are swapped under it
        sweeping.sweep(self.files, self.layout, self.book)
        self.book.load()
        writer.outdated = False
        writer.mark(SWEPT)
        writer.save_index()

    # ---- inside: opening

    def _begin(self, allowed: bool, identity: Identity | None) -> None:
        if self.files.exists(self.layout.manifest):
            raise no_segments(self.layout)
        if not allowed:
            raise NotFound(f"{self.path} does not exist", why="there is no log to open", hint="everlog init")
        make_folders(self.files, self.layout)
        self._lock.acquire(LOCK_WAIT_S)
        try:
            if not self.layout.numbers(self.files):  # another process may have been faster
                now_us = self._now_us()
                begin_log(self.files, self.layout, identity or new_identity(now_us), now_us=now_us)
        finally:
            self._lock.release()

    def abandon_after_fork(self) -> None:
        """In a child: the lock and the file are the parent's. Refuse to be used."""
        self._mutex = threading.RLock()
        self._writer = None
        self._closed = True
        self._why_closed = WHY_ABANDONED
