"""Damage of the database itself: what `verify` asks of this store beside the events."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from everlog.core.codec import assemble, header_hash
from everlog.core.event import START, Position
from everlog.stores.contract import Problem
from everlog.stores.sqlite.queries import BLOCK, PAGE_ROWS, SCOPE, STREAM, TYPE, Fetch

_TRIGGERS = {
    "events_are_not_changed",
    "events_are_not_deleted",
    "events_are_appended",
    "purged_is_not_changed",
    "purged_is_not_deleted",
    "purges_are_not_changed",
    "purges_are_not_deleted",
    "names_are_not_changed",
    "names_are_not_deleted",
}


def problems(fetch: Fetch) -> Iterator[Problem]:
    for (found,) in fetch("PRAGMA integrity_check(20)", ()):
        if found != "ok":
            yield Problem(START, "database_damaged", found)
    there = {row[0] for row in fetch("SELECT name FROM sqlite_schema WHERE type = 'trigger'", ())}
    for missing in sorted(_TRIGGERS - there):
        yield Problem(START, "trigger_missing", f"the trigger {missing}, which refuses to rewrite history, is gone")
    yield from state_problems(fetch)
    yield from _column_problems(fetch)


def state_problems(fetch: Fetch) -> Iterator[Problem]:
    """The end of our own chain must be the event that the state remembers: cheap, so it is asked at every opening."""
    own = fetch(
        "SELECT name, number, hash FROM state WHERE name = (SELECT 'origin ' || origin FROM identity)",
        (),
    )
    for name, number, digest in own:
        origin = name.removeprefix("origin ")
        newest = fetch("SELECT position, header FROM events ORDER BY position DESC LIMIT 1", ())
        if newest and _is(newest[0][1], origin, number):
            if header_hash(newest[0][1].encode()) != digest:
                yield Problem(newest[0][0], "state_disagrees", "the last event is not the one that the log recorded")
            continue
        # The newest row is somebody else's event, or our last one was purged: look for it by its number.
        live = fetch(
            "SELECT position, header FROM events WHERE json_extract(header, '$[5]') = ?"
            " AND json_extract(header, '$[6]') = ? ORDER BY position DESC LIMIT 1",
            (origin, number),
        )
        gone = fetch("SELECT hash FROM purged WHERE origin = ? AND origin_seq = ?", (origin, number))
        hashes = [header_hash(row[1].encode()) for row in live] + [row[0] for row in gone]
        if digest not in hashes:
            yield Problem(
                START, "log_cut_off", f"event {number} of this log's own chain was recorded and is not there any more"
            )
    if not own and fetch("SELECT 1 FROM events LIMIT 1", ()):
        yield Problem(START, "state_disagrees", "there are events but no record of the chain's end")


def _is(header: str, origin: str, number: int) -> bool:
    try:
        event = assemble(header, "", b"")
    except msgspec.DecodeError:
        return False
    return event.origin == origin and event.origin_seq == number


def _column_problems(fetch: Fetch) -> Iterator[Problem]:
    """Columns and marks that queries use must say what the header says."""
    names = {(family, name_id): name for name_id, family, name in fetch("SELECT * FROM names", ())}
    marks = {tuple(row) for row in fetch("SELECT family, name_id, block FROM marks", ())}
    after = Position(0)
    while rows := fetch(
        "SELECT position, stream, type, scope, header FROM events WHERE position > ? ORDER BY position LIMIT ?",
        (after, PAGE_ROWS),
    ):
        for position, stream, kind, scope, header in rows:
            try:
                event = assemble(header, "", b"")
            except msgspec.DecodeError:
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
        after = rows[-1][0]
