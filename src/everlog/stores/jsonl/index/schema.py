"""The index: one SQLite file that may be deleted at any time, or a database in memory where nothing can be written.

It has one connection, used under one lock: a lookup takes microseconds, and no reader sees half of a change. It is in
WAL mode with `synchronous = NORMAL`: a power cut may undo its last commits, and their content is read from the day
files again. Only the order of lines from a merge is made durable at once, because it is in no file.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from everlog.core.chain import NO_CHAIN, Chain, simple_chain
from everlog.core.event import START, Link, Position, Purge
from everlog.core.group import GroupFacts
from everlog.core.ids import EventId, IdSource, id_text, id_value
from everlog.errors import Damaged, LogClosed, StorageFull
from everlog.files import Files, Stamp
from everlog.stores.contract import Claim

STREAM, TYPE, SCOPE = 0, 1, 2
_FORMAT = 5
_BUSY_S = 30
_NAMES_REMEMBERED_MAX = 200_000
_NAMES_ASKED_MAX = 500
_TABLES = (
    "files",
    "names",
    "events",
    "ids",
    "missing",
    "purged",
    "purges",
    "claims",
    "chains",
    "groups",
    "bad_lines",
)
# Rows of a file are found through their positions, and a kind through its streams: these need no index.
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS events_by_stream ON events (stream, position)",
    "CREATE INDEX IF NOT EXISTS events_by_type ON events (type, position)",
    "CREATE INDEX IF NOT EXISTS events_by_scope ON events (scope, position) WHERE scope IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS purged_by_stream ON purged (stream)",
    "CREATE INDEX IF NOT EXISTS purged_by_purge ON purged (purge)",
    "CREATE INDEX IF NOT EXISTS purged_by_number ON purged (origin, origin_seq)",
)
# The journal of the index is kept small: it would soon be larger than the index of a young log.
_CHECKPOINT_PAGES = 128
_ID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_pack_chain = msgspec.msgpack.Encoder().encode
_read_chain = msgspec.msgpack.Decoder(Chain).decode


_DAMAGE = (
    "SELECT * FROM (SELECT position, name, at, '' AS code, '' AS reason FROM missing UNION ALL"
    " SELECT position, name, at, code, reason FROM bad_lines JOIN files USING (file) WHERE position > 0)"
    " WHERE position > ? AND position <= ?"
)
END = 2**62
HOLE = "hole "
"""The prefix of an id that stands for a position without an event."""


class Damage(NamedTuple):
    """Adjacent positions that nothing accounts for, and where the first of them is or was."""

    first: int
    last: int
    name: str
    at: int
    code: str  # empty if an event is missing, else what is wrong with the line
    reason: str


class IndexBroken(Damaged):
    """The index was found to be damaged; the next refresh rebuilds it."""


class Unusable(Exception):
    """The index is missing, damaged or of another format: it must be rebuilt."""


def key_of(line_id: str) -> bytes | str:
    """Return an id as the index has it."""
    return id_value(line_id).to_bytes(16, "big") if _ID.fullmatch(line_id) else line_id


def id_of(key: bytes | str) -> EventId:
    return id_text(int.from_bytes(key, "big")) if isinstance(key, bytes) else EventId(key)


def new_epoch() -> str:
    return str(IdSource().take(1)[0])[-8:].lower()


class Index:
    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._connection = connection
        self.path = path
        self.mutex = threading.RLock()
        self._closed = False
        self.broken = False
        self._names: dict[tuple[int, str], int] = {}
        self._files: dict[int, str] = {}
        try:
            (found, self.origin) = self.fetch("SELECT format, origin FROM about")[0]
            for table in _TABLES:
                self.fetch(f"SELECT 1 FROM {table} LIMIT 1")
        except (IndexBroken, IndexError) as error:
            raise Unusable(str(error)) from error
        if found != _FORMAT:
            raise Unusable(f"it has format {found}")

    # ---- opening and creating

    @classmethod
    def open(cls, path: Path, *, origin: str) -> Index:
        """Open the index of a file. Raise Unusable if there is no valid one."""
        try:
            connection = _connect(path, "rw")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            index = cls(connection, path)
        except sqlite3.Error as error:
            raise Unusable(str(error)) from error
        if index.origin != origin:
            index.close()
            raise Unusable("it belongs to another copy of the log")
        return index

    @classmethod
    def open_as_it_stands(cls, path: Path) -> Index:
        """Return a copy in memory of a file that cannot be written."""
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            source = _connect(path, "ro&immutable=1")
            try:
                source.backup(memory)
            finally:
                source.close()
        except sqlite3.Error as error:
            memory.close()
            raise Unusable(str(error)) from error
        return cls(memory, None)

    def copy(self) -> Index:
        """Return a copy in memory, for a full disk."""
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with self.mutex:
            self._connection.backup(memory)
        return Index(memory, None)

    @classmethod
    def open_as_drafted(cls, path: Path) -> Index:
        """Open an index that is not in use yet."""
        return cls(_connect(path, "rw"), path)

    def copy_to(self, path: Path) -> None:
        """Write a complete copy to a file."""
        copy = _connect(path, "rwc")
        try:
            with self.mutex:
                self._connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # so that no part of it is in a file beside it
        finally:
            copy.close()

    def use_wal(self) -> None:
        with self.mutex:
            self._connection.execute("PRAGMA journal_mode = WAL")

    @classmethod
    def make(cls, path: Path | None, *, origin: str, epoch: str = "", branch: str = "") -> Index:
        """Create an empty index without its SQL indexes, which `finish` creates when it is filled."""
        if path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        else:
            connection = _connect(path, "rwc")
            # It is not read before it is complete and has its name.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")
        connection.executescript(_schema())
        connection.execute(
            "INSERT INTO about VALUES (?, ?, ?, ?, 0)", (epoch or new_epoch(), _FORMAT, origin, branch)
        )
        return cls(connection, path)

    def finish(self) -> None:
        with self.mutex:
            for statement in _INDEXES:
                self._connection.execute(statement)
            if self.path is not None:
                self._connection.execute("PRAGMA journal_mode = WAL")

    def close(self) -> None:
        with self.mutex:
            self._closed = True
            self._connection.close()

    @property
    def connection(self) -> sqlite3.Connection:
        return self._connection

    # ---- reading and changing

    def fetch(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        with self.mutex:
            if self._closed:
                raise LogClosed("the log is closed", hint="open it again")
            try:
                return self._connection.execute(sql, values).fetchall()
            except sqlite3.DatabaseError as error:
                self.broken = True
                raise IndexBroken(
                    f"the index {self.path} is damaged", why=str(error), hint="try again: it is rebuilt"
                ) from error

    @contextmanager
    def change(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        """Run one transaction."""
        with self.mutex:
            if durable:
                self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                self._names.clear()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                if durable:
                    self._connection.execute("PRAGMA synchronous = NORMAL")

    def empty_journal(self) -> None:
        """Move everything from the journal into the index file, unless another process is reading it just now."""
        with self.mutex:
            self._connection.execute("PRAGMA busy_timeout = 0")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000}")

    def name_id(self, family: int, name: str) -> int:
        """Return the number of a name, and assign one if it has none. Call it only inside `change`."""
        key = (family, name)
        known = self._names.get(key)
        if known is None:
            found = self._connection.execute(
                "SELECT name_id FROM names WHERE family = ? AND name = ?", key
            ).fetchone()
            if found is None:
                found = self._connection.execute(
                    "INSERT INTO names (family, name) VALUES (?, ?) RETURNING name_id", key
                ).fetchone()
            if len(self._names) >= _NAMES_REMEMBERED_MAX:
                self._names.clear()
            known = self._names[key] = found[0]
        return known

    def name_ids(self, family: int, names: Sequence[str]) -> list[int]:
        rows = self.fetch(
            "SELECT name_id FROM names WHERE family = ? AND name IN (SELECT value FROM json_each(?))",
            (family, json.dumps(list(names))),
        )
        return [row[0] for row in rows]

    # ---- what a write starts from

    @property
    def epoch(self) -> str:
        """Read every time: another process may have found a merge."""
        return str(self.fetch("SELECT epoch FROM about")[0][0])

    @property
    def branch(self) -> str:
        """The git branch that was checked out at the last write."""
        return str(self.fetch("SELECT branch FROM about")[0][0])

    def set_branch(self, branch: str) -> None:
        with self.change() as connection:
            connection.execute("UPDATE about SET branch = ?", (branch,))

    def become(self, *, epoch: str, branch: str, origin: str) -> None:
        """Turn a copy into the index of another epoch."""
        with self.change() as connection:
            connection.execute("UPDATE about SET epoch = ?, branch = ?, origin = ?", (epoch, branch, origin))
        self.origin = origin

    def head(self) -> Position:
        found = self.fetch(
            "SELECT (SELECT max(position) FROM events), (SELECT max(position) FROM missing),"
            " (SELECT max(position) FROM purged), (SELECT max(reserved) FROM purges),"
            " (SELECT max(position) FROM bad_lines)"
        )
        return Position(max(position or START for position in found[0]))

    def set_origin(self, origin: str) -> None:
        with self.change() as connection:
            connection.execute("UPDATE about SET origin = ?", (origin,))
        self.origin = origin

    def clock(self) -> int:
        return int(self.fetch("SELECT clock FROM about")[0][0])

    def chain(self, origin: str) -> Chain:
        """Return the chain of an origin, as far as it is here."""
        rows = self.fetch("SELECT number, hash, position, chain FROM chains WHERE origin = ?", (origin,))
        return _chain_of(*rows[0]) if rows else NO_CHAIN

    def chains(self) -> dict[str, Chain]:
        rows = self.fetch("SELECT origin, number, hash, position, chain FROM chains")
        return {origin: _chain_of(*row) for origin, *row in rows}

    def group_of(self, origin: str, number: int) -> GroupFacts | None:
        """Return the signed group that an event was in."""
        rows = self.fetch(
            "SELECT first_seq, count, signature FROM groups WHERE origin = ? AND first_seq <= ?"
            " ORDER BY first_seq DESC LIMIT 1",
            (origin, number),
        )
        if not rows or number >= rows[0][0] + rows[0][1]:
            return None
        first_seq, count, signature = rows[0]
        return GroupFacts(0, origin, first_seq, count, b"", b"", signature)

    def has_groups(self) -> bool:
        return bool(self.fetch("SELECT 1 FROM groups LIMIT 1"))

    def sequence(self, stream: str) -> int:
        found = self.name_ids(STREAM, [stream])
        return self.sequence_of(found[0]) if found else 0

    def sequence_of(self, stream_id: int) -> int:
        ((events, missing, purged),) = self.fetch(
            "SELECT (SELECT sequence FROM events WHERE stream = ?1 ORDER BY position DESC LIMIT 1),"
            " (SELECT max(sequence) FROM missing WHERE stream = ?1),"
            " (SELECT max(sequence) FROM purged WHERE stream = ?1)",
            (stream_id,),
        )
        return max(events or 0, missing or 0, purged or 0)

    def claimed(self, name: bytes) -> Claim | None:
        rows = self.fetch("SELECT first, count FROM claims WHERE name = ?", (name,))
        return Claim(*rows[0]) if rows else None

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        found: set[bytes] = set()
        wanted = list(names)
        for first in range(0, len(wanted), _NAMES_ASKED_MAX):
            some = wanted[first : first + _NAMES_ASKED_MAX]
            asked = ", ".join("?" * len(some))
            found.update(
                row[0] for row in self.fetch(f"SELECT name FROM claims WHERE name IN ({asked})", tuple(some))
            )
        return found

    def claims(self) -> dict[bytes, Claim]:
        rows = self.fetch("SELECT name, first, count FROM claims")
        return {name: Claim(first, count) for name, first, count in rows}

    def purges(self, after: Position = START) -> list[Purge]:
        rows = self.fetch(
            "SELECT reserved, stream, scopes, actor, reason, purged_us, sequence,"
            " (SELECT count(*) FROM purged WHERE purged.purge = purges.purge) FROM purges"
            " WHERE reserved > ? ORDER BY reserved",
            (after,),
        )
        return [Purge(row[0], row[1], tuple(json.loads(row[2])), *row[3:]) for row in rows]

    def file_name(self, file: int) -> str:
        """Return the name of a day file by its number. Raise KeyError if it is gone."""
        found = self._files.get(file)
        if found is None:
            self._files = dict(self.fetch("SELECT file, name FROM files"))
            found = self._files[file]
        return found

    def stamps(self) -> dict[str, tuple[int, Stamp]]:
        rows = self.fetch("SELECT name, file, size, changed_ns, inode FROM files")
        return {name: (file, Stamp(*stamp)) for name, file, *stamp in rows}

    def crc(self, file: int) -> int:
        """Return the CRC-32 of a file, as far as it was read."""
        return int(self.fetch("SELECT checksum FROM files WHERE file = ?", (file,))[0][0])

    def bad_lines(self) -> list[tuple[str, int, str, str]]:
        """Return (file, offset of the line, code, reason) per line."""
        return self.fetch("SELECT name, at, code, reason FROM bad_lines JOIN files USING (file) ORDER BY name, at")

    def knows(self, line_id: str) -> bool:
        """Return whether the index has or had a line with this id."""
        rows = self.fetch(
            "SELECT 1 FROM ids WHERE id = ?1 UNION ALL SELECT 1 FROM purged WHERE id = ?2"
            " UNION ALL SELECT 1 FROM purges WHERE purge = ?2 UNION ALL SELECT 1 FROM missing WHERE id = ?2",
            (key_of(line_id), line_id),
        )
        return bool(rows)

    def has_come_back(self) -> bool:
        """Return whether a line holds an event that was purged."""
        return bool(self.fetch("SELECT 1 FROM bad_lines WHERE code = 'purged_came_back' LIMIT 1"))

    def missing(self) -> list[tuple[Position, str, str]]:
        """Return (position, id, name of its file) per missing event."""
        return self.fetch("SELECT position, id, name FROM missing ORDER BY position")

    def has_holes(self) -> bool:
        """Return whether everything that is missing is a position without event: a rebuilt index has none."""
        ids = [event_id for _, event_id, _ in self.missing()]
        return bool(ids) and all(event_id.startswith(HOLE) for event_id in ids)

    def damage(self, low: int, high: int, *, newest_first: bool = False) -> Damage | None:
        """Return the first damage that a read meets between two positions, or None, as nearly always."""
        order = "DESC" if newest_first else "ASC"
        found = self.fetch(f"{_DAMAGE} ORDER BY position {order} LIMIT 1", (low, high))
        if not found:
            return None
        every = {row[0]: row for row in self.fetch(_DAMAGE, (0, END))}
        first = last = found[0][0]
        while last + 1 in every:
            last += 1
        while newest_first and first - 1 in every:
            first -= 1
        return Damage(first, last, *every[first][1:])


def put_chain(connection: sqlite3.Connection, origin: str, chain: Chain) -> None:
    run = chain.contiguous
    end = (0, b"", 0) if run is None else (run.last, run.hash, run.position)
    whole = None if chain.simple else _pack_chain(chain)
    connection.execute("INSERT OR REPLACE INTO chains VALUES (?, ?, ?, ?, ?)", (origin, *end, whole))


def _chain_of(number: int, digest: bytes, position: int, chain: bytes | None) -> Chain:
    return simple_chain(Link(number, digest), Position(position)) if chain is None else _read_chain(chain)


@cache
def _schema() -> str:
    return (package_files("everlog.stores.jsonl.index") / "schema.sql").read_text()


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_S,
    )


def draft_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def clear_draft(files: Files, path: Path) -> None:
    """Remove the draft that a crash may have left."""
    draft = draft_of(path)
    for suffix in ("", "-wal", "-shm", "-journal"):
        name = draft.with_name(draft.name + suffix)
        if files.exists(name):
            files.unlink(name)


def put_in_place(files: Files, path: Path, index: Index, *, origin: str) -> Index:
    """Give the complete draft the name of the index."""
    draft = draft_of(path)
    index.close()
    for suffix in ("-wal", "-shm"):
        for name in (path.name + suffix, draft.name + suffix):
            if files.exists(path.with_name(name)):
                files.unlink(path.with_name(name))
    handle = files.open(draft, write=True)
    try:
        files.fsync(handle)
    finally:
        files.close(handle)
    files.rename(draft, path)
    return Index.open(path, origin=origin)


def is_full(error: BaseException) -> bool:
    """Return whether the disk is full: SQLite reports it, or could not create its side files."""
    cause = error.__cause__ if isinstance(error, IndexBroken) else error
    name = getattr(cause, "sqlite_errorname", "") or ""
    return isinstance(cause, StorageFull) or name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE")
