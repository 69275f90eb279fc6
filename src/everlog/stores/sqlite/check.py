"""Find damage of the database itself, for `verify`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing

from everlog.core.chain import NO_CHAIN, Chain, Run
from everlog.core.event import START, Position
from everlog.errors import Damaged
from everlog.stores.contract import Problem
from everlog.stores.lost import UNACCOUNTED
from everlog.stores.small_state_sqlite import TABLE as SHELF_TABLE
from everlog.stores.sqlite.chains import read_chains
from everlog.stores.sqlite.groups import BadRow, Fetch, Indexed, StoredGroup
from everlog.stores.sqlite.identity import find_identity
from everlog.stores.sqlite.queries import BLOCK, SCOPE, STREAM, TYPE, Suspicion, records_at, with_holes
from everlog.stores.sqlite.recent import INDEXED
from everlog.stores.sqlite.scan import AT, END, windows
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
        yield from _group_problems(fetch)
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
    chains = read_chains(fetch)
    for origin, chain in chains.items():
        if chain.contiguous is not None:
            yield from _end_problems(fetch, origin, chain.contiguous)
    ((remembered, last, reserved),) = fetch(
        "SELECT (SELECT position FROM state WHERE name = 'clock'),"
        " (SELECT last FROM groups ORDER BY first DESC LIMIT 1), (SELECT max(reserved) FROM purges)",
        (),
    )
    head = max(last or 0, reserved or 0)
    if head != (remembered or 0):
        yield Problem(Position(head), "state_disagrees", f"the log remembers {remembered or 0} as its last position")
    if last is not None and not chains:
        yield Problem(START, "state_disagrees", "there are events, and the end of no chain is remembered")


def _end_problems(fetch: Fetch, origin: str, end: Run) -> Iterator[Problem]:
    purged = fetch("SELECT hash FROM purged WHERE position = ?", (end.position,))
    if purged:
        found = purged[0][0]
    else:
        try:
            found = _hash_at(fetch, end.position)
        except BadRow as error:
            yield Problem(end.position, "state_disagrees", str(error))
            return
    if found is None:
        reason = f"event {end.last} of origin {origin} was recorded here and is not there any more"
        yield Problem(end.position, "log_cut_off", reason)
    elif found != end.hash:
        reason = f"this is not event {end.last} of origin {origin} as it was recorded"
        yield Problem(end.position, "state_disagrees", reason)


def _hash_at(fetch: Fetch, position: int) -> bytes | None:
    """Return the hash of an event. That of the last event of a group is stored with the group."""
    for row in fetch(AT, (json.dumps([position]),)):
        group = StoredGroup(row)
        found = group.records_at([position]) if group.first <= position <= group.last else []
        if found and position == group.last and group.facts.hash:
            return group.facts.hash
        if found:
            return with_holes(fetch, group).link(found[0].event).hash
    return None


def _group_problems(fetch: Fetch) -> Iterator[Problem]:
    """What queries use must match the events."""
    leads, streams = _IdLeads(fetch), _Streams(fetch)
    ((clock,),) = fetch("SELECT coalesce((SELECT number FROM state WHERE name = 'clock'), 0)", ())
    chains = read_chains(fetch)
    after = 0
    while True:
        try:
            for window in windows(fetch, after, END):
                after = window.high
                found: list[Indexed] = []
                for group in window.groups:
                    try:
                        records = group.indexed()
                    except BadRow:
                        continue  # verify itself reports it
                    yield from _clock_problems(records, group.origin, clock, chains)
                    found += records
                yield from _mark_problems(fetch, found)
                yield from leads.problems(found)
                yield from streams.problems(found)
            break
        except Damaged as error:
            if "position" not in error.details:
                raise
            first, after = error.details["position"], error.details["after"]
            if error.why != UNACCOUNTED:  # verify itself reports what is missing
                yield Problem(first, "unreadable", error.why, upto=after if after > first else START)
            leads.complete = streams.complete = False
    yield from leads.left_over()
    yield from streams.left_over()


def _mark_problems(fetch: Fetch, records: list[Indexed]) -> Iterator[Problem]:
    """Every block must be marked with the types and scopes of its events."""
    met: dict[tuple[int, str, str], Position] = {}
    for recorded in records:
        position, event = recorded.position, recorded.event
        met.setdefault((position // BLOCK, event.type, event.scope), position)
    used: dict[tuple[int, str, int], Position] = {}
    for (block, type, scope), position in met.items():
        used.setdefault((TYPE, type, block), position)
        used.setdefault((SCOPE, scope, block), position)
    for (family, name, block), position in used.items():
        if not fetch(_MARKED, (family, name, family, block)):
            yield Problem(position, "index_disagrees", f"the mark for {name!r} is missing")


_MARKED = (
    "SELECT 1 FROM marks WHERE name_id = (SELECT name_id FROM names WHERE family = ? AND name = ?) AND family = ?"
    " AND block = ?"
)


def _clock_problems(
    records: list[Indexed], of_group: str, clock: int, chains: Mapping[str, Chain]
) -> Iterator[Problem]:
    first, last = 1, 0  # numbers that are known to be in the chain of the group
    for recorded in records:
        event = recorded.event
        if event.lamport > clock:
            yield Problem(recorded.position, "state_disagrees", f"its clock value is above {clock}, the clock's own")
        if not event.origin and first <= event.origin_seq <= last:
            continue
        origin = event.origin or of_group
        run = chains.get(origin, NO_CHAIN).run_with(event.origin_seq)
        if run is None:
            reason = f"the remembered chain of {origin} does not have its number"
            yield Problem(recorded.position, "state_disagrees", reason)
        elif not event.origin:
            first, last = run.first, run.last


class _IdLeads:
    """The index of ids. Ids mostly grow with their positions, so one lookup serves a whole block."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._first = self._end = ""  # the ids from one to before the other lead to the block
        self._block: int | None = None
        self._listed = 0
        self.complete = True

    def problems(self, records: list[Indexed]) -> Iterator[Problem]:
        """Return the events to which the index does not lead."""
        ids = json.dumps([recorded.event.id for recorded in records])
        listed = dict(self._fetch(_LISTED, (ids,)))
        for recorded in records:
            event_id, position = recorded.event.id, recorded.position
            there = listed.get(event_id) if listed else None
            if there is not None:
                self._listed += there == position
            elif self._first <= event_id < self._end and self._block == position // BLOCK:
                continue  # as the one before it
            elif not self._leads(event_id, position):
                yield Problem(position, "index_disagrees", f"the id {event_id} leads to another place")

    def left_over(self) -> Iterator[Problem]:
        """Return the listed ids that are neither where they are listed nor purged there."""
        ((count, purged),) = self._fetch(_COUNTS, ())
        if count == self._listed + purged or not self.complete:
            return
        after = ""
        while rows := self._fetch(_LIST, (after, _ROWS_AT_ONCE)):
            for event_id, position in rows:
                if not self._is_at(event_id, position):
                    yield Problem(position, "index_disagrees", f"the id {event_id} is filed here and is not here")
            after = rows[-1][0]

    def _is_at(self, event_id: str, position: int) -> bool:
        if self._fetch("SELECT 1 FROM purged WHERE position = ?", (position,)):
            return True
        try:
            found = records_at(self._fetch, [position])
        except Suspicion:
            return True  # it cannot be read
        return [recorded.event.id for recorded in found] == [event_id]

    def _leads(self, event_id: str, position: int) -> bool:
        if not self._first <= event_id < self._end:
            found = self._fetch(
                "SELECT first_id, block FROM id_blocks WHERE first_id <= ? ORDER BY first_id DESC LIMIT 1",
                (event_id,),
            )
            self._first, self._block = found[0] if found else ("", None)
            ((following,),) = self._fetch("SELECT min(first_id) FROM id_blocks WHERE first_id > ?", (event_id,))
            self._end = _ABOVE_ALL_IDS if following is None else following
        return self._block == position // BLOCK


