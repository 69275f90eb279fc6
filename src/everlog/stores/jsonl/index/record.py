"""Record changes of the day files in the index, or fill a new index.

Usually lines were appended: the known files have their known bytes, and the new lines follow them. Their order is the
order of arrival.

After a merge, a checkout or an edit, lines within files may be new, moved or missing. A known line keeps its
position. A new line gets a position at the end, in the causal order `(lamport, id)`, in whatever file it is. A reader
that has seen N never finds something new at or below N (G3).

The order of such arrivals is in no file, so it is made durable with the index. An index that is rebuilt takes the
order of the lines and starts a new epoch, which resets every cursor (G8).
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Collection, Iterable, Iterator

from everlog.core.clock import LAMPORT_MAX
from everlog.stores.jsonl.day_files import Found
from everlog.stores.jsonl.index.bad_lines import (
    CAME_BACK,
    MARKER,
    TWICE,
    Unplaced,
    code_of,
    note,
    note_bad,
    place_bad,
)
from everlog.stores.jsonl.index.changes import FileChanges, Read
from everlog.stores.jsonl.index.rows import (
    Rows,
    add_group,
    add_purged,
    hide_erased,
    put_file,
    remove_event,
    remove_purged,
)
from everlog.stores.jsonl.index.schema import Index, id_of, key_of, new_epoch
from everlog.stores.jsonl.lines import EventLine, Line, PurgedLine, PurgeLine, causal_order, writer_of
from everlog.stores.jsonl.purge import NOTHING, Plan

Placed = tuple[int, Found]
"""A line and the number of its file."""


def record_change(
    index: Index, change: FileChanges, *, own: Collection[str], origin: str, going: Plan = NOTHING
) -> None:
    """Record what was found. `own` are all origins of this copy, `origin` is the one in use, and `going` is what an
    interrupted purge or erasure removes. Raise Outdated if another process has changed the index since."""
    if change.appended_only:
        with index.change() as connection:
            _refuse_outdated(index, change)
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
                rows.add(file, found.at, found.size, line)
            place_bad(rows, connection, bad)
            rows.end()
            remove_going(index, connection, going)
        return
    with index.change(durable=True) as connection:
        _refuse_outdated(index, change)
        _record_merge(index, connection, change, own=own, origin=origin)
        remove_going(index, connection, going)


def remove_going(index: Index, connection: sqlite3.Connection, going: Plan) -> None:
    """Remove from the index what a purge or an erasure removes, if it is committed."""
    remove_purged(connection, going.purged)
    if going.erased and going.is_committed(index.knows):
        hide_erased(connection, going.erased)


def purged_lines(index: Index) -> list[PurgedLine]:
    """Return what the purges of the log have left of events."""
    rows = index.fetch(
        "SELECT hash, id, origin, origin_seq, previous, purge, coalesce(name, ''), iif(name IS NULL, sequence, 0),"
        " lamport, hash_format FROM purged LEFT JOIN names ON name_id = stream"
    )
    names = (
        "hash",
        "id",
        "origin",
        "origin_seq",
        "previous",
        "purge",
        "stream",
        "sequence",
        "lamport",
        "hash_format",
    )
    return [PurgedLine(**dict(zip(names, row, strict=True))) for row in rows]


def purge_again(index: Index, purged: Collection[PurgedLine]) -> None:
    """Keep events purged whose lines are back in the files, beside the record of their purge."""
    if not purged:
        return
    with index.change() as connection:
        for line in purged:
            place = "SELECT file, at FROM events JOIN ids USING (position) WHERE id = ?"
            back = connection.execute(place, (key_of(line.id),)).fetchall()
            remove_purged(connection, [line])
            if back and index.fetch("SELECT 1 FROM purged WHERE id = ?", (line.id,)):
                file, at = back[0]
                note(connection, file, at, CAME_BACK, f"event {line.id} was purged, and is here again")


class Outdated(Exception):
    """Another process has changed the index since the files were compared with it: compare them again."""


def _refuse_outdated(index: Index, change: FileChanges) -> None:
    if index.stamps() != change.known:
        raise Outdated


class OutOfOrder(Exception):
    """The lines of an origin are not in the order in which they were written."""


def fill_new(index: Index, reads: Iterable[Read], *, own: Collection[str], causal: bool = False) -> None:
    """Fill an empty index. Positions follow the order of the lines, except that the events of one request get
    adjacent positions, even if a merge put other lines between them.

    A wrong clock creates files that are not in the order of the writes. Then OutOfOrder is raised; with `causal` the
    lines are added in causal order."""
    seen: set[str] = set()
    ends: dict[str, int] = {}
    markers: list[tuple[int, list[Unplaced]]] = []
    with index.change() as connection:
        rows = Rows(index, connection, own=own)
        lines = _all_lines(connection, reads)
        for file, found in requests_together(_sorted(lines) if causal else lines, own):
            line = found.line
            if isinstance(line, (EventLine, PurgedLine)) and line.origin in own and not causal:
                if line.origin_seq < ends.get(line.origin, 0) and line.id not in seen:
                    raise OutOfOrder
                ends[line.origin] = line.origin_seq
            if line is None and code_of(found.reason) == MARKER:
                # not an event: it must not shift the others
                markers.append((file, [(found.at, MARKER, found.reason)]))
                continue
            if line is None:
                rows.skip()
                note(connection, file, found.at, code_of(found.reason), found.reason, rows.position)
                continue
            if line.id in seen:
                rows.end()  # the first line must be in the index to be compared
                _known_already(index, connection, file, found)
                continue
            seen.add(line.id)
            rows.add(file, found.at, found.size, line)
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


# ---- a merge


def _record_merge(
    index: Index, connection: sqlite3.Connection, change: FileChanges, *, own: Collection[str], origin: str
) -> None:
    reread = [read.name for read in change.read if not read.start]  # a file that only grew still has its lines
    gone = {row[0]: row[1:] for row in rows_of(index, [*change.gone, *reread])}
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
                note(connection, file, found.at, TWICE, f"event {found.line.id} is in another line, too")
                continue
            before = gone.pop(found.line.id, None)
            if before is not None and isinstance(found.line, EventLine):
                connection.execute(
                    "UPDATE events SET file = ?, at = ?, size = ?, crc = ? WHERE position = ?",
                    (file, found.at, found.size, found.line.checksum, before[0]),
                )
                if found.line.group is not None:
                    add_group(connection, found.line.origin, found.line.group, before[0])
            elif before is not None and isinstance(found.line, PurgedLine):
                remove_event(connection, found.line.id)
                add_purged(connection, *before[:3], found.line)
            elif not _known_already(index, connection, file, found):
                new.append((file, found))
    for event_id, (position, sequence, stream, _, name, at) in gone.items():
        remove_event(connection, event_id)
        lost = (position, stream, sequence, event_id, name, at)
        connection.execute("INSERT INTO missing VALUES (?, ?, ?, ?, ?, ?)", lost)
    rows = _record_arrivals(index, connection, new, own=own, origin=origin)
    place_bad(rows, connection, bad)


def _the_very_lines(change: FileChanges, known: dict[str, Known]) -> dict[str, Found]:
    """Return the known line of each known event, if it still exists: another line with the same id may come before
    it (G5)."""
    return {
        found.line.id: found
        for read in change.read
        for found in read.found
        if isinstance(found.line, EventLine)
        and found.line.id in known
        and known[found.line.id][3] == found.line.checksum
    }


def _record_arrivals(
    index: Index, connection: sqlite3.Connection, new: list[tuple[int, Found]], *, own: Collection[str], origin: str
) -> Rows:
    arrived = _each_once(connection, new)
    # Lines that this copy wrote with an earlier origin come from another branch, like lines of other copies.
    ours = [each for each in arrived if origin and writer_of(each[2]) == origin]
    theirs = [each for each in arrived if not origin or writer_of(each[2]) != origin]
    theirs.sort(key=lambda each: causal_order(each[2]))
    if ours:
        # Written here but not in the index: a power cut undid commits of the index. Readers may have seen these
        # events at positions that are no longer known, because the files have changed since.
        connection.execute("UPDATE about SET epoch = ?", (new_epoch(),))
    rows = Rows(index, connection, own=own)
    for file, found, line in ours + theirs:
        rows.add(file, found.at, found.size, line)
    rows.end()
    return rows


def _each_once(connection: sqlite3.Connection, new: list[tuple[int, Found]]) -> list[tuple[int, Found, Line]]:
    """Return every id once, although a text merge may have brought it twice. A purged line wins over its event."""
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
            note(connection, file, found.at, TWICE, f"event {line.id} is in another line, too")
    return list(kept.values())


Known = tuple[int, int, int, int, str, int]
"""The position, sequence, stream and checksum of an event, its file, and its offset in it."""


def rows_of(index: Index, names: list[str]) -> list[tuple[str, int, int, int, int, str, int]]:
    """Return what the index has of some files. It reads the ids of all events."""
    if not names:
        return []
    rows = index.fetch(
        "SELECT id, events.position, sequence, stream, crc, name, at FROM ids JOIN events USING (position)"
        " JOIN files USING (file) WHERE name IN (SELECT value FROM json_each(?))",
        (json.dumps(names),),
    )
    return [(id_of(row[0]), *row[1:]) for row in rows]


def _known_already(index: Index, connection: sqlite3.Connection, file: int, found: Found) -> bool:
    """Return whether the line's id has a position. The line is then recorded as a copy, a return or a
    contradiction."""
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
            # Two clones purged it, and a merge chose one purge.
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
        rows.put_back(file, found.at, found.size, line, position=position, sequence=sequence)
        rows.end()
        return True
    there = index.fetch(
        "SELECT events.position, sequence, stream, file, at FROM ids JOIN events USING (position) WHERE id = ?",
        (key_of(line.id),),
    )
    if not there:
        return False
    position, sequence, stream, *place = there[0]
    if isinstance(line, PurgedLine):
        remove_event(connection, line.id)
        add_purged(connection, position, sequence, stream, line)
        return True
    if place != [file, found.at]:
        # The same event may be in two lines after a merge; `check` compares them.
        note(connection, file, found.at, TWICE, f"event {line.id} is in another line, too")
    return True


def _file_id(connection: sqlite3.Connection, read: Read) -> int:
    return put_file(connection, read.name, read.stamp, read.crc)


# ---- the events of one request


def requests_together(lines: Iterable[Placed], own: Collection[str]) -> Iterator[Placed]:
    """Return the same lines, with the events of one request of this copy adjacent.

    A claim names the first event of a request and their number, and they are found by their positions. After a merge,
    lines of other clones may be between them. A rebuilt index assigns all positions, so it can assign adjacent ones
    to these events: they were written at once, and no other event depends on an order in between.
    """
    coming = iter(lines)
    put_off: deque[Placed] = deque()
    while (placed := put_off.popleft() if put_off else next(coming, None)) is not None:
        yield placed
        file, found = placed
        line = found.line
        # A line with a batch mark was not merged: its write is still contiguous.
        if not isinstance(line, (EventLine, PurgedLine)) or not line.claims or found.batch is not None:
            continue
        if line.via or line.origin not in own:
            continue
        wanted, end = line.origin_seq + 1, line.origin_seq + max(line.claims.values())
        others: deque[Placed] = deque()
        while wanted < end and (after := put_off.popleft() if put_off else next(coming, None)) is not None:
            number = _number(after[1], line.origin)
            if number == wanted:
                yield after
                wanted += 1
                continue
            others.append(after)
            if after[0] != file or number > wanted:
                break  # a write is in one file, and in order: the rest is lost
        put_off.extendleft(reversed(others))


def _number(found: Found, origin: str) -> int:
    """Return the line's number among those of an origin, or 0 if it has another origin."""
    line = found.line
    return line.origin_seq if isinstance(line, (EventLine, PurgedLine)) and line.origin == origin else 0
