"""A small state as one SQLite table: in a log's own database, or in a file beside logs that have none."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from everlog.errors import Busy, Damaged, EverlogError, LogClosed, ReadOnly, StorageFull
from everlog.files import DiskFiles, Files
from everlog.lock_file import LockFile
from everlog.stores.open_write import OpenWrite
from everlog.stores.small_state import StateChanges, StateEmptied
from everlog.stores.text_rows import TextTables, write_texts

TABLE = """\
CREATE TABLE derived (
    space TEXT NOT NULL,
    key   TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID"""
"""Made when it is first needed: a log without views does without it."""

_IS_THERE = "SELECT 1 FROM sqlite_schema WHERE name = 'derived'"
_KEYS_AT_ONCE = 500
_PAGE_ROWS = 1000
_BUSY_S = 30.0
_key_of = itemgetter(0)
_DAMAGES_MAX = 5  # more often the disk itself must be looked at
_SHORT_READ = 522  # SQLITE_IOERR_SHORT_READ: the file is shorter than it says

Fetch = Callable[[str, tuple[Any, ...]], list[Any]]

_logger = logging.getLogger("everlog")


class StateTable:
    """The small state in a log's own database: read by the store's readers, written in the store's own writes."""

    in_log = True

    def __init__(self, fetch: Fetch, write: Callable[[], AbstractContextManager[OpenWrite]]) -> None:
        self._fetch = fetch
        self._write = write
        self._there = False
        self._texts = TextTables(fetch)

    def get(self, space: str, key: str) -> bytes | None:
        return self.rows(space, (key,)).get(key)

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        return get_many(self._fetch, space, keys) if self._is_there() else {}

    def scan(self, space: str, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, bytes]]:
        return scan(self._fetch, space, after, limit) if self._is_there() else iter(())

    def count(self, space: str) -> int:
        return count(self._fetch, space) if self._is_there() else 0

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        return self._texts.holding(space, words, within=within, limit=limit)

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        return self._texts.alike(space, words, part=part, least=least, limit=limit)

    @contextmanager
    def change(self) -> Iterator[StateChanges]:
        with self._write() as staged:
            staged.state_changes = StateChanges(self)
            yield staged.state_changes

    def close(self) -> None:
        """The store closes its own connections."""

    def _is_there(self) -> bool:
        if not self._there:
            self._there = bool(self._fetch(_IS_THERE, ()))
        return self._there


