"""Damage of the database itself: what `verify` asks of this store beside the events."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing

import msgspec

from everlog.core.codec import assemble, header_hash
from everlog.core.event import START, Position
from everlog.stores.contract import Identity, Problem
from everlog.stores.shelf_rows import TABLE as SHELF_TABLE
from everlog.stores.sqlite.careful import Fetch
from everlog.stores.sqlite.making import identity_hash
from everlog.stores.sqlite.queries import BLOCK, INDEXED, PAGE_ROWS, SCOPE, STREAM, TYPE
from everlog.stores.text_rows import TABLES as TEXT_TABLES


def problems(fetch: Fetch, schema: str) -> Iterator[Problem]:
    """Everything that is wrong with the database; `schema` is what it was made by."""
    for (found,) in fetch("PRAGMA integrity_check(20)", ()):
        if found != "ok":
            yield Problem(START, "database_damaged", found)
    yield from _schema_problems(fetch, schema)
    yield from _identity_problems(fetch)
    yield from state_problems(fetch)
    try:
        yield from _column_problems(fetch)
    except (TypeError, ValueError) as error:
        # A damaged page can hold what no column allows, such as NULL where there must be a name.
        yield Problem(START, "database_damaged", f"its tables hold impossible values: {error}")


def _identity_problems(fetch: Fetch) -> Iterator[Problem]:
    """Who the log is must be as it was made."""
    for (digest,) in fetch("SELECT hash FROM state WHERE name = 'identity'", ()):
        rows = fetch("SELECT log_id, origin, epoch, created_us FROM identity", ())
        if [identity_hash(Identity(*row)) for row in rows] != [digest]:
            yield Problem(START, "identity_changed", "the log's id, origin, epoch or time of making is not as it was")


def _schema_problems(fetch: Fetch, schema: str) -> Iterator[Problem]:
    """Tables and triggers must be as they were made: a trigger that does nothing protects nothing."""
    query = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(schema)
        expected = dict(model.execute(query).fetchall())
        for statement in (SHELF_TABLE, *TEXT_TABLES):
            model.execute(statement)
        may_be_there = dict(model.execute(query).fetchall())
    there = dict(fetch(query, ()))
    for name in sorted(expected.keys() - there.keys()):
        yield Problem(START, "trigger_missing", f"{name}, which belongs to every log, is gone")
    for name in sorted(there.keys() - may_be_there.keys()):
        yield Problem(START, "schema_changed", f"{name} was added to the database by somebody")
    for name in sorted(there.keys() & may_be_there.keys()):
        if there[name] != may_be_there[name]:
            yield Problem(START, "schema_changed", f"{name} is not as it was made")


def state_problems(fetch: Fetch) -> Iterator[Problem]:
    """The end of every chain must be the event that the state remembers: cheap, so it is asked at every opening."""
    ends = fetch("SELECT name, number, hash, position FROM state WHERE name >= 'origin ' AND name < 'origin!'", ())
    for name, number, digest, position in ends:
        found = [header_hash(row[0]) for row in fetch(_HEADER_AT, (position,))]
        found += [row[0] for row in fetch("SELECT hash FROM purged WHERE position = ?", (position,))]
        if not found:
            reason = f"event {number} of {name} was recorded here and is not there any more"
            yield Problem(position, "log_cut_off", reason)
        elif found != [digest]:
            yield Problem(position, "state_disagrees", f"this is not event {number} of {name} as it was recorded")
    ((remembered, last, reserved),) = fetch(
        "SELECT (SELECT position FROM state WHERE name = 'clock'), (SELECT max(position) FROM events),"
        " (SELECT max(reserved) FROM purges)",
        (),
    )
    head = max(last or 0, reserved or 0)
    if head != (remembered or 0):
        yield Problem(Position(head), "state_disagrees", f"the log remembers {remembered or 0} as its last position")
    if last is not None and not ends:
        yield Problem(START, "state_disagrees", "there are events, and the end of no chain is remembered")


_HEADER_AT = "SELECT CAST(header AS BLOB) FROM events WHERE position = ?"


def _column_problems(fetch: Fetch) -> Iterator[Problem]:
    """Columns and marks that queries use must say what the header says."""
    names = {(family, name_id): name for name_id, family, name in fetch("SELECT * FROM names", ())}
    marks = {tuple(row) for row in fetch("SELECT family, name_id, block FROM marks", ())}
    strays = set(fetch("SELECT id, position FROM id_strays", ()))
    id_blocks = fetch("SELECT first_id, block FROM id_blocks ORDER BY first_id", ())
    lamport, ends = _known_ends(fetch)
    after = Position(0)
    while rows := fetch(
        "SELECT position, stream, type, scope, CAST(header AS BLOB) FROM events WHERE position > ?"
        " ORDER BY position LIMIT ?",
        (after, PAGE_ROWS),
    ):
        for position, stream, kind, scope, header in rows:
            try:
                event = assemble(header, "", b"")
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # verify itself reports a header that cannot be read
            for family, name_id, said in (
                (STREAM, stream, event.stream),
                (TYPE, kind, event.type),
                (SCOPE, scope, event.scope),
            ):
                if names.get((family, name_id)) != said:
                    yield Problem(position, "index_disagrees", f"the row is filed under another name than {said!r}")
                if family != STREAM and (family, name_id, position // BLOCK) not in marks:
                    yield Problem(position, "index_disagrees", f"the mark for {said!r} is missing")
            if event.lamport > lamport:
                yield Problem(position, "state_disagrees", f"its clock value is above {lamport}, the clock's own")
            if event.origin_seq > ends.get(event.origin, 0):
                reason = f"it comes after the end that is remembered of the chain of {event.origin}"
                yield Problem(position, "state_disagrees", reason)
            place = bisect_right(id_blocks, event.id, key=lambda row: row[0]) - 1
            if (event.id, position) not in strays and (place < 0 or id_blocks[place][1] != position // BLOCK):
                yield Problem(position, "index_disagrees", f"the id {event.id} leads to another place")
            strays.discard((event.id, position))
        after = rows[-1][0]

    yield from _stream_problems(fetch)
    purged = {position for (position,) in fetch("SELECT position FROM purged", ())}
    for event_id, position in sorted(strays, key=lambda stray: stray[1]):
        if position not in purged:
            yield Problem(position, "index_disagrees", f"the id {event_id} is filed here and is not here")


def _stream_problems(fetch: Fetch) -> Iterator[Problem]:
    """The index of streams must lead to every event that it should hold, and to nothing else."""
    missing = fetch(
        "SELECT events.position FROM events LEFT JOIN stream_places AS place ON place.stream = events.stream AND"
        f" place.sequence = events.sequence WHERE events.position <= {INDEXED}"
        " AND place.position IS NOT events.position LIMIT 20",
        (),
    )
    for (position,) in missing:
        yield Problem(position, "index_disagrees", "its stream's index does not lead to it")
    false = fetch(
        "SELECT place.position FROM stream_places AS place LEFT JOIN events ON events.position = place.position"
        " WHERE events.stream IS NOT place.stream OR events.sequence IS NOT place.sequence LIMIT 20",
        (),
    )
    for (position,) in false:
        yield Problem(position, "index_disagrees", "the index of a stream leads here, and its event is not here")


def _known_ends(fetch: Fetch) -> tuple[int, dict[str, int]]:
    """The clock, and how far each origin's chain goes, as the state remembers them."""
    state = dict(fetch("SELECT name, number FROM state", ()))
    prefix = "origin "
    return state.get("clock", 0), {name[len(prefix) :]: end for name, end in state.items() if name.startswith(prefix)}
