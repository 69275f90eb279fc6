"""History that somebody tries to rewrite, and disks that fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.stores.sqlite.own import Failing, own_event, without_triggers

from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Position
from everlog.errors import Damaged, StorageFull, WriterStopped
from everlog.log.log import Log
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.filling import fill_two_streams, positions

REWRITES = [
    "UPDATE events SET payload = '{}'",
    "UPDATE events SET header = header || ' ' WHERE position = 1",
    "UPDATE OR REPLACE events SET position = 2 WHERE position = 1",
    "DELETE FROM events",
    "DELETE FROM events WHERE position = 3",
    "UPDATE purges SET reason = ''",
    "DELETE FROM purges",
    "UPDATE purged SET hash = x''",
    "DELETE FROM purged",
    "UPDATE names SET name = 'other'",
    "DELETE FROM names",
]


@pytest.mark.parametrize("statement", REWRITES)
def test_the_database_refuses_to_rewrite_history(path: Path, statement: str) -> None:
    """G9: whatever program opens the file."""
    store = SqliteStore(path)
    fill_two_streams(store)
    with store.open_write() as writer:
        writer.purge("note/2", actor="user:ada", reason="asked to")
    other = sqlite3.connect(path)
    before = list(other.iterdump())
    with pytest.raises(sqlite3.IntegrityError, match="everlog"):
        other.execute(statement)
    other.rollback()

    assert list(other.iterdump()) == before
    other.close()
    store.close()


def test_a_failed_flush_stops_the_writer_for_good(path: Path) -> None:
    """G12, F05: it reports, and never goes on as if clean."""
    store = SqliteStore(path)
    own_event(store)
    real = store._writer
    assert real is not None
    failing = Failing(real, "SQLITE_IOERR_FSYNC")
    store._writer = failing  # type: ignore[assignment]
    with pytest.raises(WriterStopped):
        own_event(store)
    with pytest.raises(WriterStopped, match="no more writes"):
        own_event(store)

    assert failing.commits == 1
    assert positions(store.read()) == [1]
    store.close()
    again = SqliteStore(path)
    own_event(again)
    assert again.head() == 2
    again.close()


def test_a_full_disk_refuses_the_write_and_takes_the_next_one(path: Path) -> None:
    """F07: reading goes on, and nothing is half written."""
    store = SqliteStore(path)
    own_event(store)
    store._writer = Failing(store._writer, "SQLITE_FULL")  # type: ignore[assignment,arg-type]
    with pytest.raises(StorageFull):
        own_event(store)
    assert positions(store.read()) == [1]
    own_event(store)

    assert positions(store.read()) == [1, 2]
    assert [recorded.event.origin_seq for recorded in store.read()] == [1, 2]
    assert list(store.check()) == []
    store.close()


def test_a_log_whose_last_event_was_cut_off_takes_no_writes(path: Path) -> None:
    """G10, F60: it is not written over, and what is left can still be read."""
    store = SqliteStore(path)
    for _ in range(3):
        own_event(store)
    store.close()
    without_triggers(path, "DELETE FROM events WHERE position = 3")

    cut = SqliteStore(path)
    assert positions(cut.read(upto=Position(2))) == [1, 2]
    assert cut.head() == 3
    with pytest.raises(Damaged) as raised:
        list(cut.read())
    assert (raised.value.details["position"], raised.value.details["after"]) == (3, 3)
    assert "log_cut_off" in {problem.code for problem in cut.check()}
    with pytest.raises(Damaged):
        own_event(cut)
    cut.close()


def test_a_changed_last_event_is_noticed_before_the_next_write(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store)
    store.close()
    without_triggers(path, "UPDATE events SET header = replace(header, 'user:ada', 'user:eve')")

    changed = SqliteStore(path)
    with pytest.raises(Damaged):
        own_event(changed)
    changed.close()


REPLACEMENTS = [
    "REPLACE INTO events SELECT position, stream, sequence, type, scope, received_us, header, '{}', salt, claim"
    " FROM events",
    "INSERT OR REPLACE INTO events SELECT 9, stream, sequence, type, scope, received_us, header, payload, salt,"
    " claim FROM events WHERE position = 2",
    "INSERT INTO events SELECT 9, 99, 1, type, scope, received_us, header, payload, salt, NULL FROM events LIMIT 1",
]


@pytest.mark.parametrize("statement", REPLACEMENTS)
def test_what_sqlite_lets_an_owner_replace_is_found(path: Path, statement: str) -> None:
    """G9, G10: REPLACE deletes without asking a delete trigger; the chain tells."""
    log = Log(SqliteStore(path), BUILT_IN)
    for text in ("one", "two", "three"):
        log.append("note.added", stream="note/1", payload={"text": text})
    with sqlite3.connect(path) as other:
        other.execute(statement)
    other.close()

    assert log.verify().problems
    log.close()


def test_a_trigger_that_does_nothing_any_more_is_found(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store)
    with sqlite3.connect(path) as other:
        other.execute("DROP TRIGGER events_are_not_changed")
        other.execute("CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events BEGIN SELECT 1; END")
        other.execute("CREATE TRIGGER of_somebody AFTER INSERT ON notes BEGIN SELECT 1; END")
        other.execute("INSERT INTO id_strays VALUES ('01M7GJY4JREWXR7F6ZT4NFS1FE', 1)")
    other.close()
    codes = [problem.code for problem in store.check()]
    assert codes == ["schema_changed", "schema_changed", "index_disagrees"]
    store.close()