class StateFile:
    """The rows of views in a separate file. It is derived: a damaged file is removed and rebuilt from the events.

    A caller that uses it when the damage is noticed gets StateEmptied and begins again. A process that has the file
    open continues with what it has, until it notices the damage too. A lock prevents that the file is opened while it
    is removed: SQLite's three files must be removed together.

    `synchronous = NORMAL`: a power cut may undo its last changes, each of them as a whole, and the views continue
    from the cursor that is in the same change.
    """

    in_log = False

    def __init__(self, path: Path, files: Files | None = None) -> None:
        self.path = path
        self._files = files or DiskFiles()
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._closed = False
        self._damages = 0  # how often it was found damaged in use
        self._opening = LockFile(path.with_name(path.name + ".lock"))
        self._texts = TextTables(self._fetch)

    def get(self, space: str, key: str) -> bytes | None:
        return self.rows(space, (key,)).get(key)

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        return get_many(self._fetch, space, keys) if self._is_there() else {}

    def scan(self, space: str, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, bytes]]:
        try:
            yield from scan(self._fetch, space, after, limit) if self._is_there() else iter(())
        except _DamagedKey as error:
            with self._lock:
                self.make_again(error)
            raise self._emptied(error) from error

    def count(self, space: str) -> int:
        return count(self._fetch, space) if self._is_there() else 0

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        return self._texts.holding(space, words, within=within, limit=limit) if self._is_there() else []

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        return self._texts.alike(space, words, part=part, least=least, limit=limit) if self._is_there() else []

    @contextmanager
    def change(self) -> Iterator[StateChanges]:
        with self._lock, self._own_errors():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                changes = StateChanges(self)
                yield changes
                write_changes(connection, changes)
                connection.execute("COMMIT")
                if changes.scrub:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                if self._connection is connection and connection.in_transaction:  # not if it was closed for damage
                    connection.execute("ROLLBACK")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None
            self._opening.close()

    def _is_there(self) -> bool:
        return self._connection is not None or self._files.exists(self.path)

    def _fetch(self, sql: str, values: tuple[Any, ...]) -> list[Any]:
        with self._lock, self._own_errors():
            try:
                connection = self._open()
            except sqlite3.OperationalError as error:
                if not _may_not_write(error):
                    raise
                with closing(self._reader()) as reader:  # a user without write access
                    return reader.execute(sql, values).fetchall()
            return connection.execute(sql, values).fetchall()

    def _reader(self) -> sqlite3.Connection:
        """Open a connection for a user without write access. It is not kept: it would see no later change."""
        place = f"file:{quote(str(self.path))}?mode=ro"
        # SQLite cannot make its side files here. Without a write-ahead log they would add nothing to the file.
        alone = not self._files.exists(self.path.with_name(self.path.name + "-wal"))
        return sqlite3.connect(f"{place}&immutable=1" if alone else place, uri=True, timeout=_BUSY_S)

    def _open(self) -> sqlite3.Connection:
        if self._closed or self._process != os.getpid():
            raise LogClosed(f"{self.path} is closed", hint="open the log again; after a fork, in the child itself")
        if self._connection is None:
            if not self._files.exists(self.path.parent):  # otherwise it would be flushed, which nothing here needs
                self._files.make_dir(self.path.parent)
            with self._alone():
                try:
                    self._connection = self._connect()
                except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                    if not _is_damage(error):
                        raise
                    self._remove(error)
                    self._connection = self._connect()
        return self._connection

    def make_again(self, error: Exception) -> None:
        """Remove the file. The next to use it finds it empty."""
        with self._lock, self._own_errors():
            self._damages += 1
            self._make_again(error, first=False)

    def _remove(self, error: Exception) -> None:
        """Remove the damaged file; the lock is held."""
        _logger.warning("%s is damaged (%s) and is rebuilt from the events", self.path, error)
        for ending in ("", "-wal", "-shm"):
            if self._files.exists(leftover := self.path.with_name(self.path.name + ending)):
                self._files.unlink(leftover)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While nobody else opens or removes the file."""
        try:
            self._opening.acquire()
        except ReadOnly:  # then this user removes nothing either
            yield
            return
        try:
            yield
        finally:
            self._opening.release()

    def _make_again(self, error: Exception, *, first: bool) -> None:
        """After damage was noticed: take the file that another process has made meanwhile, or remove it."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with self._alone():
            try:
                connection = self._connect()
                connection.execute("SELECT space, key, value FROM derived LIMIT 0")
                # It may be another file by now. Only once: there is damage that this check does not find.
                if not first or connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                    connection.close()
                    raise error
                self._connection = connection
            except (sqlite3.DatabaseError, UnicodeDecodeError, Damaged) as still:
                if not _is_damage(still):
                    raise
                self._remove(still)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rwc",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=_BUSY_S,
        )
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")  # a state may hold words of what is purged later
            make_table(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if _is_damage(error) and self._damages < _DAMAGES_MAX and self._make_again_if_possible(error):
                raise self._emptied(error) from error
            name = getattr(error, "sqlite_errorname", "") or ""
            what = f"{self.path} cannot be used"
            kind, hint = EverlogError, f"it is derived: {self.path} may be deleted and is then rebuilt"
            if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                kind, hint = Busy, "another process is writing views there: try again"
            elif name == "SQLITE_FULL":
                kind, hint = StorageFull, "free some space and try again; the log itself can be read"
            elif isinstance(error, sqlite3.Error) and _may_not_write(error):
                from shlex import quote as shell_quote

                kind = ReadOnly
                hint = f"views are kept there: ls -ld {shell_quote(str(self.path.parent))} shows its permissions"
            raise kind(what, why=str(error), hint=hint) from error

    def _emptied(self, error: Exception) -> StateEmptied:
        return StateEmptied(
            f"{self.path} was damaged and is rebuilt from the events", why=str(error), hint="try again"
        )

    def _make_again_if_possible(self, error: Exception) -> bool:
        self._damages += 1
        try:
            self._make_again(error, first=self._damages == 1)
        except (sqlite3.Error, EverlogError) as reason:  # such as a folder that this user may not write to
            _logger.warning("%s is damaged and cannot be removed: %s", self.path, reason)
            return False
        return True


class _DamagedKey(Damaged):
    """A key is not a text, which the table does not allow."""


def _is_damage(error: Exception) -> bool:
    """Whether an error says that the file is not what was written; see the result codes of SQLite."""
    if not isinstance(error, sqlite3.Error):
        return isinstance(error, (UnicodeDecodeError, Damaged))
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # sqlite3's own errors have none
        return isinstance(error, sqlite3.OperationalError) and "UTF-8" in str(error)
    if code == sqlite3.SQLITE_ERROR:
        return "no such table" in str(error) or "no such column" in str(error)
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or code == _SHORT_READ


def _may_not_write(error: sqlite3.Error) -> bool:
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN"))


# ---- the table


def make_table(connection: sqlite3.Connection) -> None:
    if not connection.execute(_IS_THERE).fetchall():
        connection.execute(TABLE.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))


