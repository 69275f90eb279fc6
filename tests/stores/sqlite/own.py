"""What the tests of the SQLite store share."""

from __future__ import annotations

import sqlite3

from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import stamped


def own_event(store: SqliteStore, **fields: str) -> None:
    with store.open_write() as writer:
        writer.append([stamped(writer, store.identity.origin, **fields)], fresh=True)


class Failing:
    """A connection whose COMMIT fails once, as SQLite reports it."""

    def __init__(self, real: sqlite3.Connection, errorname: str) -> None:
        self._real = real
        self._errorname = errorname
        self.commits = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def execute(self, sql: str, values: tuple[object, ...] = ()) -> sqlite3.Cursor:
        if sql == "COMMIT":
            self.commits += 1
            if self.commits == 1:
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorname = self._errorname
                raise error
        return self._real.execute(sql, values)
