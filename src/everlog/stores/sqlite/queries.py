"""Read records by query: choose the index, and filter the rows.

A stream is read along its own index. Types and scopes are found through the marks, block by block; everything else
is a scan. The order is always that of positions, so a filter never changes it (G6).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from everlog.core.codec import Packed, assemble
from everlog.core.event import Position, Purged, Recorded, microseconds
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.contract import Block
from everlog.stores.lost import lost
from everlog.stores.sqlite.damaged_read import (
    HEAD,
    Accounted,
    Fetch,
    Suspicion,
    careful_rows,
    in_order,
    nothing_missing,
)

STREAM, TYPE, SCOPE = 0, 1, 2
"""The families of names."""

BLOCK = 128
PAGE_ROWS = 1000
SLAB_ROWS = 5000
# Blocks looked up at once; with all their rows they are at most a few megabytes.
_BLOCKS_AT_ONCE = 64
_PART = 1024

# The texts as bytes: one that is not UTF-8 any more is damage of one row, and must not hide the rows around it.
COLUMNS = (
    "events.position, events.sequence, received_us, CAST(header AS BLOB), CAST(payload AS BLOB), salt"  # of `events`
)
_BY_POSITION = f"SELECT {COLUMNS} FROM events WHERE position > ? AND position <= ?"

INDEXED = "coalesce((SELECT number FROM state WHERE name = 'indexed'), 0)"
"""The position up to which the index of streams and the table of claims are complete."""

# A stream's events in its index, and those behind it. LEFT, because the order of the tables is the plan, and because
# an entry of the index whose event is not there is a sign of damage: its columns are NULL.
_BOUNDS = "sequence > ? AND {0}sequence < ? AND {0}position > ? AND {0}position <= ?"
_IN_INDEX = (
    f"SELECT {COLUMNS} FROM stream_places AS place LEFT JOIN events ON events.position = place.position"
    " WHERE place.stream = ? AND place." + _BOUNDS.format("place.") + " AND (events.position IS NULL OR (TRUE{0}))"
)
_IN_TAIL = f"SELECT {COLUMNS} FROM events WHERE position > {INDEXED} AND stream = ? AND " + _BOUNDS.format("")
_END = 2**62


def read_records(
    fetch: Fetch,
    query: Query,
    *,
    after: Position,
    upto: Position | None,
    limit: int | None,
    newest_first: bool,
    accounted: Accounted,
) -> Iterator[Recorded]:
    left = limit
    size = PAGE_ROWS if limit is None else min(PAGE_ROWS, limit)
    for rows in _pages(fetch, query, after, upto, size, newest_first, accounted):
        if left is not None:
            rows = rows[:left]
            left -= len(rows)
        yield from records(fetch, rows, accounted.file)
        if left == 0:
            return


def scan_blocks(
    fetch: Fetch, query: Query, *, after: Position, upto: Position | None, accounted: Accounted
) -> Iterator[Block]:
    """Return what `read_records` returns, as columns of stored bytes."""
    for rows in _pages(fetch, query, after, upto, SLAB_ROWS, newest_first=False, accounted=accounted):
        positions, sequences, received_us, headers, payloads, salts = zip(*rows, strict=True)
        block = Block(positions, sequences, received_us, headers, (), payloads, salts)
        proofs = read_proofs(fetch, rows)
        if proofs:
            found = [proofs.get(position, (b"", ())) for position in positions]
            block = block._replace(
                signatures=[signature for signature, _ in found], paths=[b"".join(path) for _, path in found]
            )
        yield block


def _pages(
    fetch: Fetch,
    query: Query,
    after: Position,
    upto: Position | None,
    size: int,
    newest_first: bool,
    accounted: Accounted,
) -> Iterator[list[Any]]:
    """Return the matching rows, one list per non-empty page. After a sign of damage, `careful_rows` reads the
    rest."""
    low, high = after, Position(_END) if upto is None else upto
    if size <= 0:
        return
    try:
        plan = _plan(fetch, query)
        if plan is None:
            return
        pages = _stream_pages if query.stream else _position_pages
        for rows in pages(fetch, plan, low, high, size, newest_first, accounted):
            if newest_first:
                high = Position(rows[-1][0] - 1)
            else:
                low = rows[-1][0]
            yield rows
    except (Suspicion, Damaged):
        for rows in careful_rows(fetch, _BY_POSITION, low, high, newest_first=newest_first, file=accounted.file):
            yield from _matching(fetch, rows, query, accounted)


def _matching(fetch: Fetch, rows: list[Any], query: Query, accounted: Accounted) -> Iterator[list[Any]]:
    """Return the rows whose headers match: the columns may be damaged."""
    if query == EVERYTHING:
        yield rows
        return
    found: list[Any] = []
    try:
        for row, recorded in zip(rows, records(fetch, rows, accounted.file), strict=True):
            if query.matches(recorded):
                found.append(row)
    except Damaged:
        if found:
            yield found
        raise
    if found:
        yield found


class _Plan(NamedTuple):
    conditions: str
    values: tuple[Any, ...]
    stream: int  # the stream whose index leads, or 0
    marked: tuple[int, str] | None  # the family and names whose marks lead


def _position_pages(
    fetch: Fetch, plan: _Plan, after: Position, last: Position, size: int, newest_first: bool, accounted: Accounted
) -> Iterator[list[Any]]:
    ranges = _marked_ranges(fetch, plan.marked, after, last, newest_first) if plan.marked else iter([(after, last)])
    if plan.conditions:
        ranges = _in_parts(fetch, ranges, accounted, newest_first)
    order = " ORDER BY position DESC LIMIT ?" if newest_first else " ORDER BY position LIMIT ?"
    for low, high in ranges:
        while True:
            rows = fetch(_BY_POSITION + plan.conditions + order, (low, high, *plan.values, size))
            whole = len(rows) < size  # all of the range was looked at
            reached = low if whole or not newest_first else Position(rows[-1][0] - 1)
            last = high if whole or newest_first else rows[-1][0]
            if plan.conditions:
                sound = in_order(rows) and accounted.all_there(fetch, reached, last)
            else:
                sound = nothing_missing(fetch, rows, reached, last)
            if not sound:
                raise Suspicion
            if rows:
                yield rows
            if whole:
                break
            if newest_first:
                high = reached
            else:
                low = last


def _stream_pages(
    fetch: Fetch, plan: _Plan, after: Position, last: Position, size: int, newest_first: bool, accounted: Accounted
) -> Iterator[list[Any]]:
    """Return a stream's events from its index and from the tail after it, page by page.

    Events move from the tail into the index. So at the end of the index a forward read searches the index again, in
    the same statement as the tail. A backward read has read the tail before.
    """
    if accounted.indexed is None:
        ((accounted.indexed,),) = fetch(f"SELECT {INDEXED}", ())
    if not accounted.all_there(fetch, max(after, accounted.indexed), last):
        raise Suspicion
    low, high, seen = 0, _END, 0
    indexed = _IN_INDEX.replace("{0}", plan.conditions)
    behind = _IN_TAIL + plan.conditions
    if newest_first:
        steps = [behind + " ORDER BY sequence DESC LIMIT ?", indexed + " ORDER BY place.sequence DESC LIMIT ?"]
    else:
        both = f"SELECT * FROM ({indexed}) UNION ALL SELECT * FROM ({behind}) ORDER BY 2 LIMIT ?"
        steps = [indexed + " ORDER BY place.sequence LIMIT ?", both]
    for step in steps:
        while True:
            bounds = (plan.stream, low, high, after, last, *plan.values)
            rows = fetch(step, (*bounds, *bounds, size) if "UNION ALL" in step else (*bounds, size))
            if rows:
                if any(row[0] is None for row in rows) or not (plan.conditions or _follow(rows, seen)):
                    raise Suspicion
                seen = rows[-1][1]
                yield rows
                if newest_first:
                    high = rows[-1][1]
                else:
                    low = rows[-1][1]
            if len(rows) < size:
                break


def _follow(rows: list[Any], seen: int) -> bool:
    """Return whether the sequences of a stream's rows have no gap, in either direction, and continue those before."""
    first, last = rows[0][1], rows[-1][1]
    return abs(last - first) == len(rows) - 1 and (not seen or abs(first - seen) == 1)


