"""Open SQLite with the settings that a log needs, and convert its errors to everlog's."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from shlex import quote as quoted
from urllib.parse import quote

from everlog.errors import (
    Busy,
    Damaged,
    EverlogError,
    LogClosed,
    NotALog,
    ReadOnly,
    StorageFull,
    Unavailable,
    WriterStopped,
)
from everlog.files import DiskFiles, Files
from everlog.stores.formats import FORMAT, refuse_other_format

APPLICATION_ID = 0x65766C67  # "evlg", in the file's header, so that a foreign database is recognised
BUSY_TIMEOUT_MS = 30_000
_MAGIC = b"SQLite format 3\x00"


def connect_writer(path: Path) -> sqlite3.Connection:
    connection = _connect(path, "rw")
    # FULL flushes the write-ahead log at every commit; NORMAL would lose acknowledged events in a power cut (F08).
    connection.execute("PRAGMA synchronous = FULL")
    # Where a flush may end in the drive's own cache (macOS), ask for the one that does not.
    connection.execute("PRAGMA fullfsync = ON")
    # Freed space is overwritten, so that a purge leaves no bytes behind in the file.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def connect_reader(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection that cannot write, and whether it may be kept: one to a file as it stands sees no later change."""
    lasting = True
    try:
        connection = _connect(path, "ro")
        connection.execute("SELECT 1 FROM identity").fetchone()
    except sqlite3.OperationalError:
        # In a folder that cannot be written SQLite cannot make its side files. If there is no write-ahead log
        # there is nothing that they would add, and the file may be read as it stands.
        if path.with_name(path.name + "-wal").exists():
            raise
        connection, lasting = _connect(path, "ro&immutable=1"), False
    connection.execute("PRAGMA query_only = ON")  # a read never writes (G11), whatever a bug tries
    return connection, lasting


class Borrowed:
    """A reader from the pool for the duration of a `with`; one that must not be kept is closed.

    `look` raises an error if the name leads to another file: all readers of a pool are of one file.
    """

    __slots__ = ("_idle", "_lasting", "_look", "_path", "_reader")

    def __init__(self, path: Path, idle: list[sqlite3.Connection], look: Callable[[], None]) -> None:
        self._path = path
        self._idle = idle
        self._look = look

    def __enter__(self) -> sqlite3.Connection:
        self._lasting = True
        try:
            self._reader = self._idle.pop()
        except IndexError:
            self._reader, self._lasting = connect_reader(self._path)
            try:
                self._look()  # after it was opened: the file may have been replaced just before
            except BaseException:
                self._reader.close()
                raise
        return self._reader

    def __exit__(self, kind: object, error: object, where: object) -> None:
        if self._lasting:
            self._idle.append(self._reader)
        else:
            self._reader.close()


def create_database(path: Path, schema: str) -> sqlite3.Connection:
    connection = _connect(path, "rwc")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(
        f"BEGIN; {schema}; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
    )
    return connection


def empty_journal(writer: sqlite3.Connection, *, wait_ms: int) -> bool:
    """Move the write-ahead log into the file and empty it. Return False if a reader still uses it."""
    writer.execute(f"PRAGMA busy_timeout = {wait_ms}")
    try:
        (held, _, _) = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        writer.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    return not held


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,  # transactions are started and ended explicitly
        check_same_thread=False,  # one thread at a time uses a connection, not always the same one
        timeout=BUSY_TIMEOUT_MS / 1000,
        cached_statements=256,  # a statement for every number of rows that is inserted at once
    )


def refuse_directory(path: Path) -> None:
    if path.is_dir():
        raise NotALog(
            f"{path} is a directory",
            why="an SQLite log is one file",
            hint="name a file in it, or use the scheme of a log that is a folder: jsonl: or segments:",
            path=str(path),
        )


