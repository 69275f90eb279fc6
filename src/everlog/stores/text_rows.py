"""Texts in SQLite: a table of words and, over it, an index of FTS5's. Beside the small state, in the same database.

The words are put there as they are, parted by blanks, and FTS5 takes them apart in its simplest way (`ascii`: every
character beyond ASCII belongs to a word), so that it does not decide what a word is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from typing import Any

from everlog.stores.texts import Text

TABLES = (
    """\
CREATE TABLE derived_texts (
    id          INTEGER PRIMARY KEY,
    space       TEXT NOT NULL,
    key         TEXT NOT NULL,
    part        TEXT NOT NULL,
    title       TEXT NOT NULL,
    body        TEXT NOT NULL,
    title_words INTEGER NOT NULL,
    UNIQUE (space, key)
) STRICT""",
    "CREATE VIRTUAL TABLE derived_words USING fts5("
    "title, body, content = 'derived_texts', content_rowid = 'id', tokenize = 'ascii')",
)
"""Made when they are first needed: a log without such views does without them."""

IS_THERE = "SELECT 1 FROM sqlite_schema WHERE name = 'derived_words'"

_FORGET = "INSERT INTO derived_words (derived_words, rowid, title, body) SELECT 'delete', id, title, body"

Fetch = Callable[[str, tuple[Any, ...]], list[Any]]


class TextTables:
    """What can be asked of the two tables, through any connection."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._there = False

    def holding(self, space: str, words: Collection[str], *, within: str, limit: int) -> list[str]:
        if not words or not self._is_there():
            return []
        rows = self._fetch(
            # CROSS: the words first. SQLite would rather go through all texts in the order that is asked for.
            "SELECT texts.key FROM derived_words AS words CROSS JOIN derived_texts AS texts ON texts.id = words.rowid"
            " WHERE derived_words MATCH ? AND texts.space = ?"
            " AND (? = '' OR substr(texts.part || '/', 1, length(?) + 1) = ? || '/')"
            " ORDER BY texts.key DESC LIMIT ?",
            (" ".join(f'"{word}"' for word in words), space, within, within, within, limit),
        )
        return [key for (key,) in rows]

    def alike(self, space: str, words: Collection[str], *, part: str, least: float, limit: int) -> list[str]:
        if not words or not self._is_there():
            return []
        # A row holds a word once or not at all, so counting its hits counts the words that are shared.
        hits = " UNION ALL ".join(["SELECT rowid AS id FROM derived_words WHERE derived_words MATCH ?"] * len(words))
        rows = self._fetch(
            "SELECT texts.key, CAST(shared AS REAL) / (? + title_words - shared) AS score"  # noqa: S608 - only marks
            f" FROM (SELECT id, count(*) AS shared FROM ({hits}) GROUP BY id) AS hits"
            " CROSS JOIN derived_texts AS texts ON texts.id = hits.id"
            " WHERE texts.space = ? AND texts.part = ? AND score >= ? ORDER BY score DESC, texts.key LIMIT ?",
            (len(words), *(f'title : "{word}"' for word in words), space, part, least, limit),
        )
        return [key for key, _ in rows]

    def _is_there(self) -> bool:
        if not self._there:
            self._there = bool(self._fetch(IS_THERE, ()))
        return self._there


def write_texts(
    connection: sqlite3.Connection,
    texts: Mapping[str, Mapping[str, Text | None]],
    cleared: Collection[str],
    *,
    scrub: bool,
) -> None:
    """Set and remove texts by space and key in an open transaction, after whole spaces were cleared."""
    if not connection.execute(IS_THERE).fetchall():
        if not any(text for rows in texts.values() for text in rows.values()):
            return
        for statement in TABLES:
            connection.execute(statement)
    for space in cleared:
        connection.execute(f"{_FORGET} FROM derived_texts WHERE space = ?", (space,))
        connection.execute("DELETE FROM derived_texts WHERE space = ?", (space,))
    for space, rows in texts.items():
        old = [(space, key) for key in rows]
        connection.executemany(f"{_FORGET} FROM derived_texts WHERE space = ? AND key = ?", old)
        connection.executemany("DELETE FROM derived_texts WHERE space = ? AND key = ?", old)
        for key, text in rows.items():
            if text is not None:
                title, body = " ".join(text.title), " ".join(text.body)
                made = connection.execute(
                    "INSERT INTO derived_texts VALUES (NULL, ?, ?, ?, ?, ?, ?)",
                    (space, key, text.part, title, body, len(text.title)),
                )
                connection.execute(
                    "INSERT INTO derived_words (rowid, title, body) VALUES (?, ?, ?)", (made.lastrowid, title, body)
                )
    if scrub and (texts or cleared):
        # Words that were removed stay in FTS5's segments until it merges them: after a purge they must not.
        connection.execute("INSERT INTO derived_words (derived_words) VALUES ('rebuild')")