def write_changes(connection: sqlite3.Connection, changes: StateChanges) -> None:
    """Make a change in an open transaction."""
    make_table(connection)
    for space in changes.cleared:
        connection.execute("DELETE FROM derived WHERE space = ?", (space,))
    for space, rows in changes.changed.items():
        kept = [(space, key, value) for key, value in rows.items() if value is not None]
        connection.executemany("INSERT OR REPLACE INTO derived VALUES (?, ?, ?)", kept)
        if len(kept) < len(rows):
            gone = [(space, key) for key, value in rows.items() if value is None]
            connection.executemany("DELETE FROM derived WHERE space = ? AND key = ?", gone)
    write_texts(connection, changes.texts, changes.cleared, scrub=changes.scrub)


def get_many(fetch: Fetch, space: str, keys: Collection[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    waiting = iter(keys)
    while some := tuple(islice(waiting, _KEYS_AT_ONCE)):
        marks = ", ".join("?" * len(some))
        sql = f"SELECT key, value FROM derived WHERE space = ? AND key IN ({marks})"  # noqa: S608 - only marks
        found.update(fetch(sql, (space, *some)))
    return found


def scan(fetch: Fetch, space: str, after: str, limit: int | None) -> Iterator[tuple[str, bytes]]:
    """Page by page, so that a slow reader never pins the write-ahead log."""
    above = ">" if after else ">="
    while limit is None or limit > 0:
        size = _PAGE_ROWS if limit is None else min(limit, _PAGE_ROWS)
        rows = fetch(
            f"SELECT key, value FROM derived WHERE space = ? AND key {above} ? ORDER BY key LIMIT ?",  # noqa: S608
            (space, after, size),
        )
        if not set(map(type, map(_key_of, rows))) <= {str}:
            raise _DamagedKey(
                f"a key in the table of {space} is not a text",
                why="what views keep was changed or damaged on the disk",
                hint="everlog verify",
            )
        yield from rows
        if len(rows) < size:
            return
        after, above = rows[-1][0], ">"
        limit = None if limit is None else limit - size


def count(fetch: Fetch, space: str) -> int:
    found: int = fetch("SELECT count(*) FROM derived WHERE space = ?", (space,))[0][0]
    return found
