"""Read through the index: find the lines of a query, and read them.

Adjacent lines are read and decoded together. The lines must match the index: if an id differs, the file was replaced
meanwhile (a purge, a merge), and the page is read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from everlog.core.codec import Packed, header_bytes, payload_bytes
from everlog.core.event import START, Event, Position, Purged, Recorded, microseconds
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, HistoryChanged, NotCanonical
from everlog.files import Files
from everlog.stores.jsonl.folder import disk_errors
from everlog.stores.jsonl.index.schema import END, KIND, SCOPE, STREAM, TYPE, Damage, Index, IndexBroken
from everlog.stores.jsonl.lines import BadLine, EventLine, are_unchanged, read_events, read_line
from everlog.stores.jsonl.read_only import damage_error

PAGE_ROWS = 1000
_NAMES_AT_ONCE = 64
_GAP_BYTES_MAX = 16_384
_TRIES = 8

_COLUMNS = "position, sequence, received_us, id, file, at, size"
Row = tuple[int, int, int, str, int, int, int]
T = TypeVar("T")


class LineMoved(Exception):
    """A line is not where the index has it. `row` is its row, if known."""

    def __init__(self, row: Row | None = None) -> None:
        super().__init__()
        self.row = row


@dataclass(frozen=True, slots=True)
class Lines:
    """Access to the lines, and to a refresh of the index."""

    files: Files
    events: Path
    index: Callable[[], Index]
    refresh: Callable[[], None]
    reread_file: Callable[[int], None]
    """Read a whole file again, because a line of it does not match the index."""

    def records(self, rows: list[Row]) -> list[Recorded]:
        found: list[Recorded] = []
        for run, data in self.runs(rows):
            for row, event in zip(run, _events(run, data), strict=True):
                position, sequence, received_us, event_id, *_ = row
                if event.id != event_id:
                    raise LineMoved(row)
                found.append(Recorded(Position(position), sequence, received_us, event))
        return found

    def runs(self, rows: list[Row]) -> Iterator[tuple[list[Row], bytes]]:
        """Return the rows in runs of nearby lines of one file, each with the bytes from its first line to its
        last."""
        if rows and _are_adjacent(rows):
            yield rows, self._bytes(rows)
            return
        start = 0
        for stop in _runs(rows):
            run = rows[start:stop]
            yield run, self._bytes(run)
            start = stop

    def same_epoch(self, before: str) -> str:
        """Return the epoch. Raise HistoryChanged if it changed: a read must not mix positions of two branches."""
        epoch = self.index().epoch
        if before and epoch != before:
            raise HistoryChanged(
                f"{self.events.parent} has other positions than when this read began",
                why="another branch of git was checked out, or the index was rebuilt",
                hint="read again, from the beginning",
                epoch=epoch,
            )
        return epoch

    def refuse_damage(self, low: int, high: int) -> None:
        damage = self.index().damage(low, high)
        if damage is not None:
            raise self.error(damage)

    def error(self, damage: Damage) -> Damaged:
        return damage_error(self.files, self.events, damage)

    def _bytes(self, rows: list[Row]) -> bytes:
        return self.span(rows[0], rows[-1])

    def span(self, first: Row, last: Row) -> bytes:
        """Return the bytes of a file from one line to another."""
        begin, end = first[5], last[5] + last[6]
        try:
            handle = self.files.open(self.events / self.index().file_name(first[4]))
        except (FileNotFoundError, KeyError) as error:
            raise LineMoved(first) from error
        try:
            return self.files.read(handle, end - begin, at=begin)
        finally:
            self.files.close(handle)


def _events(rows: list[Row], data: bytes) -> list[Event]:
    """Return the events of rows that are nearby and ascending in one file."""
    refuse_moved(rows, data)
    try:
        found = read_events(lines_alone(rows, data))
    except BadLine:
        found = [event_of(line) for line in each_line(rows, data)]
    if len(found) != len(rows):
        raise LineMoved(rows[0])
    return found


def refuse_moved(rows: list[Row], data: bytes) -> None:
    """Raise LineMoved if the checksum of a line does not match."""
    lines = each_line(rows, data)
    if not are_unchanged(lines):
        raise LineMoved(next(row for row, line in zip(rows, lines, strict=True) if not are_unchanged([line])))


def lines_alone(rows: list[Row], data: bytes) -> bytes:
    """Return the lines of these rows, without the bytes between them."""
    if len(data) == sum([row[6] for row in rows]) + len(rows) - 1:
        return data  # adjacent: nothing is between them
    return b"\n".join(each_line(rows, data))


def each_line(rows: list[Row], data: bytes) -> list[bytes]:
    begin = rows[0][5]
    return [data[row[5] - begin : row[5] - begin + row[6]] for row in rows]


def event_of(data: bytes) -> Event:
    try:
        line = read_line(data)
    except BadLine as error:
        raise LineMoved from error
    if not isinstance(line, EventLine):
        raise LineMoved
    return line.event()


def _are_adjacent(rows: list[Row]) -> bool:
    """Return whether the rows are one run without gaps, as most are. `_runs` would compare row by row."""
    _, _, _, _, files, places, sizes = zip(*rows, strict=True)
    whole = places[-1] + sizes[-1] - places[0]
    return len(set(files)) == 1 and whole == sum(sizes) + len(rows) - 1 and list(places) == sorted(places)


def _runs(rows: list[Row]) -> Iterator[int]:
    """Return where each run of rows ends that is worth one read: ascending in one file, with small gaps."""
    for index, (before, row) in enumerate(pairwise(rows), 1):
        if row[4] != before[4] or not 0 < row[5] - before[5] <= before[6] + 1 + _GAP_BYTES_MAX:
            yield index
    if rows:
        yield len(rows)


def read_records(
    lines: Lines,
    query: Query = EVERYTHING,
    *,
    after: Position = START,
    upto: Position | None = None,
    limit: int | None = None,
    newest_first: bool = False,
) -> Iterator[Recorded]:
    found = _read_all(lines, query, int(after), END if upto is None else int(upto), limit, newest_first)
    return found if limit is None else islice(found, max(limit, 0))


def read_by_id(lines: Lines, event_id: str) -> Recorded | None:
    sql = f"SELECT {_COLUMNS} FROM events WHERE id = ?"
    records = until_unchanged(lines, lambda: lines.records(lines.index().fetch(sql, (event_id,))))
    if not records:
        lost = lines.index().fetch("SELECT position FROM missing WHERE id = ?", (event_id,))
        # An unreadable line may be this event.
        low, high = (lost[0][0] - 1, lost[0][0]) if lost else (0, END)
        lines.refuse_damage(low, high)
    return records[0] if records else None


def _read_all(
    lines: Lines, query: Query, low: int, high: int, limit: int | None, newest_first: bool
) -> Iterator[Recorded]:
    left = limit
    by_person = bool(query.actor or query.correlation_id)
    size = min(PAGE_ROWS, 64 if limit is None else max(limit, 1))
    epoch = ""
    while left is None or left > 0:
        rows, records, damage = _page(lines, query, low, high, size, newest_first)
        epoch = lines.same_epoch(epoch)
        for recorded in records:
            if not by_person or query.matches_person(recorded.event):
                yield recorded
                if left is not None:
                    left -= 1
                    if left == 0:
                        return
        if damage is not None:
            raise lines.error(damage)
        if len(rows) < size:
            return
        size = PAGE_ROWS
        if newest_first:
            high = rows[-1][0] - 1
        else:
            low = rows[-1][0]


def _page(
    lines: Lines, query: Query, low: int, high: int, size: int, newest_first: bool, *, past_damage: bool = False
) -> tuple[list[Row], list[Recorded], Damage | None]:
    """Return the rows of a page, their events, and the damage at which the page ends."""

    def look() -> tuple[list[Row], list[Recorded], Damage | None]:
        index = lines.index()
        rows = wanted_rows(index, query, low, high, size, newest_first)
        damage = None if past_damage else damage_among(index, rows, low, high, size, newest_first)
        if damage is not None:
            rows = [row for row in rows if (row[0] > damage.last if newest_first else row[0] < damage.first)]
        if newest_first:
            return rows, lines.records(rows[::-1])[::-1], damage  # ascending, as in the file
        return rows, lines.records(rows), damage

    return until_unchanged(lines, look)


def damage_among(
    index: Index, rows: list[Row], low: int, high: int, size: int, newest_first: bool = False
) -> Damage | None:
    """Return the first damage in the range of a page, whatever the filter: a lost event might have matched."""
    if len(rows) == size:
        low, high = (rows[-1][0] - 1, high) if newest_first else (low, rows[-1][0])
    return index.damage(low, high, newest_first=newest_first)


def until_unchanged(lines: Lines, look: Callable[[], T]) -> T:
    """Call `look` until index and lines match, and return its result."""
    row = None
    for number in range(_TRIES):
        try:
            with disk_errors(lines.events):
                return look()
        except IndexBroken:
            lines.refresh()
        except LineMoved as moved:
            row = moved.row or row
            lines.refresh()
            if number and row is not None:
                lines.reread_file(row[4])
    details: dict[str, Any] = {}
    if row is not None:
        details = {"position": row[0], "after": row[0]}
    raise Damaged(
        f"the lines in {lines.events} are not where the index has them",
        why="the files change while they are read",
        hint="everlog index rebuild",
        **details,
    )


def wanted_rows(index: Index, query: Query, low: int, high: int, size: int, newest_first: bool) -> list[Row]:
    plan = _plan(index, query)
    if plan is None:
        return []
    conditions, values, column, ids = plan
    order = "DESC" if newest_first else "ASC"
    shared = f"position > ? AND position <= ?{conditions}"
    tail = f"ORDER BY position {order} LIMIT ?"
    source = f"SELECT {_COLUMNS} FROM events WHERE "
    bounds = (low, high, *values)
    if not column:
        return index.fetch(f"{source}{shared} {tail}", (*bounds, size))
    if len(ids) == 1:
        return index.fetch(f"{source}{column} = ? AND {shared} {tail}", (ids[0], *bounds, size))
    if len(ids) > _NAMES_AT_ONCE:
        many = f"+{column} IN (SELECT value FROM json_each(?))"
        return index.fetch(f"{source}{many} AND {shared} {tail}", (json.dumps(ids), *bounds, size))
    # One search of the SQL index per name: each result is in order and no longer than a page.
    parts = [f"SELECT * FROM (SELECT events.* FROM events WHERE {column} = ? AND {shared} {tail})"] * len(ids)
    each: list[Any] = [value for number in ids for value in (number, *bounds, size)]
    united = " UNION ALL ".join(parts)
    return index.fetch(f"SELECT {_COLUMNS} FROM ({united}) AS events {tail}", (*each, size))


def wanted_row(index: Index, position: int) -> Row | None:
    """Return the row of one position."""
    found = index.fetch(f"SELECT {_COLUMNS} FROM events WHERE position = ?", (position,))
    return found[0] if found else None


def _plan(index: Index, query: Query) -> tuple[str, list[Any], str, list[int]] | None:
    """Return conditions, their values, and the column to search with its numbers; None if nothing can match."""
    conditions, column = "", ""
    values: list[Any] = []
    ids: list[int] = []
    for name, found in (
        ("stream", index.name_ids(STREAM, [query.stream]) if query.stream else None),
        ("type", index.name_ids(TYPE, sorted(query.types)) if query.types else None),
        ("scope", _scope_ids(index, query.scope) if query.scope else None),
        ("kind", index.name_ids(KIND, [query.kind]) if query.kind else None),
    ):
        if found is None:
            continue
        if not found:
            return None
        if not column:
            column, ids = name, found
        else:
            conditions += f" AND +{name} IN (SELECT value FROM json_each(?))"
            values.append(json.dumps(found))
    if query.since is not None:
        conditions += " AND received_us >= ?"
        values.append(microseconds(query.since))
    if query.until is not None:
        conditions += " AND received_us < ?"
        values.append(microseconds(query.until))
    return conditions, values, column, ids


def _scope_ids(index: Index, prefix: str) -> list[int]:
    """Return the scopes that are equal to or below this one. "0" is the character after "/"."""
    rows = index.fetch(
        "SELECT name_id FROM names WHERE family = ? AND (name = ? OR (name >= ? AND name < ?))",
        (SCOPE, prefix, prefix + "/", prefix + "0"),
    )
    return [row[0] for row in rows]


def read_slots(lines: Lines, after: Position) -> Iterator[Packed | Purged]:
    """Return every slot after a position, as the bytes that are hashed, including purged ones."""
    low, epoch = int(after), ""
    while True:
        rows, records, _ = _page(lines, EVERYTHING, low, END, PAGE_ROWS, newest_first=False, past_damage=True)
        epoch = lines.same_epoch(epoch)
        last = rows[-1][0] if len(rows) == PAGE_ROWS else END
        gone = lines.index().fetch(
            "SELECT position, purged.sequence, id, origin, origin_seq, hash, previous, lamport,"
            " coalesce(reserved, 0), hash_format"
            " FROM purged LEFT JOIN purges USING (purge)"
            " WHERE position > ? AND position <= ? ORDER BY position",
            (low, last),
        )
        places: list[Packed | Purged] = [_packed(recorded) for recorded in records]
        places += [Purged(*row) for row in gone]
        places.sort(key=lambda place: place.position)
        yield from places
        if len(rows) < PAGE_ROWS:
            return
        low = last


def _packed(recorded: Recorded) -> Packed:
    event = recorded.event
    return Packed(
        recorded.position,
        recorded.sequence,
        recorded.received_us,
        header_bytes(event),
        payload_text(event.payload) if event.salt else b"",
        event.salt,
        event.signature,
        event.path,
    )


def payload_text(payload: Mapping[str, Any]) -> bytes:
    try:
        return payload_bytes(payload)
    except NotCanonical:
        return msgspec.json.encode(payload)  # verify reports what is wrong with it
