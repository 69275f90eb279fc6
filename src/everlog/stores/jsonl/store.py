"""The JSONL store: day files in a folder, which git can keep, and an index that is derived from them.

A write holds the lock, stages in memory, and appends its lines to the newest day file with one write and one flush.
The index may lag: it is brought up to date before a question that needs it, every 1,000 events and when the log is
closed; what it lacks after a crash is read from the files again. Readers go through the index alone. So they see a
write when it is on the disk, and never a part of it.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from everlog.core.chain import Chain
from everlog.core.clock import JUMP_MAX, LAMPORT_MAX
from everlog.core.codec import Packed
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId, IdSource
from everlog.core.query import EVERYTHING, Query
from everlog.errors import ClockJump, EverlogError, LogClosed, NotFound, ReadOnly, WriterStopped
from everlog.files import DiskFiles, Files
from everlog.stores.contract import Block, Checkout, Claim, Ends, Identity, Known, Problem, Removable
from everlog.stores.identity import Origins, new_identity
from everlog.stores.inherited import WHY_ABANDONED, abandon_in_forks, refuse_stopped_writer
from everlog.stores.jsonl import check, columns, purge
from everlog.stores.jsonl.day_files import OpenDayFile, day_name, day_names
from everlog.stores.jsonl.folder import Folder, disk_errors
from everlog.stores.jsonl.index.read import Lines, hash_by_id, read_by_id, read_records, read_slots, removable
from everlog.stores.jsonl.index.update import IndexUpdater
from everlog.stores.jsonl.lines_of_write import LinesOfWrite
from everlog.stores.jsonl.notes import NotesFile
from everlog.stores.open_write import OpenWrite
from everlog.stores.put_back import missing_own_events, remember_end
from everlog.stores.small_state import Beside, LostNotes, Row, StoreState, claim_row, note_row
from everlog.stores.small_state_sqlite import StateFile
from everlog.stores.waiting_lines import WaitingLines

LOCK_TIMEOUT_S = 30.0
_logger = logging.getLogger("everlog")
_STREAMS_REMEMBERED_MAX = 200_000


class JsonlStore:
    _remembered_at: object
    _identity: Identity | None
    _head: Position | None
    _clock: int | None
    _chains: dict[str, Chain]
    _sequences: dict[str, int]
    _settled: bool

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        files: Files | None = None,
        index_in_memory: bool = False,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        identity: Identity | None = None,
    ) -> None:
        self.path = Path(path)
        self._files = files or DiskFiles()
        self._now_us = now_us
        self._folder = Folder(self.path, self._files)
        self._mutex = threading.Lock()
        self._failed: BaseException | None = None
        self._clock_ignored = 0
        self._clock_behind = False  # clock.json is older than the log
        self._closed = False
        self._why_closed = "open it again"
        self._writing_thread = 0
        self._ids = IdSource(now_ms=lambda: now_us() // 1000)
        self._lock = self._files.lock(self._folder.lock_file)
        epoch = "" if self._folder.is_log() else self._create(create, identity)
        self._folder.read_identity()
        self._make_local()
        self._tail = OpenDayFile(self._files, self._folder.events)
        self._updater = IndexUpdater(self._folder, self._lock, self._tail, in_memory=index_in_memory, now_us=now_us)
        self._updater.first_epoch = epoch
        self._lines = Lines(
            self._files, self._folder.events, lambda: self._updater.index, self._updater.refresh, self._reread_file
        )
        self._notes = NotesFile(self._folder, self._updater.knows)
        self._updater.index_replaced = self._notes.forget
        self._updater.clean_notes = lambda: self._notes.clean(now_us())
        beside = Beside(self._find_claims, self._find_note, self._find_notes, self._every_row, self._lost_notes)
        waiting = WaitingLines(self._files, self._folder.refusals_file, lambda: self._folder.log_id)
        self.small_state = StoreState(
            beside, lambda: StateFile(self._folder.local / "views.db", self._files), waiting
        )
        self._forget_committed()
        with disk_errors(self.path):
            self._updater.refresh()
        abandon_in_forks(self)

    @property
    def origins(self) -> Origins:
        return self._updater.own.origins

    @origins.setter
    def origins(self, origins: Origins) -> None:
        self._updater.own.origins = origins

    @property
    def identity(self) -> Identity:
        if self._in_write() and self._identity is not None:
            return self._identity
        self._look_beside()  # another branch may be checked out by now, with another epoch
        folder = self._folder
        own, epoch = self._updater.own, self._updater.index.epoch
        origin, *former = own.names
        found = Identity(folder.log_id, origin, epoch, folder.created_us, tuple(former), own.lives(epoch))
        if self._in_write():
            self._identity = found
        return found

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
        self._look()
        return read_records(self._lines, query, after=after, upto=upto, limit=limit, newest_first=newest_first)

    def blocks(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Block]:
        self._look()
        return columns.blocks(self._lines, query, after=after, upto=upto)

    def get(self, event_id: EventId) -> Recorded | None:
        self._look()
        return read_by_id(self._lines, event_id)

    def head(self) -> Position:
        if self._in_write() and self._head is not None:
            return self._head
        self._look()
        return self._updater.index.head()

    def purges(self, *, after: Position = START) -> list[Purge]:
        self._look()
        return self._updater.index.purges(after)

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        self._look()
        return read_slots(self._lines, after)

    def check(self) -> Iterator[Problem]:
        self._look()
        return check.problems(self._folder, self._updater.index, self._notes)

    def file_of(self, position: Position) -> str:
        self._look()
        return check.file_of(self._updater.index, position)

    def bad_lines(self) -> list[Problem]:
        self._look()
        return check.bad_lines(self._folder, self._updater.index)

    def checkout(self) -> Checkout | None:
        return self._updater.checkout()

    def other_epochs(self) -> set[str]:
        return self._updater.other_epochs()

    def future_files(self) -> list[str]:
        # A day of grace: the clock of another clone may be a little ahead.
        tomorrow = day_name(self._now_us() + 86_400_000_000)
        return [name for name in day_names(self._files, self._folder.events) if name > tomorrow]

    def rebuild_index(self, *, accept_missing: bool = False) -> int:
        """Make the index from the day files, whatever it says now, and return the number of events."""
        with self._mutex:
            self._require_writable()
            self._forget_committed()
            self._updater.rebuild(accept_missing=accept_missing)
            if accept_missing:
                self._lock.acquire(LOCK_TIMEOUT_S)
                try:
                    self._notes.accept_lost(self._now_us())
                finally:
                    self._lock.release()
            return int(self._updater.index.fetch("SELECT count(*) FROM events")[0][0])

    # ---- writing

    @contextmanager
    def open_write(self) -> Iterator[OpenWrite]:
        # `with`, and not acquire and release: between them an interrupt would leave the lock with nobody.
        with self._mutex:
            self._require_writable()
            self._lock.acquire(LOCK_TIMEOUT_S)
            try:
                with disk_errors(self.path):
                    self._updater.begin_write()
                if self._updater.seen != self._remembered_at:
                    # Somebody else wrote. The index may know it since long: every read brings it up to date.
                    self._forget_committed()
                    self._updater.record_pending()
                    self._remembered_at = self._updater.seen
                self._writing_thread = threading.get_ident()
                staged = OpenWrite(
                    self,
                    now_us=self._now_us(),
                    head=self.head(),
                    clock=self._last_clock(),
                    settle=None if self._settled else self._settle_origin,
                    continue_as=self._continue_as,
                )
                yield staged
                if staged.dirty:
                    with disk_errors(self.path):
                        self._commit(staged)
            except WriterStopped as error:
                self._failed = error  # G12: never again from this process
                self._updater.stop()
                self._forget_committed()
                raise
            except BaseException:
                self._forget_committed()
                raise
            finally:
                self._writing_thread = 0
                if self._updater.own.unsettle():
                    self._settled, self._identity = False, None
                self._updater.end_write()
                self._lock.release()

    def watch(self, callback: Callable[[], None]) -> None:
        """Do nothing: commits of other processes are noticed by looking at the head."""

    def close(self) -> None:
        with self._mutex:
            if not self._closed:
                self._closed = True
                self._tail.close()
                self._updater.close()
                self.small_state.close()
                try:
                    if self._clock_behind and self._failed is None:
                        self._write_last_clock()
                finally:
                    self._lock.close()

    # ---- what a write starts from

    def ends(
        self,
        *,
        streams: Collection[str] = (),
        origins: Collection[str] = (),
        ids: Collection[EventId] = (),
        purging: str = "",
    ) -> Ends:
        clock = self._last_clock()
        sequences = {stream: self._sequence(stream) for stream in streams}
        chains = {origin: self._chain(origin) for origin in origins}
        if not ids and not purging:
            return Ends(clock, sequences, chains)
        known = {event_id: known for event_id in ids if (known := self._find_known(event_id)) is not None}
        return Ends(clock, sequences, chains, known, self._removable(purging) if purging else None)

    def chains(self) -> dict[str, Chain]:
        self._look()
        return self._updater.index.chains()

    def missing_own_events(self) -> int:
        origin = self.identity.origin

        def end() -> int:
            self._look()
            return self._updater.index.chain(origin).end.origin_seq

        return missing_own_events(self._files, self._folder.lock_file, origin, end)

    def _last_clock(self) -> int:
        if self._in_write() and self._clock is not None:
            return self._clock
        self._look()
        clock = self._committed_clock()
        if self._in_write():
            self._clock = clock
        return clock

    def _committed_clock(self) -> int:
        """clock.json may be ahead of the log, for events that were seen and not recorded. Nothing protects it, and a
        wrong digit must not move the clock for good (F58)."""
        known, stored = self._updater.index.clock(), self._folder.clock()
        if stored <= known:
            return known
        if stored > min(known + JUMP_MAX, LAMPORT_MAX):
            if stored != self._clock_ignored:
                self._clock_ignored = stored
                _logger.warning(
                    "%s says %d, the log knows of %d: it is ignored, and overwritten with the next event",
                    self._folder.clock_file,
                    stored,
                    known,
                )
            return known
        return stored

    def _chain(self, origin: str) -> Chain:
        found = self._chains.get(origin)
        if found is None:
            found = self._chains[origin] = self._updater.index.chain(origin)
        return found

    def _sequence(self, stream: str) -> int:
        found = self._sequences.get(stream)
        if found is None:
            if len(self._sequences) >= _STREAMS_REMEMBERED_MAX:
                self._updater.record_pending()
                self._sequences.clear()
            found = self._sequences[stream] = self._updater.index.sequence(stream)
        return found

    def _find_known(self, event_id: EventId) -> Known | None:
        self._look()
        purged = self._updater.index.fetch("SELECT hash FROM purged WHERE id = ?", (event_id,))
        if purged:
            return Known(purged[0][0], True)
        digest = hash_by_id(self._lines, event_id)
        return None if digest is None else Known(digest, False)

    def _removable(self, stream: str) -> Removable:
        self._look()
        removed, scopes = removable(self._lines, stream)
        return Removable(removed, tuple(sorted(scopes)))

    # ---- claims and notes

    def _find_claims(self, names: Collection[bytes]) -> dict[bytes, Claim]:
        self._look_beside()
        wanted = self._updater.claimed_among(names) | (self._notes.claims().keys() & set(names))
        if not wanted:
            return {}
        found = {name: self._find_claim(name) for name in wanted}
        return {name: claim for name, claim in found.items() if claim is not None}

    def _find_claim(self, name: bytes) -> Claim | None:
        apart, beside = self._notes.claimed(name), self._updater.claimed(name)
        if apart is None or (beside is not None and beside.first > apart[0]):
            return beside
        return apart[1]

    def _find_note(self, key: str) -> str | None:
        self._look_beside()
        value, expires = self._notes.notes().get(key, (None, None))
        return None if expires is not None and expires <= self._now_us() else value

    def _find_notes(self, prefix: str, limit: int | None, newest_first: bool) -> dict[str, str]:
        self._look_beside()
        now = self._now_us()
        found = [
            (key, value)
            for key, (value, expires) in self._notes.notes().items()
            if key.startswith(prefix) and (expires is None or expires > now)
        ]
        return dict(sorted(found, reverse=newest_first)[:limit])

    def _lost_notes(self) -> LostNotes | None:
        self._look_beside()
        error = self._notes.lost()
        return None if error is None else LostNotes(error, self._updater.index.chains().keys())

    def _every_row(self) -> Iterator[Row]:
        self._look()
        for name in {**self._updater.index.claims(), **self._notes.claims()}:
            claim = self._find_claim(name)
            if claim is not None:
                yield claim_row(name, claim)
        now = self._now_us()
        for key, (value, expires) in sorted(self._notes.notes().items()):
            if expires is None or expires > now:
                yield note_row(key, value, expires)

    # ---- inside: committing

    def _commit(self, staged: OpenWrite) -> None:
        if staged.clock > LAMPORT_MAX:
            raise ClockJump(
                f"the clock of {self.path} stands at its end, {LAMPORT_MAX}",
                why="an event with a clock value far ahead of all others came with git; nothing was written",
                hint="find it: everlog log --json; remove its line, then everlog index rebuild --accept-missing",
                seen=staged.clock,
                clock=staged.clock_before,
            )
        self._updater.own.save(self._updater.index)
        removes = bool(staged.staged_purges or staged.erasures or staged.scrubs)
        is_plain = not removes and not staged.placed_purged
        epoch = "" if is_plain else self._updater.index.epoch
        staged_lines = LinesOfWrite(staged, epoch, self._updater.origin, self._ids)
        if staged.staged_notes or staged_lines.claims_apart:
            self._notes.append(
                staged.staged_notes,
                staged_lines.claims_apart,
                at=staged.position,
                of=staged_lines.first_id,
                now_us=staged.now_us,
            )
        is_current = self._append(staged, staged_lines, lags=is_plain) if staged_lines.lines or removes else True
        self._clock_behind |= staged.clock != self._last_clock()
        if self._clock_behind and is_current:
            self._write_clock(staged.clock, staged.now_us, durable=not staged.records)
        self._head, self._clock = staged.position, staged.clock
        self._chains.update(staged.chains)
        origin = self._updater.origin
        if self._settled and (own := staged.chains.get(origin)) is not None:
            remember_end(self._lock, origin, own.end.origin_seq)
        for recorded, _ in staged.records:
            self._sequences[recorded.event.stream] = recorded.sequence
        self._remembered_at = self._updater.seen

    def _settle_origin(self) -> None:
        self._updater.record_pending()  # the end of the chain must be known
        self._updater.own.settle(self._updater.index)
        self._settled, self._identity = True, None

    def _continue_as(self, origin: str) -> None:
        self._updater.own.continue_as(origin)
        self._identity = None

    def _write_last_clock(self) -> None:
        try:
            self._lock.acquire(0)
        except EverlogError:
            return  # another process writes, and also writes the clock
        try:
            clock = max(self._clock or 0, self._folder.clock())
            self._write_clock(clock, self._now_us(), durable=False)
        finally:
            self._lock.release()

    def _write_clock(self, clock: int, now_us: int, *, durable: bool) -> None:
        """Write clock.json. It must be durable if no event keeps the value; else it may lag, as the index."""
        moment = datetime.fromtimestamp(now_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        try:
            self._folder.write_clock(clock, moment, durable=durable)
        except (OSError, EverlogError) as error:
            if durable:
                raise
            # The events are on the disk, and that must not be reported as a failure. The log knows the clock.
            _logger.warning("%s could not be written: %s", self._folder.clock_file, error)
        self._clock_behind = False

    def _append(self, staged: OpenWrite, made: LinesOfWrite, *, lags: bool) -> bool:
        """Append the lines and flush them. Return whether the index is up to date."""
        plan = purge.NOTHING
        if made.purges or staged.erasures or staged.scrubs:
            plan = purge.plan_of(made.purges, staged.erasures.values(), made.first_id)
            purge.write_plan(self._files, self._folder.purge_file, plan)
        is_current = True
        if made.lines:
            name = day_name(staged.now_us)
            at = self._updater.end_of_log(name)
            self._tail.append(b"".join([line for line, _, _ in made.lines]), at=at)
            if at == 0:
                # The name is safe before the first event in it is acknowledged (F06).
                self._files.fsync_dir(self._folder.events)
            first = Position(staged.position - len(made.lines) + 1)
            is_current = self._updater.record_write(name, at, first, made.lines, plan, now=not lags)
        if plan is not purge.NOTHING:
            self._updater.finish_purge(plan)
        return is_current

    def _forget_committed(self) -> None:
        self._remembered_at = None  # the state of the index that the rest was taken from
        self._identity = None
        self._settled = False  # whether it is known that this copy was not put back
        self._head = None
        self._clock = None
        self._chains = {}
        self._sequences = {}

    # ---- inside: being open

    def _in_write(self) -> bool:
        return self._writing_thread == threading.get_ident()

    def _look(self) -> None:
        """Before every question: the store is open, and the index as new as the files."""
        self._look_beside()
        if self._in_write():
            self._updater.record_pending()

    def _look_beside(self) -> None:
        """Before a question about claims or notes, which a write answers without the lines that are pending."""
        if self._closed:
            raise LogClosed(f"{self.path} is closed", hint=self._why_closed)
        if not self._in_write():
            with disk_errors(self.path):
                self._updater.refresh()

    def _reread_file(self, file: int) -> None:
        if not self._in_write():  # a write has the lock, and ends with an error
            self._updater.reread_file(file)

    def _require_writable(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.path} is closed", hint=self._why_closed)
        refuse_stopped_writer(self.path, self._failed)

    def _create(self, allowed: bool, identity: Identity | None) -> str:
        """Make the log and return the epoch that it begins with."""
        if not allowed:
            why = "there is no log to open"
            if self._folder.has_events():
                why = "there are day files, but no log.json that makes them a log"
            raise NotFound(f"{self.path} is not a log", why=why, hint=f"everlog init --store jsonl:{self.path}")
        self._folder.make_parents()
        self._lock.acquire(LOCK_TIMEOUT_S)
        try:
            if self._folder.is_log():  # another process was faster
                return ""
            made = identity or new_identity(self._now_us())
            place = self._lock.place() if identity is None else ""
            self._folder.make(made, place)
            if place:
                remember_end(self._lock, made.origin, 0)
            return made.epoch
        finally:
            self._lock.release()

    def _make_local(self) -> None:
        """Create the local folder: a fresh clone has none."""
        if not self._files.exists(self._folder.local):
            try:
                self._folder.make_local()
            except ReadOnly:
                return  # then it is read with an index in memory

    def abandon_after_fork(self) -> None:
        """In a child: leave the parent's connection alone and refuse to be used. SQLite forbids to use or to close it
        there; it is kept alive for ever, because Python would close it."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._updater))
        self._mutex = threading.Lock()
        self._closed = True
        self._why_closed = WHY_ABANDONED
