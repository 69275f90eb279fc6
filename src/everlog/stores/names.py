"""The names in the database of a log, for the completion of a shell: nothing is opened for writing, nothing verified.

A SQLite log, and the index of a JSONL log, keep the names of streams and types in a table of the same form.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

FAMILIES = {"streams": 0, "types": 1}
NAMES_MAX = 200
_BEYOND = "\U0010ffff"
_GROUPS = 2  # the newest groups of events, whose ids are offered
_NEW_GROUPS = 16  # more of them would take too long after a large batch


def names_in(database: Path, family: str, beginning: str) -> list[str]:
    """Return the names of a family that begin so, in alphabetical order. A database that cannot be read has none."""
    rows = "SELECT name FROM names WHERE family = ? AND name >= ? AND name < ? ORDER BY name LIMIT ?"
    values = (FAMILIES[family], beginning, beginning + _BEYOND, NAMES_MAX)
    found = set(_read(database, lambda log: [str(name) for (name,) in log.execute(rows, values)]))
    found.update(
        name for name in _read(database, _of_new_events) if family == "streams" and name.startswith(beginning)
    )
    return sorted(found)[:NAMES_MAX]


def _of_new_events(log: sqlite3.Connection) -> list[str]:
    """Return the streams of the newest events, which the index of streams of a SQLite log may not have yet."""
    rows = log.execute(
        "SELECT events FROM groups WHERE last > (SELECT coalesce(max(position), 0) FROM state WHERE name = 'indexed')"
        " ORDER BY first DESC LIMIT ?",
        (_NEW_GROUPS,),
    )
    return [str(event[3][3]) for (text,) in rows for event in json.loads(text)]


def newest_ids_in(database: Path, beginning: str) -> list[str]:
    """Return the ids of the newest events that begin so, the newest first."""

    def ids(log: sqlite3.Connection) -> list[str]:
        rows = log.execute("SELECT events FROM groups ORDER BY first DESC LIMIT ?", (_GROUPS,))
        return [str(event[3][0]) for (text,) in rows for event in reversed(json.loads(text))]

    return [one for one in _read(database, ids) if one.startswith(beginning.upper())]


def _read(database: Path, question: Callable[[sqlite3.Connection], list[str]]) -> list[str]:
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
            return question(connection)
    except (sqlite3.Error, ValueError):  # no log, another format, or a store without such a table: nothing to offer
        return []
