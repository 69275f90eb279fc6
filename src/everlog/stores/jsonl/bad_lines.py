"""Lines that cannot be read, and what else is wrong with lines: noted in the index, with the position they take.

A line that cannot be read may have been an event, so a read must not pass it: it takes a position, where every read
stops. If an event of the same file is missing, it has that one's place. When the line is repaired or removed, its
position is free if it was the last one; if not, the index is made from nothing, with a new epoch.
"""

from __future__ import annotations

import sqlite3

from everlog.stores.jsonl.day_files import Found
from everlog.stores.jsonl.index import HOLE
from everlog.stores.jsonl.lines import CRLF
from everlog.stores.jsonl.rows import Rows

UNREADABLE, MARKER, TWICE, CAME_BACK = "line_unreadable", "conflict_marker", "twice", "purged_came_back"
WINDOWS = "crlf"
BAD = (UNREADABLE, MARKER, WINDOWS)
"""What stops reads and writes."""
Unplaced = tuple[int, str, str]
"""A line that cannot be read and has no position yet: where it stands, and what is wrong with it."""


def note_bad(connection: sqlite3.Connection, file: int, lines: list[Found], *, fresh: bool) -> list[Unplaced]:
    """Note the lines that cannot be read, and return those that had no position before."""
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
    """A line that could not be read was repaired or removed. If its position was the last, it is free. If
    not, it stays a hole until the index is made from nothing (`Index.has_holes`)."""
    tables = [("events", "position"), ("purged", "position"), ("purges", "reserved"), ("missing", "position")]
    tables.append(("bad_lines", "position"))
    above = " UNION ALL ".join(f"SELECT 1 FROM {table} WHERE {column} > ?1" for table, column in tables)
    if connection.execute(f"{above} LIMIT 1", (position,)).fetchone():
        connection.execute("INSERT INTO missing VALUES (?, 0, 0, ?, '', 0)", (position, f"{HOLE}{position}"))


def place_bad(rows: Rows, connection: sqlite3.Connection, bad: list[tuple[int, list[Unplaced]]]) -> None:
    """Give a position to each line that cannot be read and does not stand in the place of a missing event."""
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
