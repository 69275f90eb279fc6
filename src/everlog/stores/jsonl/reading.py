"""Reading through the index: which lines a query wants, and the lines themselves.

Lines that stand one after the other are read and decoded as one piece. What was read must be what the index said: if
an id differs, the file was replaced meanwhile (a purge, a merge), and the page is asked for again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec

from everlog.core.codec import Packed, header_bytes, payload_bytes
from everlog.core.event import START, Event, Position, Purged, Recorded, microseconds
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, NotCanonical
from everlog.files import Files
from everlog.stores.jsonl.index import KIND, SCOPE, STREAM, TYPE, Index, IndexBroken
from everlog.stores.jsonl.lines import BadLine, EventLine, read_events, read_line

PAGE_ROWS = 1000
_NAMES_AT_ONCE = 64
_GAP_BYTES_MAX = 16_384
_END = 2**62
_TRIES = 8

_COLUMNS = "position, sequence, received_us, id, file, at, size"
Row = tuple[int, int, int, str, int, int, int]


class Moved(Exception):
    """A line is not where the index said."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Where the lines are, and how to have the index looked at again."""

    files: Files
    events: Path
    index: Callable[[], Index]
    refresh: Callable[[], None]

    def records(self, rows: list[Row]) -> list[Recorded]:
        found: list[Recorded] = []
        start = 0
        for stop in _runs(rows):
            run = rows[start:stop]
            for (position, sequence, received_us, event_id, *_), event in zip(run, self._events(run), strict=True):
                if event.id != event_id:
                    raise Moved
                found.append(Recorded(Position(position), sequence, received_us, event))
            start = stop
        return found

    def _events(self, rows: list[Row]) -> list[Event]:
        """The events of rows in one file, upwards and not far from each other."""
        begin, end = rows[0][5], rows[-1][5] + rows[-1][6]
        try:
            handle = self.files.open(self.events / self.index().file_name(rows[0][4]))
        except (FileNotFoundError, KeyError) as error:
            raise Moved from error
        try:
            data = self.files.read(handle, end - begin, at=begin)
        finally:
            self.files.close(handle)
        if end - begin == sum([row[6] for row in rows]) + len(rows) - 1:
            text = data  # one after the other: no need to pick them out
        else:
            text = b"\n".join([data[row[5] - begin : row[5] - begin + row[6]] for row in rows])
        try:
            found = read_events(text)
        except BadLine:
            found = [_one(data[row[5] - begin : row[5] - begin + row[6]]) for row in rows]
        if len(found) != len(rows):
            raise Moved
        return found


def _one(data: bytes) -> Event:
    try:
        line = read_line(data)
    except BadLine as error:
        raise Moved from error
    if not isinstance(line, EventLine):
        raise Moved
    return line.event()


def _runs(rows: list[Row]) -> Iterator[int]:
    """Where each run of rows ends whose lines are worth reading at once: upwards in one file, with small gaps."""
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
    found = _read_all(lines, query, int(after), _END if upto is None else int(upto), limit, newest_first)
    return found if limit is None else islice(found, max(limit, 0))


def read_by_id(lines: Lines, event_id: str) -> Recorded | None:
    sql = f"SELECT {_COLUMNS} FROM events WHERE id = ?"
    records = _until_it_stands(lines, lambda: lines.index().fetch(sql, (event_id,)))[1]
    return records[0] if records else None


def _read_all(
    lines: Lines, query: Query, low: int, high: int, limit: int | None, newest_first: bool
) -> Iterator[Recorded]:
    left = limit
    by_person = bool(query.actor or query.correlation_id)
    size = min(PAGE_ROWS, 64 if limit is None else max(limit, 1))
    while left is None or left > 0:
        rows, records = _page(lines, query, low, high, size, newest_first)
        for recorded in records:
            if not by_person or query.matches_person(recorded.event):
                yield recorded
                if left is not None:
                    left -= 1
                    if left == 0:
                        return
        if len(rows) < size:
            return
        size = PAGE_ROWS
        if newest_first:
            high = rows[-1][0] - 1
        else:
            low = rows[-1][0]


def _page(
    lines: Lines, query: Query, low: int, high: int, size: int, newest_first: bool
) -> tuple[list[Row], list[Recorded]]:
    def wanted() -> list[Row]:
        rows = wanted_rows(lines.index(), query, low, high, size, newest_first)
        return rows[::-1] if newest_first else rows  # upwards, as the lines stand

    rows, records = _until_it_stands(lines, wanted)
    return (rows[::-1], records[::-1]) if newest_first else (rows, records)


def _until_it_stands(lines: Lines, wanted: Callable[[], list[Row]]) -> tuple[list[Row], list[Recorded]]:
    for _ in range(_TRIES):
        try:
            rows = wanted()
            return rows, lines.records(rows)
        except (Moved, IndexBroken):
            lines.refresh()
    raise Damaged(
        f"the lines in {lines.events} are not where the index says",
        why="the files change while they are read",
        hint="everlog index rebuild",
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
    # One look into the SQL index for each name: together they are in order and never longer than a page each.
    parts = [f"SELECT * FROM (SELECT events.* FROM events WHERE {column} = ? AND {shared} {tail})"] * len(ids)
    each: list[Any] = [value for number in ids for value in (number, *bounds, size)]
    united = " UNION ALL ".join(parts)
    return index.fetch(f"SELECT {_COLUMNS} FROM ({united}) AS events {tail}", (*each, size))


def _plan(index: Index, query: Query) -> tuple[str, list[Any], str, list[int]] | None:
    """Conditions, their values, and the column to go by with its numbers; None when nothing can match."""
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
    """The scopes that are this one or lie below it. "0" is the character after "/"."""
    rows = index.fetch(
        "SELECT name_id FROM names WHERE family = ? AND (name = ? OR (name >= ? AND name < ?))",
        (SCOPE, prefix, prefix + "/", prefix + "0"),
    )
    return [row[0] for row in rows]


def read_places(lines: Lines, after: Position) -> Iterator[Packed | Purged]:
    """Every place after one, as the bytes that are hashed, what is left of purged events included."""
    low = int(after)
    while True:
        rows, records = _page(lines, EVERYTHING, low, _END, PAGE_ROWS, newest_first=False)
        last = rows[-1][0] if len(rows) == PAGE_ROWS else _END
        gone = lines.index().fetch(
            "SELECT position, purged.sequence, id, origin, origin_seq, hash, previous, coalesce(reserved, 0)"
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
        _payload(event) if event.salt else b"",
        event.salt,
        event.signature,
        event.path,
    )


def _payload(event: Event) -> bytes:
    try:
        return payload_bytes(event.payload)
    except NotCanonical:
        return msgspec.json.encode(event.payload)  # verify says what is wrong with it
