"""Read records by query: choose the index, and filter the events.

A stream is read along its own index. Types and scopes are found through the marks, block by block; everything else
is a scan. The order is always that of positions, so a filter never changes it (G6). If an index is damaged, the rest
is read in order of positions, without it. So damage of an index costs time but no event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise

from everlog.core.event import Recorded
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.lost import lost
from everlog.stores.sqlite.groups import COLUMNS, BadRow, Fetch, StoredGroup, claimed_places, id_token
from everlog.stores.sqlite.recent import Recent
from everlog.stores.sqlite.scan import AT, END, head_of, windows

STREAM, TYPE, SCOPE = 0, 1, 2
"""The families of names."""

BLOCK = 128
# Blocks looked up at once.
_BLOCKS_AT_ONCE = 64
# Events of a stream that are looked up at once. Each may be in another group.
_PLACES_AT_ONCE = 128


class Suspicion(Exception):
    """An index leads to an event that is not there: the rest must be read without it."""


def read_pieces(
    fetch: Fetch,
    query: Query,
    *,
    after: int,
    upto: int | None,
    limit: int | None,
    newest_first: bool,
    recent: Recent,
) -> Iterator[list[Recorded]]:
    """Return the records that match, in lists that are not empty."""
    left = END if limit is None else limit
    if left <= 0:
        return
    for records in _matching(fetch, query, after, END if upto is None else upto, left, newest_first, recent):
        if len(records) >= left:
            yield records[:left]
            return
        left -= len(records)
        yield records


def _matching(
    fetch: Fetch, query: Query, low: int, high: int, size: int, newest_first: bool, recent: Recent
) -> Iterator[list[Recorded]]:
    """Return lists of matching records. `size` is how many are wanted: as many are looked at first."""
    if query == EVERYTHING:
        yield from _scanned(fetch, query, low, high, size, newest_first, recent.file)
        return
    try:
        if query.stream:
            pieces = _of_stream(fetch, query, low, high, size, newest_first, recent)
        else:
            high = min(high, head_of(fetch))  # what comes later may have types and scopes that are looked up below
            pieces = _marked(fetch, query, low, high, newest_first, recent.file)
        for records in pieces:
            if newest_first:
                high = records[-1].position - 1
            else:
                low = records[-1].position
            found = [recorded for recorded in records if query.matches(recorded)]
            if found:
                yield found
    except (Suspicion, Damaged) as error:
        if isinstance(error, Damaged) and "position" in error.details and not query.stream:
            raise
        yield from _scanned(fetch, query, low, high, END, newest_first, recent.file)


def _scanned(
    fetch: Fetch, query: Query, low: int, high: int, size: int, newest_first: bool, file: str
) -> Iterator[list[Recorded]]:
    for records in _all(fetch, low, high, size, newest_first, file):
        found = records if query == EVERYTHING else [recorded for recorded in records if query.matches(recorded)]
        if found:
            yield found


def _all(fetch: Fetch, low: int, high: int, size: int, newest_first: bool, file: str) -> Iterator[list[Recorded]]:
    """Return all records of a range, in lists that are not empty."""
    for window in windows(fetch, low, high, size=size, newest_first=newest_first, file=file):
        records: list[Recorded] = []
        for group in reversed(window.groups) if newest_first else window.groups:
            try:
                found = _within(group, max(low, window.low), min(high, window.high))
            except BadRow as error:
                if records:
                    yield records
                raise lost(group.first, group.last, why=str(error), file=file) from error
            records += reversed(found) if newest_first else found
        if records:
            yield records


def _within(group: StoredGroup, low: int, high: int) -> list[Recorded]:
    """Return the records of a group above `low` up to `high`."""
    if group.first > low and group.last <= high:
        return group.records()
    return group.records_at(range(max(low, group.first - 1) + 1, min(high, group.last) + 1))


# ---- a stream

_PLACES = (
    "SELECT sequence, position FROM stream_places WHERE stream = ? AND sequence > ? AND sequence < ?"
    " AND position > ? AND position <= ? ORDER BY sequence {} LIMIT ?"
)


def _of_stream(
    fetch: Fetch, query: Query, low: int, high: int, size: int, newest_first: bool, recent: Recent
) -> Iterator[list[Recorded]]:
    """Return a stream's events. Where they are is known from the index, and of the newest ones from memory."""
    # The newest ones first: they move into the index.
    newest = [place for place in recent.places(fetch, query.stream) if low < place[1] <= high]
    size = min(size, _PLACES_AT_ONCE)
    seen = 0
    for places in _runs_of_stream(fetch, query.stream, low, high, newest, size, newest_first):
        sequences = [*([seen] if seen else []), *[sequence for sequence, _ in places]]
        if any(abs(following - before) != 1 for before, following in pairwise(sequences)):
            raise Suspicion
        seen = sequences[-1]
        records = records_at(fetch, [position for _, position in places])
        if newest_first:
            records.reverse()
        if [(recorded.sequence, recorded.position) for recorded in records] != places:
            raise Suspicion
        if any(recorded.event.stream != query.stream for recorded in records):
            raise Suspicion
        yield records


