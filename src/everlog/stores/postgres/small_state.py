"""The small state in the schema of the log: read by the store's readers, written in the store's writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from everlog.stores.open_write import OpenWrite
from everlog.stores.postgres.connection import Connection
from everlog.stores.postgres.statements import statements
from everlog.stores.small_state import StateChanges
from everlog.stores.texts import Text

_PAGE_ROWS = 1000

Fetch = Callable[[str, dict[str, Any]], list[tuple[Any, ...]]]


class DerivedTable:
    in_log = True

    def __init__(self, fetch: Fetch, write: Callable[[], AbstractContextManager[OpenWrite]]) -> None:
        self._fetch = fetch
        self._write = write
        self._sql = statements("derived")

    def may_write(self) -> bool:
        """Return whether this role may write here."""
        return bool(self._fetch(self._sql["may_write"], {})[0][0])

    def get(self, space: str, key: str) -> bytes | None:
        return self.rows(space, (key,)).get(key)

    def rows(self, space: str, keys: Collection[str]) -> dict[str, bytes]:
        return dict(self._fetch(self._sql["get"], {"space": space, "keys": list(keys)})) if keys else {}

    def scan(self, space: str, *, after: str = "", limit: int | None = None) -> Iterator[tuple[str, bytes]]:
        statement = self._sql["scan" if after else "scan_all"]
        while limit is None or limit > 0:
            size = _PAGE_ROWS if limit is None else min(limit, _PAGE_ROWS)
            rows = self._fetch(statement, {"space": space, "after": after, "limit": size})
            yield from ((key, value) for key, value in rows)
            if len(rows) < size:
                return
            after, statement = rows[-1][0], self._sql["scan"]
            limit = None if limit is None else limit - size

    def count(self, space: str) -> int:
        found: int = self._fetch(self._sql["count"], {"space": space})[0][0]
        return found

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        if not words:
            return []
        asked = {"space": space, "query": _query(words, "&"), "within": within, "limit": limit}
        return [key for (key,) in self._fetch(self._sql["holding"], asked)]

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        if not words:
            return []
        asked = {
            "space": space,
            "words": list(words),
            "count": len(words),
            "query": _query(words, "|"),
            "part": part,
            "least": least,
            "limit": limit,
        }
        return [key for (key,) in self._fetch(self._sql["alike"], asked)]

    @contextmanager
    def change(self) -> Iterator[StateChanges]:
        with self._write() as staged:
            staged.state_changes = StateChanges(self)
            yield staged.state_changes

    def close(self) -> None:
        """The store closes its own connections."""


def write_changes(connection: Connection, changes: StateChanges) -> None:
    """Make a change in an open transaction."""
    named = statements("derived")
    if changes.cleared:
        connection.execute(named["clear"].encode(), {"spaces": list(changes.cleared)})
    for space, rows in changes.changed.items():
        kept = {key: value for key, value in rows.items() if value is not None}
        if kept:
            values = {"space": space, "keys": list(kept), "values": list(kept.values())}
            connection.execute(named["put"].encode(), values)
        if len(kept) < len(rows):
            gone = [key for key, value in rows.items() if value is None]
            connection.execute(named["remove"].encode(), {"space": space, "keys": gone})
    for space, texts in changes.texts.items():
        connection.execute(named["put_texts"].encode(), {"space": space, **_columns(texts)})


def _columns(texts: Mapping[str, Text | None]) -> dict[str, list[str | None]]:
    found = texts.values()
    return {
        "keys": list(texts),
        "parts": [None if text is None else text.part for text in found],
        "titles": [None if text is None else " ".join(text.title) for text in found],
        "bodies": [None if text is None else " ".join(text.body) for text in found],
    }


def _query(words: Collection[str], operator: str) -> str:
    """Words as a tsquery. They are letters and digits, and quoted all the same."""
    return f" {operator} ".join("'" + word.replace("\\", "\\\\").replace("'", "''") + "'" for word in words)