def records(fetch: Fetch, rows: list[Any], file: str = "") -> Iterator[Recorded]:
    proofs = read_proofs(fetch, rows)
    position = Position(0)
    try:
        for position, sequence, received_us, header, payload, salt in rows:
            if type(sequence) is not int or type(received_us) is not int:
                raise TypeError("its row holds impossible values")
            event = (
                assemble(header, payload, salt, *proofs.get(position, ()))
                if proofs
                else assemble(header, payload, salt)
            )
            yield Recorded(position, sequence, received_us, event)
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
        raise lost(position, position, why=f"the event cannot be read: {error}", file=file) from error


def read_proofs(fetch: Fetch, rows: list[Any]) -> dict[int, tuple[bytes, tuple[bytes, ...]]]:
    """Return the signatures of a page of rows; an unsigned log has none."""
    if not rows:
        return {}
    ends = sorted((rows[0][0], rows[-1][0]))
    found = fetch("SELECT position, signature, path FROM proofs WHERE position BETWEEN ? AND ?", tuple(ends))
    return {position: (signature, _split_path(path)) for position, signature, path in found}


def _split_path(path: bytes) -> tuple[bytes, ...]:
    """Return the hashes of a path, which are stored contiguously."""
    return tuple(path[start : start + 32] for start in range(0, len(path), 32))


