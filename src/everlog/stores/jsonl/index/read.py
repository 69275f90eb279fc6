"""Read through the index: find the lines of a query, and read them.

Adjacent lines are read and decoded together. The lines must match the index: if a checksum differs, the file was
replaced meanwhile (a purge, a merge), and the page is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

from everlog.core.codec import HEADER_FIELDS, Packed, encode_header
from everlog.core.event import START, Event, Position, Purged, Recorded
from everlog.core.group import GROUP_MAX, GroupFacts
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged, HistoryChanged
from everlog.files import Files
from everlog.stores.jsonl.folder import disk_errors
from everlog.stores.jsonl.index.groups import LineGroup, SignedGroups, hash_of
from everlog.stores.jsonl.index.query import COLUMNS, Row, damage_among, wanted_rows
from everlog.stores.jsonl.index.schema import END, Damage, Index, IndexBroken, key_of
from everlog.stores.jsonl.lines import BadLine, event_line_of, true_checksum
from everlog.stores.jsonl.many_lines import Values, read_events, scan_lines
from everlog.stores.jsonl.read_only import damage_error

PAGE_ROWS = 1000
_GAP_BYTES_MAX = 16_384
_TRIES = 8

_HEADER_LENGTH = len(HEADER_FIELDS)
_SIGNATURE = _HEADER_LENGTH + 2  # after payload and salt
_ORIGIN, _ORIGIN_SEQ, _PREVIOUS, _SCOPE, _LAMPORT = map(
    HEADER_FIELDS.index, ("origin", "origin_seq", "previous", "scope", "lamport")
)
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
        groups = self.groups()
        for run, data in self.runs(rows):
            refuse_moved(run, data)
            for start in range(0, len(run), GROUP_MAX):
                some = run[start : start + GROUP_MAX]
                events = _events(each_line(some, data, run[0][5]), groups)
                for (position, sequence, received_us, *_), event in zip(some, events, strict=True):
                    found.append(Recorded(Position(position), sequence, received_us, event))
        return found

    def values(self, rows: list[Row]) -> list[Values]:
        """Return the events of rows as their lines have them, with every commitment."""
        found: list[Values] = []
        for run, data in self.runs(rows):
            refuse_moved(run, data)
            try:
                found += scan_lines(each_line(run, data))
            except BadLine as error:
                raise LineMoved(run[0]) from error
        return found

    def groups(self) -> SignedGroups | None:
        """Return the signed groups of the log, or None if there are none, as nearly always."""
        return SignedGroups(self.index(), self.values) if self.index().has_groups() else None

    def row_of(self, event_id: str) -> list[Row]:
        asked = f"SELECT {COLUMNS} FROM events WHERE position = (SELECT position FROM ids WHERE id = ?)"
        return self.index().fetch(asked, (key_of(event_id),))

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


def _events(lines: list[bytes], groups: SignedGroups | None) -> list[Event]:
    try:
        found = read_events(b"\n".join(lines), LineGroup(lines))
        if len(found) != len(lines):
            raise LineMoved
    except BadLine:
        try:
            found = [event_line_of(line).event() for line in lines]
        except BadLine as error:
            raise LineMoved from error
    return found if groups is None else groups.given(found, lines)


def refuse_moved(rows: list[Row], data: bytes) -> None:
    """Raise LineMoved if a line is not the one that the index has."""
    for row, line in zip(rows, each_line(rows, data), strict=True):
        if true_checksum(line) != row[3]:
            raise LineMoved(row)


def each_line(rows: list[Row], data: bytes, begin: int | None = None) -> list[bytes]:
    """Return the lines of rows. The bytes begin at `begin` in the file, or with the first line."""
    start = rows[0][5] if begin is None else begin
    return [data[row[5] - start : row[5] - start + row[6]] for row in rows]


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
    records = until_unchanged(lines, lambda: lines.records(lines.row_of(event_id)))
    if not records:
        lost = lines.index().fetch("SELECT position FROM missing WHERE id = ?", (event_id,))
        # An unreadable line may be this event.
        low, high = (lost[0][0] - 1, lost[0][0]) if lost else (0, END)
        lines.refuse_damage(low, high)
    return records[0] if records else None


def hash_by_id(lines: Lines, event_id: str) -> bytes | None:
    """Return the hash of an event that is here."""
    values = until_unchanged(lines, lambda: lines.values(lines.row_of(event_id)))
    if not values:
        read_by_id(lines, event_id)  # raises Damaged if it may be lost
        return None
    return hash_of(values[0])


def removable(lines: Lines, stream: str) -> tuple[list[Purged], set[str]]:
    """Return what a purge of a stream would leave, and the scopes of its events."""
    removed, scopes = [], set()
    groups = lines.groups()
    for rows, every in _pages_of_values(lines, Query(stream=stream)):
        for row, values in zip(rows, every, strict=True):
            origin, number = values[_ORIGIN], values[_ORIGIN_SEQ]
            slot = (Position(row[0]), row[1], values[0], origin, number)
            hashes = (hash_of(values), values[_PREVIOUS], values[_LAMPORT])
            alone = values[_SIGNATURE]  # it has its own proof
            facts = None if groups is None or alone else groups.of(origin, number)
            signed = {} if facts is None else _signed(facts)
            removed.append(Purged(*slot, *hashes, **signed))
            scopes.add(values[_SCOPE])
    return removed, scopes


def _signed(facts: GroupFacts) -> dict[str, Any]:
    return {"signature": facts.signature, "signed_with": (facts.first_seq, facts.count)}


def _pages_of_values(lines: Lines, query: Query) -> Iterator[tuple[list[Row], list[Values]]]:
    """Return the rows of all events that match, and the events as their lines have them. Stop at damage."""
    low, epoch = 0, ""
    while True:

        def look() -> tuple[list[Row], list[Values], Damage | None]:
            index = lines.index()
            rows = wanted_rows(index, query, low, END, PAGE_ROWS, newest_first=False)  # noqa: B023 - called at once
            damage = damage_among(index, rows, low, END, PAGE_ROWS)  # noqa: B023 - likewise
            return rows, lines.values(rows), damage

        rows, values, damage = until_unchanged(lines, look)
        epoch = lines.same_epoch(epoch)
        if damage is not None:
            raise lines.error(damage)
        yield rows, values
        if len(rows) < PAGE_ROWS:
            return
        low = rows[-1][0]


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
    lines: Lines, query: Query, low: int, high: int, size: int, newest_first: bool
) -> tuple[list[Row], list[Recorded], Damage | None]:
    """Return the rows of a page, their events, and the damage at which the page ends."""

    def look() -> tuple[list[Row], list[Recorded], Damage | None]:
        index = lines.index()
        rows = wanted_rows(index, query, low, high, size, newest_first)
        damage = damage_among(index, rows, low, high, size, newest_first)
        if damage is not None:
            rows = [row for row in rows if (row[0] > damage.last if newest_first else row[0] < damage.first)]
        if newest_first:
            return rows, lines.records(rows[::-1])[::-1], damage  # ascending, as in the file
        return rows, lines.records(rows), damage

    return until_unchanged(lines, look)


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


def read_slots(lines: Lines, after: Position) -> Iterator[Packed | Purged]:
    """Return every slot after a position, as the bytes that are hashed, including purged ones."""
    low, epoch = int(after), ""
    while True:

        def look() -> tuple[list[Row], list[Packed | Purged]]:
            index = lines.index()
            rows = wanted_rows(index, EVERYTHING, low, END, PAGE_ROWS, newest_first=False)  # noqa: B023 - called at once
            last = rows[-1][0] if len(rows) == PAGE_ROWS else END
            return rows, _slots(lines, rows, low, last)  # noqa: B023 - likewise

        rows, places = until_unchanged(lines, look)
        epoch = lines.same_epoch(epoch)
        yield from places
        if len(rows) < PAGE_ROWS:
            return
        low = rows[-1][0]


def _slots(lines: Lines, rows: list[Row], low: int, last: int) -> list[Packed | Purged]:
    groups = lines.groups()
    places: list[Packed | Purged] = []
    for (position, sequence, received_us, *_), values in zip(rows, lines.values(rows), strict=True):
        header = encode_header(values[:_HEADER_LENGTH])
        payload, salt, signature, path, erased_by = values[_HEADER_LENGTH:]
        facts = None if groups is None or signature else groups.of(values[_ORIGIN], values[_ORIGIN_SEQ])
        signed_with = (0, 0)
        if groups is not None and facts is not None:
            signature, signed_with = facts.signature, (facts.first_seq, facts.count)
            path = groups.path(facts, values[_ORIGIN_SEQ])
        slot = (Position(position), sequence, received_us, header, payload, salt)
        places.append(Packed(*slot, signature, path, erased_by, signed_with))
    gone = lines.index().fetch(
        "SELECT position, purged.sequence, id, origin, origin_seq, hash, previous, lamport,"
        " coalesce(reserved, 0), hash_format"
        " FROM purged LEFT JOIN purges USING (purge)"
        " WHERE position > ? AND position <= ? ORDER BY position",
        (low, last),
    )
    for row in gone:
        facts = None if groups is None else groups.of_stub(*row[3:6])
        places.append(Purged(*row, **({} if facts is None else _signed(facts))))
    if gone:
        places.sort(key=lambda place: place.position)
    return places
