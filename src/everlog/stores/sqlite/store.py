"""The SQLite store: one file, one row per group of events, many readers, one writer at a time.

Reads use a small pool of read-only connections and fetch page by page, so that a slow reader never pins the
write-ahead log. A write holds a lock file (fair between processes, where SQLite's own busy handler polls), begins
IMMEDIATE, stages in memory and inserts everything at its end. What a write starts from is kept in memory and dropped
when another connection has committed since (PRAGMA data_version).
"""

from __future__ import annotations

import ctypes
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from everlog.core.chain import Chain
from everlog.core.codec import Packed, header_bytes, header_hash
from everlog.core.event import START, Position, Purge, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, LogClosed, WriterStopped
from everlog.files import DiskFiles, Files
from everlog.stores.contract import CLAIMS_KEPT_US_MIN, Block, Claim, Ends, Identity, Known, Problem, Removable
from everlog.stores.identity import Origins, continued, new_identity
from everlog.stores.inherited import WHY_ABANDONED, abandon_in_forks, refuse_stopped_writer
from everlog.stores.open_write import OpenWrite
from everlog.stores.put_back import missing_own_events, remember_end, settle
from everlog.stores.small_state import Beside, Row, StoreState, claim_row, note_row
from everlog.stores.small_state_sqlite import StateTable, write_changes
from everlog.stores.sqlite import check, connection
from everlog.stores.sqlite.chains import read_chain, read_chains
from everlog.stores.sqlite.claims import Claims
from everlog.stores.sqlite.create import make_log, schema_text
from everlog.stores.sqlite.groups import Fetch, StoredGroup
from everlog.stores.sqlite.identity import place_in, read_identity, write_identity, write_place
from everlog.stores.sqlite.insert import Inserter
from everlog.stores.sqlite.queries import find_record, get_record, read_pieces
from everlog.stores.sqlite.recent import Recent
from everlog.stores.sqlite.scan import END, WINDOW_MAX, head_of, windows
from everlog.stores.sqlite.scrub import Scrub
from everlog.stores.sqlite.stored import read_groups, read_places, scan_blocks
from everlog.stores.sqlite.tail import Tail
from everlog.stores.waiting_lines import WaitingLines

_Item = TypeVar("_Item")