class Registry:
    """The files that this process has open as logs.

    POSIX drops every lock that a process has on a file as soon as the process closes any descriptor of that file. So
    a file that SQLite has open here is never opened a second time: another process that closes the log would take
    itself for the last one and remove the write-ahead log that this process still writes.

    A forked child has no such locks, but SQLite's memory of them. So it cannot open a file that was open at the fork.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._open: Counter[tuple[int, int] | None] = Counter()
        self._inherited: frozenset[tuple[int, int] | None] = frozenset()

    def enter(self, files: Files, path: Path) -> tuple[int, int] | None:
        """Refuse a file that is not a database, and count it as open until `leave`."""
        with self._mutex:
            inode = files.inode(path)
            if inode in self._inherited:
                raise LogClosed(
                    f"{path} cannot be opened in this process",
                    why="it was open when this process was forked, and SQLite's locks do not work across a fork",
                    hint="close the log before the fork, or use spawn to start it: docs/how-to/choose-a-store.md",
                    path=str(path),
                )
            if not self._open[inode]:  # otherwise another handle has checked it, and it must not be opened
                handle = files.open(path)
                try:
                    _refuse_foreign_file(path, files.read(handle, 16, at=0))
                finally:
                    files.close(handle)
            self._open[inode] += 1
            return inode

    def release_after_fork(self) -> None:
        """Replace the mutex in a child: the thread that may hold it does not exist there."""
        self._mutex = threading.Lock()
        self._inherited |= frozenset(self._open)

    def leave(self, inode: tuple[int, int] | None) -> None:
        with self._mutex:
            self._open[inode] -= 1
            if not self._open[inode]:
                del self._open[inode]


open_files = Registry()
os.register_at_fork(after_in_child=open_files.release_after_fork)


def _refuse_foreign_file(path: Path, first_bytes: bytes) -> None:
    """Refuse what cannot be a log before SQLite touches it; an empty file is never taken for a new log (F04)."""
    if first_bytes.startswith(_MAGIC):
        return
    found = "is empty" if not first_bytes else "is not an SQLite database"
    raise NotALog(
        f"{path} is not an everlog log",
        why=f"the file {found}",
        hint="name another file, or move this one away to begin a new log there",
        path=str(path),
    )


def refuse_foreign_database(path: Path, connection: sqlite3.Connection) -> None:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id != APPLICATION_ID:
        raise NotALog(
            f"{path} is not an everlog log",
            why="it is an SQLite database of another program",
            hint="name another file",
            path=str(path),
        )
    refuse_other_format(str(path), version)


class own_errors:  # noqa: N801 - used as a verb: with own_errors(path, "reading")
    """Convert SQLite's errors to everlog's. It is a class because a generator costs 1 µs per read."""

    __slots__ = ("_doing", "_path")

    def __init__(self, path: Path, doing: str) -> None:
        self._path = path
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise translated(error, self._path, self._doing) from error
        if isinstance(error, UnicodeDecodeError):
            # SQLite quotes a damaged schema in its message, and Python cannot read that as text.
            raise Damaged(
                f"{self._doing} {self._path} failed",
                why="SQLite's message about it is not text",
                hint=_hint_for_damage(self._doing, self._path),
                path=str(self._path),
            ) from error


def translated(error: sqlite3.Error, path: Path, doing: str) -> EverlogError:
    name = getattr(error, "sqlite_errorname", "") or ""
    what, why = f"{doing} {path} failed", f"{error} ({name})" if name else str(error)
    if name == "SQLITE_FULL":
        return StorageFull(
            what,
            why="the disk is full; nothing of this write was kept",
            hint="free some space and try again; reading still works",
            path=str(path),
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Busy(what, why="another program holds the database", hint="end it, or try again", path=str(path))
    if name.startswith("SQLITE_CANTOPEN") and (refused := _refused(path)) is not None:
        return refused
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_CANTOPEN", "SQLITE_AUTH")):
        return ReadOnly(
            what,
            why="the file or its folder cannot be written by this user",
            hint=f"check the permissions of {path.parent}",
            path=str(path),
        )
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_CONSTRAINT")):
        return Damaged(what, why=why, hint=_hint_for_damage(doing, path), path=str(path))
    if name == "SQLITE_ERROR" and str(error).startswith("no such column"):
        return Damaged(
            what,
            why=f"its schema is not as it was made: {why}",
            hint=_hint_for_damage(doing, path),
            path=str(path),
        )
    if not name and "UTF-8" in str(error):  # invalid text: sqlite3 reports it, and may quote a long text
        why = "a text in the database is not UTF-8"
        return Damaged(what, why=why, hint=_hint_for_damage(doing, path), path=str(path))
    if name == "SQLITE_IOERR_SHORT_READ":
        return Damaged(
            what, why="the file ends in the middle of a page", hint=_hint_for_damage(doing, path), path=str(path)
        )
    if name.startswith("SQLITE_IOERR") and doing in _READING:
        return Unavailable(
            what,
            why=why,
            hint="check the disk (dmesg), then try again; nothing was written",
            path=str(path),
        )
    if name.startswith("SQLITE_IOERR"):
        return WriterStopped(
            what,
            why=f"{why}; what reached the disk is unknown",
            hint="check the disk, then open the log again: what was acknowledged is there",
            path=str(path),
        )
    return EverlogError(what, why=why, hint="everlog doctor", path=str(path))


_READING = ("reading", "checking", "opening")


def _refused(path: Path) -> EverlogError | None:
    """Return why the system cannot open the file, which SQLite does not report: too many files may be open.

    The file itself must not be opened: see `Registry`.
    """
    files = DiskFiles()
    try:
        files.names(path.parent)
    except Unavailable as error:
        return error
    except FileNotFoundError:
        pass  # reported below, as a file that is gone
    if not files.exists(path):
        return Damaged(
            f"{path} is gone",
            why="it was removed while the log was open",
            hint="restore it or a backup, then open the log again",
            path=str(path),
        )
    return None


def _hint_for_damage(doing: str, path: Path) -> str:
    """A log that does not open cannot be verified either: there, only a backup or SQLite's own tool helps."""
    if doing != "opening":
        return "everlog verify"
    return f"restore a backup; or keep a copy, and see what can still be read: sqlite3 {quoted(str(path))} .recover"