_BY_ID = f"SELECT {COLUMNS} FROM events WHERE position BETWEEN ? AND ? AND substr(header, 3, 26) = ?"


_BLOCK_OF_ID = (
    "SELECT block * 128, block * 128 + 127 FROM id_blocks WHERE first_id <= ? ORDER BY first_id DESC LIMIT 1"
)


def find_row(fetch: Fetch, event_id: str) -> list[Any]:
    """Return the row of an id in a list, which is empty if there is none."""
    places = fetch("SELECT position, position FROM id_strays WHERE id = ?", (event_id,))
    places = places or fetch(_BLOCK_OF_ID, (event_id,))
    return fetch(_BY_ID, (*places[0], event_id)) if places else []


def get_record(fetch: Fetch, event_id: str, accounted: Accounted) -> Recorded | None:
    """Return the record of an id. Raise Damaged if it is not found and a position that may have held it is lost."""
    try:
        rows = find_row(fetch, event_id)
        places = [] if rows else fetch(_BLOCK_OF_ID, (event_id,))
        if rows or all(accounted.all_there(fetch, first - 1, last) for first, last in places):
            return next(records(fetch, rows, accounted.file), None)
    except Damaged as error:
        if "position" in error.details:
            raise
    for some in careful_rows(fetch, _BY_POSITION, 0, _END, newest_first=False, file=accounted.file):
        for row in some:
            if row[3][2:28] == event_id.encode():
                return next(records(fetch, [row], accounted.file))
    return None


def name_ids(fetch: Fetch, family: int, names: list[str]) -> list[int]:
    rows = fetch(
        "SELECT name_id FROM names WHERE family = ? AND name IN (SELECT value FROM json_each(?))",
        (family, json.dumps(names)),
    )
    return [row[0] for row in rows]


def scope_ids(fetch: Fetch, prefix: str) -> list[int]:
    """Return the scopes that are equal to or below this one. "0" is the character after "/"."""
    rows = fetch(
        "SELECT name_id FROM names WHERE family = ? AND (name = ? OR (name >= ? AND name < ?))",
        (SCOPE, prefix, prefix + "/", prefix + "0"),
    )
    return [row[0] for row in rows]


