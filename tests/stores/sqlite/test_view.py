"""Any SQLite client reads every event: the view `events` has what a reader of everlog gets."""

from __future__ import annotations

import base64
import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec

from everlog.core.codec import payload_bytes
from everlog.core.event import Recorded
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import NOON, Chain
from everlog.testing.erase_contract import BY, erase, fill_with_a_secret
from everlog.testing.filling import append
from everlog.testing.group_contract import purge
from everlog.testing.scan_contract import VALUES

COLUMNS = (
    "position, sequence, id, type, version, stream, lamport, origin, origin_seq, occurred_at, received_us, actor,"
    " scope, request_id, causation_id, correlation_id, idempotency_key, tags, payload, salt, erased_by"
)


def as_row(recorded: Recorded) -> tuple[object, ...]:
    event = recorded.event
    row = [getattr(recorded if hasattr(recorded, name) else event, name) for name in COLUMNS.split(", ")]
    row[9] = msgspec.to_builtins(event.occurred_at)
    row[17] = json.dumps(event.tags, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    row[18] = payload_bytes(event.payload).decode()
    row[19] = base64.b64encode(event.salt).decode()
    return tuple(row)


def rows_of(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"SELECT {COLUMNS} FROM events ORDER BY position").fetchall()  # noqa: S608


def test_the_view_has_every_event_as_it_is_read(path: Path) -> None:
    now = [1_763_208_000_000_000]
    with closing(SqliteStore(path, now_us=lambda: now[0])) as store:
        own = fill_with_a_secret(store)
        chain = Chain()
        moments = [NOON, NOON - timedelta(microseconds=7)]
        append(
            store,
            *[
                chain.next(
                    stream=f"thing/{number % 3}",
                    payload={"a": value, "é": [value]},
                    tags={"b": "2", "a": "ü"} if number % 2 else {},
                    occurred_at=moments[number % 2],
                    scope="acme/shop",
                )
                for number, value in enumerate(VALUES)
            ],
        )
        now[0] += 1
        append(store, chain.next())
        assert rows_of(path) == [as_row(recorded) for recorded in store.read()]
        erase(store, own[3])
        purge(store, "thing/1")
        found = rows_of(path)
        assert found == [as_row(recorded) for recorded in store.read()]
        assert found[3][-4:] == ("{}", "{}", "", BY)


def test_a_time_without_a_fraction_has_none_in_the_view(path: Path) -> None:
    with closing(SqliteStore(path, now_us=lambda: 1_763_208_000_000_000)) as store:
        append(store, Chain().next(occurred_at=msgspec.json.decode(b'"2025-11-15T12:00:00Z"', type=type(NOON))))
        (recorded,) = store.read()
        assert rows_of(path) == [as_row(recorded)]
        assert store._fetch("SELECT json_extract(events, '$[0][3][7]') FROM groups", ()) == [(None,)]