def _runs_of_stream(
    fetch: Fetch, stream: str, low: int, high: int, newest: list[tuple[int, int]], size: int, newest_first: bool
) -> Iterator[list[tuple[int, int]]]:
    """Return the sequences and positions of a stream, in lists."""
    number = name_ids(fetch, STREAM, [stream])
    above, below = 0, newest[0][0] if newest else END  # of sequences
    if newest_first:
        newest = newest[::-1]
        for start in range(0, len(newest), size):
            yield newest[start : start + size]
    while number:
        order = "DESC" if newest_first else "ASC"
        places = fetch(_PLACES.format(order), (number[0], above, below, low, high, size))
        if places:
            yield places
            above, below = (above, places[-1][0]) if newest_first else (places[-1][0], below)
        if len(places) < size:
            break
    if not newest_first:
        for start in range(0, len(newest), size):
            yield newest[start : start + size]


def records_at(fetch: Fetch, positions: Sequence[int]) -> list[Recorded]:
    """Return the records at some positions, in order, as far as they are there."""
    wanted, found = set(positions), []
    for row in fetch(AT, (json.dumps(list(positions)),)):
        try:
            group = with_holes(fetch, StoredGroup(row))
            found += group.records_at({place for place in wanted if group.first <= place <= group.last})
        except BadRow:
            raise Suspicion from None
    return found


def with_holes(fetch: Fetch, group: StoredGroup) -> StoredGroup:
    """Give a group that a purge has changed the hashes of what is gone."""
    if not group.whole:
        group.know(dict(fetch(_HASHES, (group.first, group.last))))
    return group


_HASHES = "SELECT position, hash FROM purged WHERE position BETWEEN ? AND ?"


# ---- types and scopes


def _marked(
    fetch: Fetch, query: Query, low: int, high: int, newest_first: bool, file: str
) -> Iterator[list[Recorded]]:
    """Return the records of all blocks that may have a match."""
    marked: tuple[int, list[int]] | None = None
    if query.types:
        marked = TYPE, name_ids(fetch, TYPE, sorted(query.types))
    elif query.scope:
        marked = SCOPE, scope_ids(fetch, query.scope)
    if marked is None:
        ranges = iter([(low, high)])
    else:
        ranges = _marked_ranges(fetch, *marked, low, high, newest_first)
    for first, last in ranges:
        yield from _all(fetch, first, last, END, newest_first, file)


def _marked_ranges(
    fetch: Fetch, family: int, ids: list[int], after: int, upto: int, newest_first: bool
) -> Iterator[tuple[int, int]]:
    """Return ranges of positions (low exclusive, high inclusive) whose blocks are marked; adjacent ones are
    joined."""
    low_block, high_block = (after + 1) // BLOCK, upto // BLOCK
    sql = (
        "SELECT DISTINCT block FROM marks WHERE family = ? AND name_id IN (SELECT value FROM json_each(?))"
        f" AND block >= ? AND block <= ? ORDER BY block {'DESC' if newest_first else 'ASC'} LIMIT ?"
    )
    while low_block <= high_block:
        values = (family, json.dumps(ids), low_block, high_block, _BLOCKS_AT_ONCE)
        blocks = [row[0] for row in fetch(sql, values)]
        if not blocks:
            return
        for first, last in _runs(sorted(blocks), newest_first):
            yield max(after, first * BLOCK - 1), min(upto, last * BLOCK + BLOCK - 1)
        if newest_first:
            high_block = blocks[-1] - 1
        else:
            low_block = blocks[-1] + 1


def _runs(blocks: list[int], newest_first: bool) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for block in blocks:
        if runs and block == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], block)
        else:
            runs.append((block, block))
    return runs[::-1] if newest_first else runs


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


# ---- one event

_BLOCK_OF_ID = (
    f"SELECT block * {BLOCK}, block * {BLOCK} + {BLOCK - 1} FROM id_blocks WHERE first_id <= ?"
    " ORDER BY first_id DESC LIMIT 1"
)
_BY_ID = (
    f"SELECT {COLUMNS} FROM groups WHERE first >= coalesce((SELECT max(first) FROM groups WHERE first <= ?), 0)"
    " AND first <= ? AND instr(events, ?)"
)


def find_record(fetch: Fetch, event_id: str, file: str) -> Recorded | None:
    """Return the record of an id, if the index leads to it."""
    places = fetch("SELECT position, position FROM id_strays WHERE id = ?", (event_id,))
    places = places or fetch(_BLOCK_OF_ID, (event_id,))
    for row in fetch(_BY_ID, (*places[0], id_token(event_id))) if places else ():
        try:
            found = with_holes(fetch, StoredGroup(row)).record_of(event_id)
        except BadRow as error:
            raise lost(*claimed_places(row), why=str(error), file=file) from error
        if found is not None:
            return found
    return None


def get_record(fetch: Fetch, event_id: str, file: str) -> Recorded | None:
    """Return the record of an id. Raise Damaged if it is not found and a position that may have held it is lost."""
    try:
        found = find_record(fetch, event_id, file)
        if found is None:
            for first, last in fetch(_BLOCK_OF_ID, (event_id,)):
                for _ in windows(fetch, max(first - 1, 0), last, size=BLOCK, file=file):
                    pass
        return found
    except Damaged as error:
        if "position" in error.details:
            raise
    for window in windows(fetch, 0, END, file=file):  # the index cannot be read
        for group in window.groups:
            try:
                found = group.record_of(event_id)
            except BadRow as error:
                raise lost(group.first, group.last, why=str(error), file=file) from error
            if found is not None:
                return found
    return None