def _plan(fetch: Fetch, query: Query) -> _Plan | None:
    """Return the conditions of a query and the marks to search for; None if nothing can match."""
    conditions: list[str] = []
    values: list[Any] = []
    stream, marked = 0, None
    if query.stream:
        found = name_ids(fetch, STREAM, [query.stream])
        if not found:
            return None
        stream = found[0]
    for family, column, ids in (
        (TYPE, "type", name_ids(fetch, TYPE, sorted(query.types)) if query.types else None),
        (SCOPE, "scope", scope_ids(fetch, query.scope) if query.scope else None),
    ):
        if ids is None:
            continue
        if not ids:
            return None
        conditions.append(f" AND {column} IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(ids))
        if marked is None:
            marked = (family, json.dumps(ids))
    if query.kind:
        conditions.append(
            " AND events.stream IN (SELECT name_id FROM names WHERE family = 0 AND name >= ? AND name < ?)"
        )
        values += [query.kind + "/", query.kind + "0"]
    if query.actor:
        conditions.append(" AND json_extract(header, '$[8]') = ?")
        values.append(query.actor)
    if query.correlation_id:
        conditions.append(" AND json_extract(header, '$[12]') = ?")
        values.append(query.correlation_id)
    if query.since is not None:
        conditions.append(" AND received_us >= ?")
        values.append(microseconds(query.since))
    if query.until is not None:
        conditions.append(" AND received_us < ?")
        values.append(microseconds(query.until))
    return _Plan("".join(conditions), tuple(values), stream, marked)


def _marked_ranges(
    fetch: Fetch, marked: tuple[int, str], after: Position, upto: Position, newest_first: bool
) -> Iterator[tuple[Position, Position]]:
    """Return ranges of positions (low exclusive, high inclusive) whose blocks are marked; adjacent ones are
    joined."""
    family, ids = marked
    low_block, high_block = (after + 1) // BLOCK, upto // BLOCK
    order = "DESC" if newest_first else "ASC"
    sql = (
        "SELECT DISTINCT block FROM marks WHERE family = ? AND name_id IN (SELECT value FROM json_each(?))"
        f" AND block >= ? AND block <= ? ORDER BY block {order} LIMIT ?"
    )
    while low_block <= high_block:
        blocks = [row[0] for row in fetch(sql, (family, ids, low_block, high_block, _BLOCKS_AT_ONCE))]
        if not blocks:
            return
        for first, last in _runs(sorted(blocks), newest_first):
            yield (
                Position(max(after, first * BLOCK - 1)),
                Position(min(upto, last * BLOCK + BLOCK - 1)),
            )
        if newest_first:
            high_block = blocks[-1] - 1
        else:
            low_block = blocks[-1] + 1


def _in_parts(
    fetch: Fetch, ranges: Iterator[tuple[Position, Position]], accounted: Accounted, newest_first: bool
) -> Iterator[tuple[Position, Position]]:
    """Return the ranges in parts, each counted, if not done before, while its pages are in SQLite's cache."""
    head = None
    for low, high in ranges:
        if head is None:
            ((head,),) = fetch(f"SELECT {HEAD}", ())
        last = min(high, head)
        if accounted.known_from(low) >= last:
            yield low, high
            continue
        starts = range(low, last, _PART)
        for start in reversed(starts) if newest_first else starts:
            yield Position(start), Position(min(start + _PART, last))


def _runs(blocks: list[int], newest_first: bool) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and block == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], block)
        else:
            runs.append((block, block))
    return runs[::-1] if newest_first else runs


def read_places(fetch: Fetch, after: Position) -> Iterator[Packed | Purged]:
    """Return every slot after a position as stored bytes, including purged ones."""
    while True:
        events = fetch(
            f"SELECT {COLUMNS} FROM events WHERE position > ? ORDER BY position LIMIT ?", (after, PAGE_ROWS)
        )
        last = events[-1][0] if len(events) == PAGE_ROWS else 2**62
        gone = fetch(
            "SELECT position, sequence, id, origin, origin_seq, hash, previous, lamport, reserved, hash_format"
            " FROM purged"
            " WHERE position > ? AND position <= ? ORDER BY position",
            (after, last),
        )
        proofs = read_proofs(fetch, events)
        places: list[Packed | Purged] = [Packed(*row, *proofs.get(row[0], ())) for row in events]
        places += [Purged(*row) for row in gone]
        places.sort(key=lambda place: place.position)
        yield from places
        if len(events) < PAGE_ROWS:
            return
        after = Position(last)