class SqliteStore:
    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = True,
        files: Files | None = None,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        claims_kept_us: int = CLAIMS_KEPT_US_MIN,
        identity: Identity | None = None,
    ) -> None:
        self.path = Path(path)
        connection.refuse_directory(self.path)
        self._files = files or DiskFiles()
        self._now_us = now_us
        self._mutex = threading.Lock()
        self._lock_path = self.path.with_name(self.path.name + "-lock")
        self._lock = self._files.lock(self._lock_path)
        self._idle_readers: list[sqlite3.Connection] = []
        self._writer: sqlite3.Connection | None = None
        self._recent = Recent(self.path.name)
        self._claims = Claims(claims_kept_us)
        self._tail = Tail(self._claims)
        self._inserter = Inserter(self._tail)
        self._failed: BaseException | None = None
        self._closed = False
        self._why_closed = "open it again"
        self._scrub = Scrub(self.path)
        self._writing_thread = 0
        self._has_written = False
        self._data_version = -1
        self._head: Position | None = None
        self._clock: int | None = None
        self._chains: dict[str, Chain] = {}
        self._settled = False  # whether it is known that the log was not put back
        self.origins = Origins()
        self._identity_before: Identity | None = None  # if this write changes it
        beside = Beside(self._find_claims, self._find_note, self._find_notes, self._every_row)
        waiting = WaitingLines(
            self._files, self.path.with_name(self.path.name + "-refusals"), lambda: self.identity.log_id
        )
        self.small_state = StoreState(beside, lambda: StateTable(self._fetch, self.open_write), waiting)
        if not self._files.exists(self.path):
            made = identity or new_identity(now_us())
            make_log(self._files, self._lock, self.path, made, allowed=create, stays=identity is None)
        self._inode = connection.open_files.enter(self._files, self.path)
        try:
            self.identity = self._read_identity()
        except BaseException:
            self.close()
            raise
        abandon_in_forks(self)

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
        return chain.from_iterable(pieces)

    def read_pieces(
        self,
        query: Query,
        *,
        after: Position,
        upto: Position | None,
        limit: int | None,
        newest_first: bool = False,
    ) -> Iterator[list[Recorded]]:
        self._look()
        return read_pieces(
            self._fetch_on, query, after=after, upto=upto, limit=limit, newest_first=newest_first, recent=self._recent
        )

    def blocks(
        self, query: Query = EVERYTHING, *, after: Position = START, upto: Position | None = None
    ) -> Iterator[Block]:
        self._look()
        return scan_blocks(self._fetch_on, query, after=after, upto=upto, recent=self._recent)

    def get(self, event_id: EventId) -> Recorded | None:
        return get_record(self._fetch, event_id, self.path.name)

    def head(self) -> Position:
        if self._in_write() and self._head is not None:
            return self._head
        try:
            head = head_of(self._fetch)
        except Damaged:
            head = self._fetch("SELECT position FROM state WHERE name = 'clock'", ())[0][0]
        return Position(head)

    def purges(self, *, after: Position = START) -> list[Purge]:
        rows = self._fetch(
            "SELECT reserved, stream, scopes, actor, reason, purged_us, sequence, count FROM purges"
            " WHERE reserved > ? ORDER BY reserved",
            (after,),
        )
        return [Purge(row[0], row[1], tuple(json.loads(row[2])), *row[3:]) for row in rows]

    def slots(self, *, after: Position = START) -> Iterator[Packed | Purged]:
        return self._at_one_moment(lambda fetch: read_places(fetch, after))

    def groups(self, *, after: Position = START, upto: Position | None = None) -> Iterator[StoredGroup | Purged]:
        """Return every readable group, and what is left of purged events, in order of position. A group comes before
        what was purged within it."""
        return self._at_one_moment(lambda fetch: read_groups(fetch, after, END if upto is None else upto))

    def check(self) -> Iterator[Problem]:
        self._look()
        with connection.own_errors(self.path, "checking"), self._reader() as reader:
            reader.execute("BEGIN")  # one moment for all that is compared: the log may be written meanwhile

            def fetch(sql: str, values: tuple[Any, ...]) -> list[Any]:
                return reader.execute(sql, values).fetchall()

            try:
                yield from check.problems(fetch, schema_text())
            finally:
                reader.execute("ROLLBACK")

    def file_of(self, position: Position) -> str:
        return self.path.name

    # ---- writing

    @contextmanager
    def open_write(self) -> Iterator[OpenWrite]:
        # `with`, and not acquire and release: between them an interrupt would leave the lock with nobody.
        with self._mutex:
            self._require_writable()
            self._lock.acquire(connection.BUSY_TIMEOUT_MS / 1000)
            try:
                try:
                    self._begin()
                    self._writing_thread = threading.get_ident()
                    head = self.head() if self._head is None else self._head
                    clock = self._last_clock() if self._clock is None else self._clock
                    staged = OpenWrite(
                        self,
                        now_us=self._now_us(),
                        head=head,
                        clock=clock,
                        settle=None if self._settled else self._settle_origin,
                        continue_as=self._continue_as,
                    )
                    yield staged
                    self._commit(staged)
                except BaseException:
                    self._roll_back()
                    raise
                finally:
                    self._writing_thread = 0
            finally:
                self._lock.release()
            if self._writer is not None and self._scrub.owed_after(staged):
                self._tidy_up(self._writer, wait=staged.scrubs)

    def watch(self, callback: Callable[[], None]) -> None:
        """Do nothing: commits of other processes are noticed by looking at the head."""

    def close(self) -> None:
        with self._mutex:
            was_open, self._closed = not self._closed, True
            if self._writer is not None and self._scrub.left and self._failed is None:
                self._tidy_up(self._writer)
            # The last connection that can write moves the write-ahead log into the file, with flushes. A process that
            # has written nothing leaves that to one that has: a reader that is still open keeps SQLite from it.
            if self._writer is not None and not self._has_written:
                self._writer.close()
                self._writer = None
            while self._idle_readers:
                self._idle_readers.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._lock.close()
            if was_open:
                connection.open_files.leave(self._inode)

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
        sequences = self._tail.sequences(self._fetch, streams) if streams else {}
        chains: dict[str, Chain] = {}
        for origin in origins:
            chains[origin] = self._chains.get(origin) or self._chain(origin)
        if chains and self._clock is not None and not ids and not purging:  # inside a write: the clock is known
            return Ends(self._clock, sequences, chains)
        known = {event_id: known for event_id in ids if (known := self._find_known(event_id)) is not None}
        return Ends(self._last_clock(), sequences, chains, known, self._removable(purging) if purging else None)

    def chains(self) -> dict[str, Chain]:
        if not self._in_write():  # a write has looked at the newest events
            # The journal of one moment beside the database of another gives the ends of the one without the events
            # of the other. Heads are signed and sent, so they are whole, or they stop.
            for _ in windows(self._fetch, max(0, self.head() - WINDOW_MAX), END, file=self.path.name):
                pass
        return read_chains(self._fetch)

    def missing_own_events(self) -> int:
        origin = self.identity.origin
        return missing_own_events(
            self._files, self._lock_path, origin, lambda: read_chain(self._fetch, origin).greatest.origin_seq
        )

    def _last_clock(self) -> int:
        if not self._in_write():
            return self._state("clock")[0]  # another process may have written since this one last did
        if self._clock is None:
            self._clock = self._state("clock")[0]
        return self._clock

    def _chain(self, origin: str) -> Chain:
        found = self._chains.get(origin)
        if found is None:
            found = read_chain(self._fetch, origin)
            if self._in_write():  # another process may write to it otherwise
                self._chains[origin] = found
        return found

    def _find_known(self, event_id: EventId) -> Known | None:
        found = find_record(self._fetch, event_id, self.path.name)
        if found is not None:
            return Known(header_hash(header_bytes(found.event)), False)
        rows = self._fetch("SELECT hash FROM purged WHERE id = ?", (event_id,))
        return Known(rows[0][0], True) if rows else None

    def _removable(self, stream: str) -> Removable:
        removed, scopes = [], set()
        for recorded in self.read(Query(stream=stream)):
            event = recorded.event
            group = event.group
            assert isinstance(group, StoredGroup)
            facts, link = group.facts, group.link(event)
            signed = (facts.signature, (facts.first_seq, facts.count)) if facts.signature else (b"", (0, 0))
            removed.append(
                Purged(
                    position=recorded.position,
                    sequence=recorded.sequence,
                    id=event.id,
                    origin=event.origin,
                    origin_seq=event.origin_seq,
                    hash=link.hash,
                    previous=link.previous,
                    lamport=event.lamport,
                    signature=signed[0],
                    signed_with=signed[1],
                )
            )
            scopes.add(event.scope)
        return Removable(removed, tuple(sorted(scopes)))

    # ---- claims and notes

    def _find_claims(self, names: Collection[bytes]) -> dict[bytes, Claim]:
        if self._in_write():
            return self._tail.find_claims(self._fetch, names)
        found = {name: self._claims.find(self._fetch, name, in_write=False) for name in names}
        return {name: claim for name, claim in found.items() if claim is not None}

    def _find_note(self, key: str) -> str | None:
        rows = self._fetch("SELECT value, expires_us FROM notes WHERE key = ?", (key,))
        if not rows or (rows[0][1] is not None and rows[0][1] <= self._now_us()):
            return None
        value: str = rows[0][0]
        return value

    def _find_notes(self, prefix: str, limit: int | None, newest_first: bool) -> dict[str, str]:
        order = "DESC" if newest_first else "ASC"
        rows = self._fetch(
            "SELECT key, value FROM notes WHERE key >= ? AND key < ? AND (expires_us IS NULL OR expires_us > ?)"
            f" ORDER BY key {order} LIMIT ?",
            (prefix, prefix + "\U0010ffff", self._now_us(), -1 if limit is None else limit),
        )
        return dict(rows)

    def _every_row(self) -> Iterator[Row]:
        for claimed in self._claims.every(self._fetch):
            yield claim_row(*claimed)
        rows = self._fetch(
            "SELECT key, value, expires_us FROM notes WHERE expires_us IS NULL OR expires_us > ?", (self._now_us(),)
        )
        for row in rows:
            yield note_row(*row)

    # ---- inside: reading

    def _in_write(self) -> bool:
        return self._writing_thread == threading.get_ident()

    def _fetch(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        self._look()
        return self._fetch_on(sql, values)

    def _look(self) -> None:
        """Refuse to read a file that another one has replaced: its readers would never see what is written there."""
        if self._files.inode(self.path) not in (self._inode, None):
            raise LogClosed(
                f"{self.path} was replaced while it was open",
                why="another file has its name now, such as a backup that was put back",
                hint="open the log again; a reader that continues at its cursor then gets a reset if it needs one",
                path=str(self.path),
            )

    def _fetch_on(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        """Continue a read: all readers are of one file, so there is no need to look at it again."""
        with connection.own_errors(self.path, "reading"):
            if self._in_write() and self._writer is not None:
                # Inside a write the writer's own connection answers: it sees what its transaction has locked in.
                return self._writer_fetch(sql, values)
            with self._reader() as reader:
                return reader.execute(sql, values).fetchall()

    def _writer_fetch(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        assert self._writer is not None
        with connection.own_errors(self.path, "reading"):
            return self._writer.execute(sql, values).fetchall()

    def _reader(self) -> connection.Borrowed:
        if self._closed:
            raise LogClosed(f"{self.path} is closed", hint=self._why_closed)
        return connection.Borrowed(self.path, self._idle_readers, self._look)

    def _at_one_moment(self, read: Callable[[Fetch], Iterator[_Item]]) -> Iterator[_Item]:
        """Read page by page, all as of one moment."""
        self._look()
        with connection.own_errors(self.path, "reading"), self._reader() as reader:
            reader.execute("BEGIN")

            def fetch(sql: str, values: tuple[Any, ...]) -> list[Any]:
                with connection.own_errors(self.path, "reading"):
                    return reader.execute(sql, values).fetchall()

            try:
                yield from read(fetch)
            finally:
                reader.execute("ROLLBACK")

    # ---- inside: writing

    def _require_writable(self) -> None:
        if self._closed:
            raise LogClosed(f"{self.path} is closed", hint=self._why_closed)
        refuse_stopped_writer(self.path, self._failed)

    def _begin(self) -> None:
        if self._files.inode(self.path) != self._inode:
            # SQLite would continue writing to a file that has no name any more, and nobody would ever find it.
            raise Damaged(
                f"{self.path} was removed or replaced while it was open",
                why="what is written now would be lost with the file that is gone",
                hint="put it back or restore a backup, then open the log again",
            )
        with connection.own_errors(self.path, "opening a write in"):
            if self._writer is None:
                self._writer = connection.connect_writer(self.path)
            writer = self._writer
            writer.execute("BEGIN IMMEDIATE")
            (version,) = writer.execute("PRAGMA data_version").fetchone()
        if version != self._data_version:
            self._head = None
            self._clock = None
            self._chains = {}
            self._settled = False
            self._inserter.catch_up()
            self._refuse_cut_log(writer)
            self._tail.catch_up(self._writer_fetch)
            self._data_version = version
            if self._writer_fetch("SELECT number FROM state WHERE name = 'scrub' AND number > 0", ()):
                self._scrub.left = True  # a purge was committed, and its process ended before it tidied up
        elif not self._tail.known:
            self._tail.catch_up(self._writer_fetch)

    def _commit(self, staged: OpenWrite) -> None:
        writer = self._writer
        assert writer is not None
        if not staged.dirty:
            writer.execute("ROLLBACK")
            self._unsettle()
            return
        self._has_written = True
        try:
            with connection.own_errors(self.path, "writing to"):
                entries = self._inserter.insert(writer, staged, scrub_owed=self._scrub.owed_after(staged))
                if staged.state_changes:
                    write_changes(writer, staged.state_changes)
                writer.execute("COMMIT")
        except WriterStopped as error:
            self._failed = error  # G12: never again from this process
            raise
        self._head = staged.position
        self._clock = staged.clock
        self._chains.update(staged.chains)
        self._identity_before = None
        if self._settled and (own := staged.chains.get(self.identity.origin)) is not None:
            remember_end(self._lock, self.identity.origin, own.greatest.origin_seq)
        self._tail.committed(staged, entries)
        self._inserter.committed()

    def _settle_origin(self) -> None:
        """Make sure that own events continue the chain: another process may have changed the origin, and a log that
        was put back takes a new one, with this write."""
        writer = self._writer
        assert writer is not None
        with connection.own_errors(self.path, "writing to"):
            before, place = read_identity(self._writer_fetch, self.path), place_in(self._writer_fetch)
            link = self._chain(before.origin).greatest
            self.identity, here = settle(
                self._lock,
                before,
                place,
                link=link,
                head=self.head(),
                now_us=self._now_us(),
                origins=self.origins,
            )
            if self.identity != before:
                write_identity(writer, self.identity)
            if here != place:
                write_place(writer, here)
            if (self.identity, here) != (before, place):
                self._identity_before = before
        self._settled = bool(here)

    def _continue_as(self, origin: str) -> None:
        writer, before = self._writer, self.identity
        assert writer is not None
        self.identity = continued(before, origin, head=self.head())
        self._identity_before = self._identity_before or before
        with connection.own_errors(self.path, "writing to"):
            write_identity(writer, self.identity)

    def _unsettle(self) -> None:
        """Take back what settling the origin changed: the write was undone."""
        if self._identity_before is not None:
            self.identity, self._identity_before = self._identity_before, None
            self._settled = False

    def _roll_back(self) -> None:
        """Undo an open transaction, and forget what was remembered on the strength of it."""
        self._forget_committed()
        self._unsettle()
        self._writing_thread = 0
        if self._writer is not None and self._writer.in_transaction:
            self._writer.execute("ROLLBACK")

    def _forget_committed(self) -> None:
        self._data_version = -1
        self._settled = False
        self._head = None
        self._clock = None
        self._chains = {}
        self._tail.forget()
        self._inserter.forget()

    def _tidy_up(self, writer: sqlite3.Connection, *, wait: bool = False) -> None:
        failure = self._scrub.empty_journal(writer, wait=wait)
        if failure is not None:
            self._failed = failure  # a flush failed: the next write must not count on what is in the file (G12)

    def _state(self, name: str) -> tuple[int, bytes]:
        rows = self._fetch("SELECT number, hash FROM state WHERE name = ?", (name,))
        return rows[0] if rows else (0, b"")

    def _refuse_cut_log(self, writer: sqlite3.Connection) -> None:
        """Refuse to write onto a log whose last event is not the one that the state remembers (G10, F60)."""

        def fetch(sql: str, values: tuple[Any, ...]) -> list[Any]:
            return writer.execute(sql, values).fetchall()

        with connection.own_errors(self.path, "opening a write in"):
            problem = next(check.state_problems(fetch), None)
        if problem is not None:
            raise Damaged(
                f"{self.path} is damaged and takes no writes",
                why=problem.reason,
                hint="everlog verify, then restore a backup or export what is readable",
            )

    # ---- inside: opening, and a fork

    def abandon_after_fork(self) -> None:
        """In a child: leave the parent's connections alone, open or closed, and refuse to be used.

        SQLite forbids to use or to close a connection in a child. They are kept alive for ever, because Python would
        close them.
        """
        for inherited in (*self._idle_readers, self._writer):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))
        self._idle_readers = []
        self._writer = None
        self._mutex = threading.Lock()
        self._closed = True
        self._why_closed = WHY_ABANDONED

    def _read_identity(self) -> Identity:
        with connection.own_errors(self.path, "opening"), self._reader() as reader:
            connection.refuse_foreign_database(self.path, reader)

            def fetch(sql: str, values: tuple[Any, ...]) -> list[Any]:
                return reader.execute(sql, values).fetchall()

            return read_identity(fetch, self.path)