_ABOVE_ALL_IDS = "~"
_ROWS_AT_ONCE = 1000
_LISTED = "SELECT id, position FROM id_strays WHERE id IN (SELECT value FROM json_each(?))"
_LIST = "SELECT id, position FROM id_strays WHERE id > ? ORDER BY id LIMIT ?"
_COUNTS = (
    "SELECT (SELECT count(*) FROM id_strays),"
    " (SELECT count(*) FROM id_strays WHERE position IN (SELECT position FROM purged))"
)


class _Streams:
    """The index of streams must list exactly the events that it should hold."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        ((self._indexed,),) = fetch(f"SELECT {INDEXED}", ())
        self._found = 0
        self.complete = True

    def problems(self, records: list[Indexed]) -> Iterator[Problem]:
        """Return the events to which the index does not lead."""
        wanted = [
            (recorded.event.stream, recorded.sequence, recorded.position)
            for recorded in records
            if recorded.position <= self._indexed
        ]
        if not wanted:
            return
        missing = {position for (position,) in self._fetch(_NOT_INDEXED, (json.dumps(wanted),))}
        self._found += len(wanted) - len(missing)
        for position in sorted(missing):
            yield Problem(position, "index_disagrees", "its stream's index does not lead to it")

    def left_over(self) -> Iterator[Problem]:
        """Return the entries that lead to no event of their stream."""
        ((count,),) = self._fetch("SELECT count(*) FROM stream_places", ())
        if count == self._found or not self.complete:
            return
        after = (-1, 0)
        while rows := self._fetch(_ENTRIES, (*after, _ROWS_AT_ONCE)):
            for _, sequence, position, name in rows:
                try:
                    found = records_at(self._fetch, [position])
                except Suspicion:
                    continue  # it cannot be read
                if [(recorded.event.stream, recorded.sequence) for recorded in found] != [(name, sequence)]:
                    reason = "the index of a stream leads here, and its event is not here"
                    yield Problem(position, "index_disagrees", reason)
            after = rows[-1][:2]


_NOT_INDEXED = (
    "SELECT json_extract(value, '$[2]') FROM json_each(?) WHERE json_extract(value, '$[2]') IS NOT"
    " (SELECT position FROM stream_places WHERE sequence = json_extract(value, '$[1]') AND stream ="
    f" (SELECT name_id FROM names WHERE family = {STREAM} AND name = json_extract(value, '$[0]')))"
)
_ENTRIES = (
    "SELECT stream, sequence, position, name FROM stream_places LEFT JOIN names ON name_id = stream"
    f" AND family = {STREAM} WHERE (stream, sequence) > (?, ?) ORDER BY stream, sequence LIMIT ?"
)
