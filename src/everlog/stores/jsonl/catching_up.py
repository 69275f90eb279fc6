"""Bringing the index up to the day files.

Most of the time somebody appended: the files that are known have the bytes that are known, and new lines stand behind
them. Their order is the order of arrival.

After a merge, a checkout or an edit, lines are new in the midst of files, moved or gone. Who is known keeps its
position; who is new arrived now, and gets a position at the end, in the causal order `(lamport, id)`, whatever file
it stands in. A reader that has seen N never finds something new at or below N (G3).

The order of such an arrival is in no file. So it is made durable with the index; an index that is made from nothing
takes the order of the lines and begins a new epoch, by which every cursor is told (G8).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from everlog.core.clock import LAMPORT_MAX
from everlog.files import Files, Stamp
from everlog.stores.jsonl.bad_lines import CAME_BACK, MARKER, TWICE, Unplaced, code_of, note, note_bad, place_bad
from everlog.stores.jsonl.day_files import Found, day_names, first_of_open_write, open_names, read_from, scan, torn_at
from everlog.stores.jsonl.index import Index, new_epoch
from everlog.stores.jsonl.lines import EventLine, Line, PurgedLine, PurgeLine, causal_order, writer_of
from everlog.stores.jsonl.rows import Rows, add_purged, remove_purged
from everlog.stores.jsonl.side_by_side import Placed, side_by_side

PIECE_BYTES = 1 << 20
LATEST = "9999"
_ID = re.compile(rb'"id":"([^"]{1,64})"')


@dataclass(slots=True)
class Read:
    """What was read of a day file: its new lines, from `start` on, which is 0 when it was read anew."""

    name: str
    stamp: Stamp
    start: int
    found: list[Found]
    last_write: tuple[int, bytes] = (0, b"")

    @property
    def end(self) -> int:
        return self.found[-1].end if self.found else self.start


@dataclass(slots=True)
class Change:
    """How the files differ from what the index knows."""

    read: list[Read] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    appended_only: bool = True

    def __bool__(self) -> bool:
        return bool(self.read or self.gone)


Mend = Callable[[Read, int | None, bytes], None]
"""Put what is kept on the disk, and cut the torn tail if there is one and a write is under way; see `keeper`."""


def find_change(
    index: Index, files: Files, events: Path, *, own: str, mend: Mend | None, today: str = LATEST
) -> Change:
    """Look at every file; read what is not known. `mend` is None where nothing can be written."""
    known = index.stamps()
    names = day_names(files, events)
    change = Change(gone=[name for name in known if name not in names])
    newest_known = max(known, default="")
    may_be_torn = open_names(names, today)
    for name in names:
        stamp = files.stamp(events / name)
        assert stamp is not None
        start = 0
        file = None
        if name in known:
            file, before = known[name]
            if stamp == before:
                continue
            start = _grown_from(index, files, events / name, file, before, stamp)
            change.appended_only &= start > 0 or before.size == 0
        elif name < newest_known and name not in may_be_torn:
            change.appended_only = False
        is_lost = None if name not in may_be_torn else partial(_holds_committed, index, None if start else file)
        change.read.append(_read(files, events, name, start, own=own, mend=mend, is_lost=is_lost))
    change.appended_only &= not change.gone
    if len(change.read) > 1 and any(each.start and each.name != change.read[0].name for each in change.read):
        change.appended_only = False  # two known files grew: nobody here does that
    return change


def _grown_from(index: Index, files: Files, path: Path, file: int, before: Stamp, now: Stamp) -> int:
    """Where the new lines begin if the file only grew, else 0.

    The number of a file that git removed is given out again at once, often to the one that it put in its place. So
    all that is known is looked for, at its place. It happens after a crash or by another program's hand only: who
    writes tells the index.
    """
    if now.inode != before.inode or now.size <= before.size:
        return 0
    data = read_from(files, path)[: before.size]
    return before.size if data.endswith(b"\n") and _is_as_known(index, file, data) else 0


def _is_as_known(index: Index, file: int, data: bytes) -> bool:
    rows = {at: tuple(row) for at, *row in index.fetch("SELECT at, whole, id FROM events WHERE file = ?", (file,))}
    aside = {row[0] for row in index.fetch("SELECT at FROM bad_lines WHERE file = ?", (file,))}
    for found in scan(data):
        line = found.line
        if found.at in aside:
            continue
        match line:
            case EventLine():
                known = rows.pop(found.at, None) == (int(line.whole or "0", 16), line.id)
            case PurgedLine():
                known = bool(index.fetch("SELECT 1 FROM purged WHERE id = ? AND purge = ?", (line.id, line.purge)))
            case PurgeLine():
                known = bool(index.fetch("SELECT 1 FROM purges WHERE purge = ?", (line.id,)))
            case None:
                known = False
        if not known:
            return False
    return not rows


def _holds_committed(index: Index, file: int | None, kept: list[Found], tail: bytes) -> bool:
    """Whether cutting the tail, so that `kept` stays of the file, would take what the index knows as committed: then
    what is wrong with it is damage. `file` is None when all that is known of the file was found at its place."""
    stay = {each.line.id for each in kept if each.line is not None}
    if file is not None:
        rows = index.fetch("SELECT id FROM events WHERE file = ?", (file,))
        if any(event_id not in stay for (event_id,) in rows):
            return True
    # What is left of a purge is in no file by the index: it is known by its id, as far as that can be read.
    named = {found.decode("utf-8", "replace") for found in _ID.findall(tail)}
    return any(index.knows(line_id) for line_id in named - stay)


IsLost = Callable[[list[Found], bytes], bool]
"""Whether a tail that looks torn holds what is committed; None in its stead for a file whose end nobody cuts."""


def _never(kept: list[Found], tail: bytes) -> bool:
    return False


def _read(
    files: Files, events: Path, name: str, start: int, *, own: str, mend: Mend | None, is_lost: IsLost | None
) -> Read:
    path = events / name
    data = read_from(files, path, start)
    found = list(scan(data, start))
    read = Read(name, Stamp(0, 0, 0), start, found)
    cut = None
    if is_lost is not None:
        cut = torn_at(data, start, found, own=own)
        if cut is not None:
            kept = [each for each in found if each.at < cut]
            if is_lost(kept, data[cut - start :]):
                cut = None
            else:
                read.found = kept
        if mend is not None:
            mend(read, cut, data)
    stamp = files.stamp(path)
    assert stamp is not None
    # A tail that stays until somebody writes is not known: whoever looks next sees it as new.
    read.stamp = stamp if cut is None else stamp._replace(size=cut)
    return read


def last_write(read: Read) -> int:
    """Where the last whole write begins."""
    if not read.found:
        return read.start
    last = read.found[-1]
    if last.batch is None:
        return last.at
    first = max(len(read.found) - last.batch[0], 0)
    return read.found[first].at


def record_change(
    index: Index, change: Change, *, own: Collection[str], origin: str, purged: Collection[PurgedLine] = ()
) -> None:
    """Bring the index up to what was found. `own` are all origins of this copy, `origin` is the one in use, and
    `purged` is what a purge that was stopped on its way leaves of events."""
    if change.appended_only:
        with index.change() as connection:
            rows = Rows(index, connection, own=own)
            new: list[tuple[int, Found]] = []
            bad: list[tuple[int, list[Unplaced]]] = []
            for read in change.read:
                file = _file_id(connection, read)
                bad.append((file, note_bad(connection, file, read.found, fresh=not read.start)))
                new += [
                    (file, found)
                    for found in read.found
                    if found.line is not None and not _known_already(index, connection, file, found)
                ]
            for file, found, line in _each_once(connection, new):
                rows.take(file, found.at, found.size, line)
            place_bad(rows, connection, bad)
            rows.end()
            remove_purged(connection, purged)
        return
    with index.change(durable=True) as connection:
        _record_merge(index, connection, change, own=own, origin=origin)
        remove_purged(connection, purged)


class OutOfOrder(Exception):
    """The lines of an origin are not in the order in which it wrote them."""


def fill_new(index: Index, reads: Iterable[Read], *, own: Collection[str], causal: bool = False) -> None:
    """An index from nothing: the order of the lines is the order of the positions, but for the events of a request
    that a merge put others between.

    A clock that was wrong makes files whose order is not that of the writes. OutOfOrder is raised then, and with
    `causal` the lines are taken in causal order."""
    seen: set[str] = set()
    ends: dict[str, int] = {}
    markers: list[tuple[int, list[Unplaced]]] = []
    with index.change() as connection:
        rows = Rows(index, connection, own=own)
        lines = _all_lines(connection, reads)
        for file, found in side_by_side(_sorted(lines) if causal else lines, own):
            line = found.line
            if isinstance(line, (EventLine, PurgedLine)) and line.origin in own and not causal:
                if line.origin_seq < ends.get(line.origin, 0) and line.id not in seen:
                    raise OutOfOrder
                ends[line.origin] = line.origin_seq
            if line is None and code_of(found.reason) == MARKER:
                markers.append((file, [(found.at, MARKER, found.reason)]))  # no event: it must not shift the others
                continue
            if line is None:
                rows.skip()
                note(connection, file, found.at, code_of(found.reason), found.reason, rows.position)
                continue
            if line.id in seen:
                rows.end()  # the first one must be found to be compared with
                _known_already(index, connection, file, found)
                continue
            seen.add(line.id)
            rows.take(file, found.at, found.size, line)
        place_bad(rows, connection, markers)
        rows.end()


def _sorted(lines: Iterable[Placed]) -> list[Placed]:
    last = (LAMPORT_MAX + 1, 0, "")
    return sorted(lines, key=lambda placed: last if placed[1].line is None else causal_order(placed[1].line))


def _all_lines(connection: sqlite3.Connection, reads: Iterable[Read]) -> Iterator[Placed]:
    for read in reads:
        file = _file_id(connection, read)
        for found in read.found:
            yield file, found


def read_whole(files: Files, events: Path, *, own: str, mend: Mend | None, today: str = LATEST) -> Iterable[Read]:
    """Every day file in order, in pieces: a whole day of lines, decoded, would take a multiple of its size."""
    names = day_names(files, events)
    may_be_torn = open_names(names, today)
    for name in names:
        at = 0
        for piece in _pieces(files, events, name):
            yield piece
            at = piece.end
        yield _read(files, events, name, at, own=own, mend=mend, is_lost=_never if name in may_be_torn else None)


def _pieces(files: Files, events: Path, name: str) -> Iterator[Read]:
    """All of a file but its end, which may be torn. A piece ends where a write does."""
    stamp = files.stamp(events / name)
    assert stamp is not None
    at, want = 0, PIECE_BYTES
    while at + want < stamp.size:
        data = read_from(files, events / name, at, size=want)
        found = list(scan(data[: data.rfind(b"\n") + 1], at))
        found = found[: first_of_open_write(found)]
        if found:
            yield Read(name, stamp, at, found)
            at, want = found[-1].end, PIECE_BYTES
        else:
            want *= 2  # a write that is larger than a piece


# ---- a merge


def _record_merge(
    index: Index, connection: sqlite3.Connection, change: Change, *, own: Collection[str], origin: str
) -> None:
    anew = [read.name for read in change.read if not read.start]  # one that only grew has its lines still
    gone = {row[0]: row[1:] for row in rows_of(index, [*change.gone, *anew])}
    for name in change.gone:
        for (file,) in connection.execute("SELECT file FROM files WHERE name = ?", (name,)).fetchall():
            note_bad(connection, file, [], fresh=True)
        connection.execute("DELETE FROM files WHERE name = ?", (name,))
    new: list[tuple[int, Found]] = []
    bad: list[tuple[int, list[Unplaced]]] = []
    same = _the_very_lines(change, gone)
    for read in change.read:
        file = _file_id(connection, read)
        bad.append((file, note_bad(connection, file, read.found, fresh=not read.start)))
        for found in read.found:
            if found.line is None:
                continue
            if isinstance(found.line, EventLine) and same.get(found.line.id, found) is not found:
                note(connection, file, found.at, TWICE, f"event {found.line.id} stands in another line, too")
                continue
            before = gone.pop(found.line.id, None)
            if before is not None and isinstance(found.line, EventLine):
                connection.execute(
                    "UPDATE events SET file = ?, at = ?, size = ?, whole = ? WHERE position = ?",
                    (file, found.at, found.size, int(found.line.whole or "0", 16), before[0]),
                )
            elif before is not None and isinstance(found.line, PurgedLine):
                position, sequence, stream, *_ = before
                connection.execute("DELETE FROM events WHERE position = ?", (position,))
                add_purged(connection, position, sequence, stream, found.line)
            elif not _known_already(index, connection, file, found):
                new.append((file, found))
    for event_id, (position, sequence, stream, _, name, at) in gone.items():
        connection.execute("DELETE FROM events WHERE position = ?", (position,))
        lost = (position, stream, sequence, event_id, name, at)
        connection.execute("INSERT INTO missing VALUES (?, ?, ?, ?, ?, ?)", lost)
    rows = _record_arrivals(index, connection, new, own=own, origin=origin)
    place_bad(rows, connection, bad)


def _the_very_lines(change: Change, known: dict[str, Known]) -> dict[str, Found]:
    """For each event that is known, the line that it was known by, if that is still there: another line with the same
    id may stand before it (G5)."""
    return {
        found.line.id: found
        for read in change.read
        for found in read.found
        if isinstance(found.line, EventLine)
        and found.line.id in known
        and known[found.line.id][3] == int(found.line.whole or "0", 16)
    }


def _record_arrivals(
    index: Index, connection: sqlite3.Connection, new: list[tuple[int, Found]], *, own: Collection[str], origin: str
) -> Rows:
    arrived = _each_once(connection, new)
    # What this copy wrote as another origin comes from another branch, as the events of others do.
    ours = [each for each in arrived if origin and writer_of(each[2]) == origin]
    theirs = [each for each in arrived if not origin or writer_of(each[2]) != origin]
    theirs.sort(key=lambda each: causal_order(each[2]))
    if ours:
        # Written here and not in the index: a power cut took the index back. Readers may have seen them at positions
        # that cannot be told any more, now that the files have changed besides.
        connection.execute("UPDATE about SET epoch = ?", (new_epoch(),))
    rows = Rows(index, connection, own=own)
    for file, found, line in ours + theirs:
        rows.take(file, found.at, found.size, line)
    rows.end()
    return rows


def _each_once(connection: sqlite3.Connection, new: list[tuple[int, Found]]) -> list[tuple[int, Found, Line]]:
    """Every id once, though a merge of plain text may have brought it twice. What a purge left of an event wins."""
    kept: dict[str, tuple[int, Found, Line]] = {}
    for file, found in new:
        line = found.line
        assert line is not None
        before = kept.get(line.id)
        if before is None:
            kept[line.id] = (file, found, line)
        elif isinstance(line, PurgedLine) and isinstance(before[2], EventLine):
            note(connection, before[0], before[1].at, CAME_BACK, f"event {line.id} was purged, and is here as well")
            kept[line.id] = (file, found, line)
        else:
            note(connection, file, found.at, TWICE, f"event {line.id} stands in another line, too")
    return list(kept.values())


Known = tuple[int, int, int, int, str, int]
"""Of an event: its position, sequence, stream and checksum, and the name of its file and where it stands there."""


def rows_of(index: Index, names: list[str]) -> list[tuple[str, int, int, int, int, str, int]]:
    rows: list[tuple[str, int, int, int, int, str, int]] = []
    for name in names:
        rows += index.fetch(
            "SELECT id, position, sequence, stream, whole, name, at FROM events JOIN files USING (file)"
            " WHERE name = ?",
            (name,),
        )
    return rows


def _known_already(index: Index, connection: sqlite3.Connection, file: int, found: Found) -> bool:
    """True when the line's id has a position; the line is then a copy, a return, or a contradiction, and told so."""
    line = found.line
    assert line is not None
    if isinstance(line, PurgeLine):
        return bool(index.fetch("SELECT 1 FROM purges WHERE purge = ?", (line.id,)))
    purged = index.fetch("SELECT hash FROM purged WHERE id = ?", (line.id,))
    if purged:
        if isinstance(line, EventLine):
            reason = f"event {line.id} was purged, and is here again"
            note(connection, file, found.at, CAME_BACK, reason)
        else:
            # Two clones purged it, and a merge decided whose purge it is.
            connection.execute("UPDATE purged SET purge = ? WHERE id = ?", (line.purge, line.id))
        return True
    missing = index.fetch("SELECT position, sequence, stream FROM missing WHERE id = ?", (line.id,))
    if missing:
        position, sequence, stream = missing[0]
        connection.execute("DELETE FROM missing WHERE position = ?", (position,))
        if isinstance(line, PurgedLine):
            add_purged(connection, position, sequence, stream, line)
            return True
        rows = Rows(index, connection, own=())
        rows.take(file, found.at, found.size, line)  # at the end, and then back to where it was
        rows.end()
        connection.execute(
            "UPDATE events SET position = ?, sequence = ? WHERE position = ?", (position, sequence, rows.position)
        )
        return True
    there = index.fetch(
        "SELECT position, sequence, stream, file, at FROM events WHERE id = ?",
        (line.id,),
    )
    if not there:
        return False
    position, sequence, stream, *place = there[0]
    if isinstance(line, PurgedLine):
        connection.execute("DELETE FROM events WHERE position = ?", (position,))
        add_purged(connection, position, sequence, stream, line)
        return True
    if place != [file, found.at]:
        # The same event may well stand in two lines after a merge; `check` compares what they say.
        note(connection, file, found.at, TWICE, f"event {line.id} stands in another line, too")
    return True


def _file_id(connection: sqlite3.Connection, read: Read) -> int:
    stamp = read.stamp
    rows = connection.execute(
        "INSERT INTO files (name, size, changed_ns, inode) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
        " size = excluded.size, changed_ns = excluded.changed_ns, inode = excluded.inode RETURNING file",
        (read.name, stamp.size, stamp.changed_ns, stamp.inode),
    ).fetchall()
    file: int = rows[0][0]
    return file
