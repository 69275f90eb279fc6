"""History that somebody tries to rewrite, and disks that fail."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.stores.sqlite.own import Failing, own_event
from tests.support.sqlite_edits import edit

from everlog.catalog.builtin import BUILT_IN
from everlog.core.event import Position
from everlog.errors import Damaged, StorageFull, WriterStopped
from everlog.log.log import Log
from everlog.stores.small_state import read_claim, read_notes
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import put_note
from everlog.testing.filling import fill_two_streams, positions


def erased(more: str = "", kept: int = 2) -> str:
    """Erase the first event, with the commitment of another payload."""
    values = "'$[0][3][17]', json('[]'), '$[0][3][18]', '', '$[0][3][19]', '', '$[0][3][20]', json('[]')"
    values = values.replace("json('[]')", "json('{}')", 1) + ", '$[0][3][21]', 'x'" + more
    return f"UPDATE groups SET events = json_set(events, {values}), kept = {kept} WHERE first = 1"  # noqa: S608


COMMITTED = f", '$[0][3][15]', '{'a' * 43}='"
REWRITES = [
    "UPDATE groups SET events = replace(events, 'hello', 'other')",
    "UPDATE groups SET events = replace(events, 'user:ada', 'user:eve')",
    "UPDATE groups SET events = json_remove(events, '$[0]'), kept = kept - 1",
    "UPDATE groups SET events = '[]', kept = 0",
    "UPDATE groups SET events = json_insert(events, '$[#]', json_extract(events, '$[0]')), kept = kept + 1",
    "UPDATE groups SET events = json_set(events, '$[1]', json_extract(events, '$[0]'))",
    erased(),  # an erasure without its commitment
    erased(COMMITTED, kept=1),
    erased(COMMITTED + ", '$[0][3][8]', 'user:eve'"),
    erased(COMMITTED + ", '$[1][3][17]', json('{}')"),
    "UPDATE groups SET checksum = 0",
    "UPDATE groups SET kept = 1",
    "UPDATE groups SET signature = x'01'",
    "UPDATE groups SET received_us = 1",
    "UPDATE groups SET previous = x'00'",
    "UPDATE groups SET hash = x'00'",
    "UPDATE groups SET claims = x'00'",
    "UPDATE OR REPLACE groups SET first = 2 WHERE first = 1",
    "DELETE FROM groups",
    "DELETE FROM groups WHERE first = 1",
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
    edit(path, "DELETE FROM events WHERE position = 3")

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
    edit(path, "UPDATE groups SET events = replace(events, 'user:ada', 'user:eve')")

    changed = SqliteStore(path)
    with pytest.raises(Damaged):
        own_event(changed)
    changed.close()


REST = "received_us, origin, first_seq, count, previous, hash, signature, claims"
REPLACEMENTS = [
    f"REPLACE INTO groups SELECT first, last, kept, {REST}, '[]', checksum FROM groups",  # noqa: S608
    f"INSERT OR REPLACE INTO groups SELECT 9, 9, kept, {REST}, events, checksum FROM groups",  # noqa: S608
    f"INSERT INTO groups SELECT 9, 9, kept, {REST}, events, checksum FROM groups LIMIT 1",  # noqa: S608
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
        other.execute("CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON groups BEGIN SELECT 1; END")
        other.execute("CREATE TRIGGER of_somebody AFTER INSERT ON notes BEGIN SELECT 1; END")
        other.execute("INSERT INTO id_strays VALUES ('01M7GJY4JREWXR7F6ZT4NFS1FE', 1)")
    other.close()
    codes = [problem.code for problem in store.check()]
    assert codes == ["schema_changed", "schema_changed", "index_disagrees"]
    store.close()


def test_a_log_with_a_damaged_event_behind_its_index_takes_notes_and_no_events(path: Path) -> None:
    """The sequences and claims of what was lost are not known. State of views is still written."""
    store = SqliteStore(path)
    for number in (1, 2, 3):
        own_event(store, stream=f"note/{number}")
    store.close()
    edit(path, "UPDATE groups SET events = replace(events, 'hello', 'hallo') WHERE first = 2")

    hurt = SqliteStore(path)
    with hurt.open_write() as writer:
        put_note(writer, "k", "v")
    assert read_notes(hurt.small_state, "") == {"k": "v"}
    for _ in range(2):
        with pytest.raises(Damaged) as raised:
            own_event(hurt, stream="note/1")
        assert raised.value.details["position"] == 2
        with pytest.raises(Damaged), hurt.open_write() as writer:
            read_claim(writer, bytes(16))
    assert (hurt.head(), positions(hurt.read(after=Position(2)))) == (3, [3])
    hurt.close()
