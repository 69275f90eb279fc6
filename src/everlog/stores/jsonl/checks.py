"""Damage of the day files and of the index: what `verify` asks of this store beside the events.

Every byte is read again. A line that cannot be read is named with its file and its number, and stays where it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from everlog.core.codec import header_bytes
from everlog.core.counted import counted
from everlog.core.event import START, Position
from everlog.stores.contract import Problem
from everlog.stores.jsonl.bad_lines import BAD, MARKER, WINDOWS, code_of
from everlog.stores.jsonl.day_files import Found, day_names, other_names, read_from, scan
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index import HOLE, Index
from everlog.stores.jsonl.lines import BadLine, EventLine, Line, read_line
from everlog.stores.jsonl.notes import NotesFile
from everlog.stores.jsonl.refusing import line_numbers

_LOOKS = 50
_LOOK_AGAIN_S = 0.02


def problems(folder: Folder, index: Index, notes: NotesFile) -> Iterator[Problem]:
    for name in day_names(folder.files, folder.events):
        yield from _file_problems(folder, index, name)
    for name in other_names(folder.files, folder.events):
        yield Problem(START, "foreign_file", f"events/{name} is not named after a day, and its lines are not read")
    yield from _missing(index)
    if notes.bad_lines():
        yield Problem(
            START, "notes_damaged", f"{counted(notes.bad_lines(), 'line')} of local/notes.jsonl cannot be read"
        )


def file_of(index: Index, position: Position) -> str:
    """The file that a position is in, or that the positions around it are in."""
    found = index.fetch(
        "SELECT name FROM files WHERE file IN ("
        "(SELECT file FROM events WHERE position <= ?1 ORDER BY position DESC LIMIT 1),"
        " (SELECT file FROM events WHERE position >= ?1 ORDER BY position LIMIT 1))",
        (position,),
    )
    names = {name for (name,) in found}
    return f"events/{names.pop()}" if len(names) == 1 else ""


def _missing(index: Index) -> Iterator[Problem]:
    """Events that were here, those that follow each other in one file as one."""
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
    """The lines that the index knows to be no lines of a log: cheap, where there are none."""
    found = []
    for name, lines in groupby(index.bad_lines(), key=itemgetter(0)):
        known = [(at, code, reason) for _, at, code, reason in lines if code in BAD]
        numbers = line_numbers(folder, name, [at for at, _, _ in known]) if known else []
        for number, (_, code, reason) in zip(numbers, known, strict=True):
            found.append(Problem(START, code, f"events/{name} line {number}: {reason}"))
    return found


def _file_problems(folder: Folder, index: Index, name: str) -> list[Problem]:
    """What is wrong with a file. A purge replaces the file and then tells the index, so problems that were found
    while the two are of different moments do not count: they are looked at again."""
    for _ in range(_LOOKS):
        before = _moment(folder, index, name)
        found = list(_look_at(folder, index, name))
        if not found or (before is not None and before == _moment(folder, index, name)):
            break
        time.sleep(_LOOK_AGAIN_S)
    return found


def _moment(folder: Folder, index: Index, name: str) -> tuple[int, int, int] | None:
    """Which file has the name, and how much of it the index knows; None if they differ or a purge is under way."""
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
    rows = {
        at: (position, event_id)
        for position, event_id, at in index.fetch("SELECT position, id, at FROM events WHERE file = ?", (file,))
    }
    placed = index.fetch("SELECT at, position FROM bad_lines WHERE file = ? AND position > 0", (file,))
    places = {at: Position(position) for at, position in placed}
    data = read_from(folder.files, folder.events / name)[: stamp.size]  # the log may be written meanwhile
    windows = 0
    for number, found in enumerate(scan(data), 1):
        place = f"events/{name} line {number}"
        row = rows.pop(found.at, None)
        position = Position(row[0]) if row else places.get(found.at, START)
        if found.line is None:
            code = code_of(found.reason)
            if code == MARKER:
                yield Problem(position, "conflict_marker", f"{place}: {found.reason}")
            elif code == WINDOWS:
                windows += 1
                if windows == 1:  # all lines of the file have it, or as good as all
                    yield Problem(position, "crlf", f"{place}: {found.reason}")
            else:
                yield Problem(position, "line_unreadable", f"{place}: {found.reason}")
        elif isinstance(found.line, EventLine) and (row is None or row[1] != found.line.id):
            yield from _stranger(folder, index, found, place, position)
    for position, event_id in rows.values():
        yield Problem(Position(position), "index_disagrees", f"event {event_id} is not where the index says")


def _stranger(folder: Folder, index: Index, found: Found, place: str, position: Position) -> Iterator[Problem]:
    """An event line that the index does not know by this place."""
    line = found.line
    assert isinstance(line, EventLine)
    if index.fetch("SELECT 1 FROM purged WHERE id = ?", (line.id,)):
        yield Problem(START, "purged_came_back", f"{place}: event {line.id} was purged and is here again")
        return
    rows = index.fetch(
        "SELECT position, name, at, events.size FROM events JOIN files USING (file) WHERE id = ?", (line.id,)
    )
    if not rows:
        yield Problem(position, "index_disagrees", f"{place}: event {line.id} is not in the index")
        return
    there, name, at, size = rows[0]
    try:
        other: Line | None = read_line(read_from(folder.files, folder.events / name, at)[:size])
    except (BadLine, FileNotFoundError):
        other = None  # damaged, or moved by a purge since the index was asked
    if not isinstance(other, EventLine) or header_bytes(other.event()) != header_bytes(line.event()):
        yield Problem(
            Position(there), "id_conflict", f"{place}: it has the id {line.id} of another event, and is left out"
        )
