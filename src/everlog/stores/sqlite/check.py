"""Find damage of the database itself, for `verify`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing

import msgspec

from everlog.core.codec import assemble, header_hash
from everlog.core.event import START, Position
from everlog.stores.contract import Problem
from everlog.stores.small_state_sqlite import TABLE as SHELF_TABLE
from everlog.stores.sqlite.damaged_read import Fetch
from everlog.stores.sqlite.identity import find_identity
from everlog.stores.sqlite.queries import BLOCK, INDEXED, PAGE_ROWS, SCOPE, STREAM, TYPE
from everlog.stores.text_rows import TABLES as TEXT_TABLES


def problems(fetch: Fetch, schema: str) -> Iterator[Problem]:
    """Return everything that is wrong with the database. `schema` is the text that created it."""
    for (found,) in fetch("PRAGMA integrity_check(20)", ()):
        if found != "ok":
            yield Problem(START, "database_damaged", found)
    yield from _schema_problems(fetch, schema)
    yield from _identity_problems(fetch)
    yield from state_problems(fetch)
    try:
        yield from _column_problems(fetch)
    except (TypeError, ValueError) as error:
        # A damaged page can hold values that no column allows, such as NULL for a name.
        yield Problem(START, "database_damaged", f"its tables hold impossible values: {error}")


def _identity_problems(fetch: Fetch) -> Iterator[Problem]:
    """The identity of the log must be unchanged."""
    if not find_identity(fetch)[1]:
        yield Problem(START, "identity_changed", "the log's id, origin, epoch or time of making is not as it was")


def _schema_problems(fetch: Fetch, schema: str) -> Iterator[Problem]:
    """Tables and triggers must be as they were created: a trigger that does nothing protects nothing."""
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
        yield Problem(START, "schema_changed", f"{name} was added to the database")
    for name in sorted(there.keys() & may_be_there.keys()):
        if there[name] != may_be_there[name]:
            yield Problem(START, "schema_changed", f"{name} is not as it was made")


def state_problems(fetch: Fetch) -> Iterator[Problem]:
    """The end of every chain must be the event in the state. This is cheap, so it is checked at every opening."""
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
    """Columns and marks that queries use must match the header."""
    leads = _IdLeads(fetch)
    lamport, ends = _known_ends(fetch)
    after = Position(0)
    while rows := fetch(_ROWS, (after, PAGE_ROWS)):
        marks = _marks(fetch, [(position // BLOCK, kind, scope) for position, _, kind, scope, *_ in rows])
        for position, _, kind, scope, header, stream_name, type_name, scope_name in rows:
            try:
                event = assemble(header, "", b"")
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # verify itself reports a header that cannot be read
            for family, name_id, filed, name in (
                (STREAM, 0, stream_name, event.stream),
                (TYPE, kind, type_name, event.type),
                (SCOPE, scope, scope_name, event.scope),
            ):
                if filed != name:
                    yield Problem(position, "index_disagrees", f"the row is filed under another name than {name!r}")
                if family != STREAM and (family, name_id, position // BLOCK) not in marks:
                    yield Problem(position, "index_disagrees", f"the mark for {name!r} is missing")
            if event.lamport > lamport:
                yield Problem(position, "state_disagrees", f"its clock value is above {lamport}, the clock's own")
            if event.origin_seq > ends.get(event.origin, 0):
                reason = f"it comes after the end that is remembered of the chain of {event.origin}"
                yield Problem(position, "state_disagrees", reason)
            if not leads.lead(event.id, position):
                yield Problem(position, "index_disagrees", f"the id {event.id} leads to another place")
        after = rows[-1][0]

    yield from _stream_problems(fetch)
    yield from sorted(_stray_problems(fetch), key=lambda problem: problem.position)


_NAMED = " LEFT JOIN names AS {0} ON {0}.name_id = events.{0} AND {0}.family = {1}"
_ROWS = (
    "SELECT position, stream, type, scope, CAST(header AS BLOB), stream.name, type.name, scope.name FROM events"
    + _NAMED.format("stream", STREAM)
    + _NAMED.format("type", TYPE)
    + _NAMED.format("scope", SCOPE)
    + " WHERE position > ? ORDER BY position LIMIT ?"
)


def _marks(fetch: Fetch, used: Iterable[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """Return the existing marks, of those that blocks with these types and scopes must have."""
    wanted = {
        (family, name_id, block) for block, *both in used for family, name_id in zip((TYPE, SCOPE), both, strict=True)
    }
    return {
        mark for mark in wanted if fetch("SELECT 1 FROM marks WHERE family = ? AND name_id = ? AND block = ?", mark)
    }


class _IdLeads:
    """The positions in the index of ids. Ids mostly grow with their positions, so one lookup serves a whole block."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._first = self._end = ""  # the ids from one to before the other lead to the block
        self._block: int | None = None

    def lead(self, event_id: str, position: int) -> bool:
        """Return whether the index has the position for the id."""
        if not self._first <= event_id < self._end:
            self._look_up(event_id)
        if self._block == position // BLOCK:
            return True
        return bool(self._fetch("SELECT 1 FROM id_strays WHERE id = ? AND position = ?", (event_id, position)))

    def _look_up(self, event_id: str) -> None:
        found = self._fetch(
            "SELECT first_id, block FROM id_blocks WHERE first_id <= ? ORDER BY first_id DESC LIMIT 1", (event_id,)
        )
        self._first, self._block = found[0] if found else ("", None)
        ((following,),) = self._fetch("SELECT min(first_id) FROM id_blocks WHERE first_id > ?", (event_id,))
        self._end = _ABOVE_ALL_IDS if following is None else following


_ABOVE_ALL_IDS = "~"


def _stray_problems(fetch: Fetch) -> Iterator[Problem]:
    """Each id that is listed separately must be at its listed position, or must have been purged there."""
    after = ""
    while rows := fetch(
        "SELECT id_strays.id, id_strays.position, CAST(header AS BLOB), purged.position FROM id_strays"
        " LEFT JOIN events USING (position) LEFT JOIN purged ON purged.position = id_strays.position"
        " WHERE id_strays.id > ? ORDER BY id_strays.id LIMIT ?",
        (after, PAGE_ROWS),
    ):
        for event_id, position, header, purged in rows:
            if purged is None and (header is None or _id_in(header) != event_id):
                yield Problem(position, "index_disagrees", f"the id {event_id} is filed here and is not here")
        after = rows[-1][0]


def _id_in(header: bytes) -> str | None:
    try:
        return assemble(header, "", b"").id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _stream_problems(fetch: Fetch) -> Iterator[Problem]:
    """The index of streams must list exactly the events that it should hold."""
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
    """Return the clock and the end of each origin's chain, from the state."""
    state = dict(fetch("SELECT name, number FROM state", ()))
    prefix = "origin "
    return state.get("clock", 0), {name[len(prefix) :]: end for name, end in state.items() if name.startswith(prefix)}
