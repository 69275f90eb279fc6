"""Find damage of the day files and of the index, for `verify`.

Every byte is read again. An unreadable line is reported with its file and line number, and is not changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from everlog.core.event import START, Position
from everlog.core.text import counted
from everlog.stores.contract import Problem
from everlog.stores.jsonl.day_files import Found, day_names, found_at, lines_of_file, other_names, read_from
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.bad_lines import BAD, MARKER, WINDOWS, code_of
from everlog.stores.jsonl.index.schema import HOLE, Index, id_of, key_of
from everlog.stores.jsonl.lines import BadLine, EventLine, Line, read_line, true_checksum
from everlog.stores.jsonl.notes import NotesFile
from everlog.stores.jsonl.read_only import line_numbers

_LOOKS = 50
_LOOK_AGAIN_S = 0.02
_PAGE_ROWS = 1000
_PIECE_BYTES = 4 * 1024 * 1024


def problems(folder: Folder, index: Index, notes: NotesFile) -> Iterator[Problem]:
    for name in day_names(folder.files, folder.events):
        yield from _file_problems(folder, index, name)
    for name in other_names(folder.files, folder.events):
        yield Problem(START, "foreign_file", f"events/{name} is not named after a day, and its lines are not read")
    yield from _missing(index)
    if (error := notes.lost()) is not None:
        yield Problem(START, "notes_damaged", f"{error.what}: {error.why}")


def file_of(index: Index, position: Position) -> str:
    """Return the file that holds a position, or the positions before and after it."""
    found = index.fetch(
        "SELECT name FROM files WHERE file IN ("
        "(SELECT file FROM events WHERE position <= ?1 ORDER BY position DESC LIMIT 1),"
        " (SELECT file FROM events WHERE position >= ?1 ORDER BY position LIMIT 1))",
        (position,),
    )
    names = {name for (name,) in found}
    return f"events/{names.pop()}" if len(names) == 1 else ""


def _missing(index: Index) -> Iterator[Problem]:
    """Report events that are missing from the files; consecutive events of one file are one problem."""
    found = [(Position(position), event_id, name) for position, event_id, name in index.missing()]
    runs = groupby(enumerate(found), key=lambda each: (each[1][0] - each[0], each[1][2], each[1][1].startswith(HOLE)))
    for (_, name, is_hole), run in runs:
        events = [event for _, event in run]
        first, last = events[0], events[-1]
        if is_hole:
            reason = "a line that could not be read was here; everlog index rebuild closes the gap"
        elif first is last:
            reason = f"event {first[1]} was in events/{name} and is in no file any more"
        else:
            reason = f"{counted(len(events), 'event was', 'events were')} in events/{name} and in no file any more"
        upto = START if first is last else last[0]
        yield Problem(first[0], "log_cut_off", reason, upto=upto, file=f"events/{name}" if name else "")


def bad_lines(folder: Folder, index: Index) -> list[Problem]:
    """Return the unreadable lines that the index lists. This is cheap if there are none."""
    found = []
    for name, lines in groupby(index.bad_lines(), key=itemgetter(0)):
        known = [(at, code, reason) for _, at, code, reason in lines if code in BAD]
        numbers = line_numbers(folder, name, [at for at, _, _ in known]) if known else []
        for number, (_, code, reason) in zip(numbers, known, strict=True):
            found.append(Problem(START, code, f"events/{name} line {number}: {reason}"))
    return found


def _file_problems(folder: Folder, index: Index, name: str) -> list[Problem]:
    """Return what is wrong with a file. A purge first replaces the file and then updates the index, so problems
    found in between are not reported: the file is checked again."""
    for _ in range(_LOOKS):
        before = _moment(folder, index, name)
        found = list(_look_at(folder, index, name))
        if not found or (before is not None and before == _moment(folder, index, name)):
            break
        time.sleep(_LOOK_AGAIN_S)
    return found


def _moment(folder: Folder, index: Index, name: str) -> tuple[int, int, int] | None:
    """Return the inode of the file and its size in the index; None if they differ or a purge is running."""
    if folder.files.exists(folder.purge_file):
        return None
    stamp, known = folder.files.stamp(folder.events / name), index.stamps().get(name)
    if stamp is None or known is None or known[1].inode != stamp.inode:
        return None
    return stamp.inode, known[1].size, known[1].changed_ns


def _look_at(folder: Folder, index: Index, name: str) -> Iterator[Problem]:
    known = index.stamps().get(name)
    if known is None:
        yield Problem(START, "index_disagrees", f"events/{name} is not in the index")
        return
    file, stamp = known
    rows = _Rows(index, file, stamp.size)
    placed = index.fetch("SELECT at, position FROM bad_lines WHERE file = ? AND position > 0", (file,))
    places = {at: Position(position) for at, position in placed}
    windows = 0
    # Up to the size in the index: the log may be written meanwhile.
    for number, (at, text) in enumerate(lines_of_file(folder.files, folder.events / name, stamp.size), 1):
        row = rows.at(at)
        if row is not None and true_checksum(text) == row[1]:
            continue  # it is the line that was read when the index got this row
        found = found_at(at, text)
        place = f"events/{name} line {number}"
        position = Position(row[0]) if row else places.get(at, START)
        if found.line is None:
            code = code_of(found.reason)
            if code == MARKER:
                yield Problem(position, "conflict_marker", f"{place}: {found.reason}")
            elif code == WINDOWS:
                windows += 1
                if windows == 1:  # usually all lines of the file have it
                    yield Problem(position, "crlf", f"{place}: {found.reason}")
            else:
                yield Problem(position, "line_unreadable", f"{place}: {found.reason}")
        elif isinstance(found.line, EventLine) and (row is None or row[1] != found.line.checksum):
            yield from _stranger(folder, index, found, place, position)
    unmatched = [position for position, _ in rows.rest()]
    if unmatched:
        asked = "SELECT position, id FROM ids WHERE position IN (SELECT value FROM json_each(?)) ORDER BY position"
        for at, key in index.fetch(asked, (json.dumps(unmatched),)):
            yield Problem(Position(at), "index_disagrees", f"event {id_of(key)} is not where the index has it")


class _Rows:
    """The index rows of the events of a file, fetched piece by piece in the order of the file."""

    def __init__(self, index: Index, file: int, size: int) -> None:
        # First the rows after the indexed size, which no line can match: the log may be written meanwhile.
        beyond = "SELECT position, crc FROM events WHERE file = ? AND at >= ?"
        self._passed: list[tuple[int, int]] = list(index.fetch(beyond, (file, size)))
        self._rows = self._pages(index, file, size)
        self._next = next(self._rows, None)

    def at(self, at: int) -> tuple[int, int] | None:
        """Return the row of the line that begins at this byte. Call it in the order of the lines."""
        while self._next is not None and self._next[0] < at:
            self._passed.append(self._next[1:])
            self._next = next(self._rows, None)
        if self._next is None or self._next[0] > at:
            return None
        found, self._next = self._next[1:], next(self._rows, None)
        return found

    def rest(self) -> Iterator[tuple[int, int]]:
        """Return the rows that matched no line."""
        yield from self._passed
        if self._next is not None:
            yield self._next[1:]
        yield from (row[1:] for row in self._rows)

    @staticmethod
    def _pages(index: Index, file: int, size: int) -> Iterator[tuple[int, int, int]]:
        of_file = "FROM events WHERE file = ? AND at < ?"
        ((low, high, back),) = index.fetch(
            "SELECT min(position), max(position), sum(at < before) FROM (SELECT position, at, lag(at) OVER"
            f" (ORDER BY position) AS before {of_file})",
            (file, size),
        )
        if low is None:
            return
        if not back:  # in the order of their positions, as they were written
            asked = f"SELECT at, position, crc {of_file} AND position > ? AND position <= ? ORDER BY position LIMIT ?"
            last = low - 1
            while rows := index.fetch(asked, (file, size, last, high, _PAGE_ROWS)):
                yield from rows
                last = rows[-1][1]
            return
        # After a merge. Each piece reads all rows of the file.
        asked = f"SELECT at, position, crc {of_file} AND at >= ? AND position BETWEEN ? AND ? ORDER BY at, position"
        for start in range(0, size, _PIECE_BYTES):
            yield from index.fetch(asked, (file, min(start + _PIECE_BYTES, size), start, low, high))


def _stranger(folder: Folder, index: Index, found: Found, place: str, position: Position) -> Iterator[Problem]:
    """Report an event line that is not in the index at this offset."""
    line = found.line
    assert isinstance(line, EventLine)
    if index.fetch("SELECT 1 FROM purged WHERE id = ?", (line.id,)):
        yield Problem(START, "purged_came_back", f"{place}: event {line.id} was purged and is here again")
        return
    rows = index.fetch(
        "SELECT events.position, name, at, events.size FROM ids JOIN events USING (position) JOIN files USING (file)"
        " WHERE id = ?",
        (key_of(line.id),),
    )
    if not rows:
        yield Problem(position, "index_disagrees", f"{place}: event {line.id} is not in the index")
        return
    there, name, at, size = rows[0]
    try:
        other: Line | None = read_line(read_from(folder.files, folder.events / name, at, size=size))
    except (BadLine, FileNotFoundError):
        other = None  # damaged, or moved by a purge since the index was read
    if not isinstance(other, EventLine) or other.hash() != line.hash():
        yield Problem(
            Position(there), "id_conflict", f"{place}: it has the id {line.id} of another event, and is left out"
        )
