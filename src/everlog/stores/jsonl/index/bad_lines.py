"""Unreadable lines and other problems of lines, recorded in the index with their positions.

An unreadable line may have been an event, so a read must not skip it: it gets a position, at which every read stops.
If an event of the same file is missing, the line takes its position. When the line is repaired or removed, its
position is freed if it was the last one; otherwise the index is rebuilt with a new epoch.
"""

from __future__ import annotations

import sqlite3

from everlog.stores.jsonl.day_files import Found
from everlog.stores.jsonl.index.rows import Rows
from everlog.stores.jsonl.index.schema import HOLE
from everlog.stores.jsonl.lines import CRLF

UNREADABLE, MARKER, TWICE, CAME_BACK = "line_unreadable", "conflict_marker", "twice", "purged_came_back"
WINDOWS = "crlf"
BAD = (UNREADABLE, MARKER, WINDOWS)
"""Problems that stop reads and writes."""
Unplaced = tuple[int, str, str]
"""An unreadable line without a position: its offset, code and reason."""


def note_bad(connection: sqlite3.Connection, file: int, lines: list[Found], *, fresh: bool) -> list[Unplaced]:
    """Record the unreadable lines, and return those that had no position before."""
    before: dict[int, int] = {}
    if fresh:
        placed = "SELECT at, position FROM bad_lines WHERE file = ? AND position > 0"
        before = dict(connection.execute(placed, (file,)).fetchall())
        connection.execute("DELETE FROM bad_lines WHERE file = ?", (file,))
    unplaced: list[Unplaced] = []
    for found in lines:
        if found.line is None:
            code = code_of(found.reason)
            position = before.pop(found.at, 0)
            note(connection, file, found.at, code, found.reason, position)
            if not position:
                unplaced.append((found.at, code, found.reason))
    for position in sorted(before.values(), reverse=True):
        _free(connection, position)
    return unplaced


def code_of(reason: str) -> str:
    if reason == CRLF:
        return WINDOWS
    return MARKER if "conflict marker" in reason else UNREADABLE


def _free(connection: sqlite3.Connection, position: int) -> None:
    """Free the position of a line that was repaired or removed. If it was not the last position, it stays a hole
    until the index is rebuilt (`Index.has_holes`)."""
    tables = [("events", "position"), ("purged", "position"), ("purges", "reserved"), ("missing", "position")]
    tables.append(("bad_lines", "position"))
    above = " UNION ALL ".join(f"SELECT 1 FROM {table} WHERE {column} > ?1" for table, column in tables)
    if connection.execute(f"{above} LIMIT 1", (position,)).fetchone():
        connection.execute("INSERT INTO missing VALUES (?, 0, 0, ?, '', 0)", (position, f"{HOLE}{position}"))


def place_bad(rows: Rows, connection: sqlite3.Connection, bad: list[tuple[int, list[Unplaced]]]) -> None:
    """Give a position to each unreadable line that does not replace a missing event."""
    for file, unplaced in bad:
        if not unplaced:
            continue
        ((missing,),) = connection.execute(
            "SELECT count(*) FROM missing JOIN files USING (name) WHERE file = ?", (file,)
        ).fetchall()
        for at, code, reason in unplaced:
            if code != MARKER and missing:
                missing -= 1
                continue
            rows.skip()
            note(connection, file, at, code, reason, rows.position)


def note(connection: sqlite3.Connection, file: int, at: int, code: str, reason: str, position: int = 0) -> None:
    values = (file, at, code, reason, position)
    connection.execute("INSERT OR REPLACE INTO bad_lines VALUES (?, ?, ?, ?, ?)", values)
