"""What one reading of files has seen: ids, lines, ids that were replaced, and what is to be set aside.

On disk, so that memory stays flat.

A private database of SQLite that has no name: it lives in memory as long as it is small, in a temporary file after
that, and is gone when it is closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from everlog.core.ids import EventId

_CACHE_KIB = 8 * 1024
_TABLES = """
    CREATE TABLE ids (id TEXT PRIMARY KEY, hash BLOB) WITHOUT ROWID;
    CREATE TABLE lines (key BLOB PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE replaced (old TEXT PRIMARY KEY, new TEXT) WITHOUT ROWID;
    CREATE TABLE aside (number INTEGER PRIMARY KEY, line BLOB);
"""


class Seen:
    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_CACHE_KIB}; {_TABLES}")
        self._database.execute("BEGIN")
        self._run = self._database.execute
        self.has_replaced = False

    def id(self, id: EventId, hash: bytes) -> bytes | None:
        """Remember an id; return the hash that it stood with before, or None if it is new."""
        if self._run("INSERT OR IGNORE INTO ids VALUES (?, ?)", (id, hash)).rowcount:
            return None
        found: bytes = self._run("SELECT hash FROM ids WHERE id = ?", (id,)).fetchone()[0]
        return found

    def line(self, key: bytes) -> bool:
        """Remember a line; return True if it stood there before."""
        return not self._run("INSERT OR IGNORE INTO lines VALUES (?)", (key,)).rowcount

    def replace(self, old: str, new: EventId) -> None:
        """Remember that an id was replaced; of two lines with one id, the first."""
        self.has_replaced = True
        self._run("INSERT OR IGNORE INTO replaced VALUES (?, ?)", (old, new))

    def replacement(self, old: str) -> str:
        """Return the id in its place, or itself."""
        found = self._run("SELECT new FROM replaced WHERE old = ?", (old,)).fetchone()
        return found[0] if found else old

    def set_aside(self, number: int, line: bytes) -> None:
        """Keep a line for the file of what was set aside; of two problems with one line, the first."""
        self._run("INSERT OR IGNORE INTO aside VALUES (?, ?)", (number, line))

    def aside(self) -> Iterator[bytes]:
        for row in self._run("SELECT line FROM aside ORDER BY number"):
            yield row[0]

    def close(self) -> None:
        self._database.close()
