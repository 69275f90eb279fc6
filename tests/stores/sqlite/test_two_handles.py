"""Two handles of one process on one log, beside another process."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.stores.sqlite.own import own_event

import everlog
from everlog.catalog.catalog import Catalog
from everlog.core.query import Query
from everlog.errors import ReadOnly
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.sqlite import connection, tail
from everlog.stores.sqlite.store import SqliteStore
from everlog.stores.sqlite.tail import Tail
from everlog.testing.builders import seal_any
from everlog.testing.filling import append

APPEND_AND_CLOSE = """
import sys, everlog
with everlog.open(sys.argv[1]) as log:
    log.append("note.added", stream="note/1", payload={"text": "there"})
"""


def append_elsewhere(url: str) -> None:
    subprocess.run([sys.executable, "-c", APPEND_AND_CLOSE, url], check=True, timeout=60)


def test_a_second_handle_does_not_take_the_first_ones_locks_away(tmp_path: Path) -> None:
    """POSIX drops every lock of a process on a file when it closes any descriptor of it. Another process that closes
    the log would then take itself for the last one, and remove the write-ahead log under the first handle."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    with everlog.open(url) as first:
        first.append("note.added", stream="note/1", payload={"text": "here"})
        everlog.open(url).close()
        append_elsewhere(url)
        first.append("note.added", stream="note/1", payload={"text": "here"})
        append_elsewhere(url)
        assert [recorded.position for recorded in first.read()] == [1, 2, 3, 4]
    with everlog.open(url) as again:
        assert [recorded.position for recorded in again.read()] == [1, 2, 3, 4]
        assert again.verify().problems == ()


def test_ids_from_elsewhere_are_found_when_two_handles_record_them_in_turn(tmp_path: Path) -> None:
    """An id below the greatest one has a row in a list, also when another handle recorded the greatest one."""
    path = tmp_path / "log.db"
    made = [seal_any() for _ in range(300)]
    random.Random(7).shuffle(made)
    handles = [SqliteStore(path), SqliteStore(path)]
    for number, start in enumerate(range(0, len(made), 10)):
        append(handles[number % 2], *made[start : start + 10])

    for store in [*handles, SqliteStore(path)]:
        for sealed in made:
            found = store.get(sealed.event.id)
            assert found is not None
            assert found.event == sealed.event
        assert list(store.check()) == []
        store.close()


def test_a_refused_open_does_not_take_the_locks_away(tmp_path: Path) -> None:
    """SQLite does not report why it cannot open a file. To find out, the file itself is not opened."""
    url = f"sqlite:{tmp_path / 'log.db'}"
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorname = "SQLITE_CANTOPEN"
    with everlog.open(url) as first:
        first.append("note.added", stream="note/1", payload={"text": "here"})
        assert isinstance(connection.translated(error, tmp_path / "log.db", "reading"), ReadOnly)
        append_elsewhere(url)
        first.append("note.added", stream="note/1", payload={"text": "here"})
        append_elsewhere(url)
        assert [recorded.position for recorded in first.read()] == [1, 2, 3, 4]


def test_a_filtered_read_does_not_pass_over_what_came_meanwhile(tmp_path: Path) -> None:
    """Types and scopes are looked up once. A read that went on into events with new ones would leave them out."""
    catalog = Catalog()
    for name in ("test.a", "test.b", "test.c"):
        catalog.event(name)(type("P", (msgspec.Struct,), {}))
    url = f"sqlite:{tmp_path / 'log.db'}"

    def add(log: Log, kind: str, count: int, scope: str = "") -> None:
        log.append_batch([Draft(kind, f"note/{number}", {}, scope=scope) for number in range(count)])

    with everlog.open(url, catalog=catalog) as log, everlog.open(url, catalog=catalog) as other:
        add(log, "test.a", 1500, "acme/x")
        for query in (Query(types=frozenset(["test.a", "test.b"])), Query(scope="acme")):
            found = log.read(query)
            seen = [next(found)]
            add(other, "test.c", 300)
            add(other, "test.b", 1, f"acme/{query.scope or 'new'}")
            add(other, "test.c", 300)
            add(other, "test.a", 5, "acme/x")
            seen += found
            upto = seen[-1].position
            assert [recorded.position for recorded in seen] == [
                recorded.position for recorded in log.read(upto=upto) if query.matches(recorded)
            ]


def test_a_handle_that_writes_alone_reads_the_newest_events_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write would take longer otherwise, up to the thousand events that the index waits for."""
    forgotten: list[Tail] = []
    real = Tail.forget

    def forget(self: Tail) -> None:
        forgotten.append(self)
        real(self)

    with closing(SqliteStore(tmp_path / "log.db")) as store, closing(SqliteStore(tmp_path / "log.db")) as other:
        own_event(store)
        own_event(store)
        monkeypatch.setattr(Tail, "forget", forget)
        own_event(store)
        assert forgotten == []
        own_event(other)
        own_event(store)
        assert store._tail not in forgotten
        assert store.head() == 5


def test_what_another_handle_wrote_is_indexed_once_however_often_it_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that finds nothing to do reads the newest events as well."""
    monkeypatch.setattr(tail, "TAIL_MAX", 8)
    path = tmp_path / "log.db"
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as other:
        for _ in range(3):
            own_event(other, stream="thing/1")
            with store.open_write() as writer:
                assert writer.position == other.head()
        for _ in range(8):
            own_event(store, stream="thing/1")
        assert [recorded.sequence for recorded in other.read(Query(stream="thing/1"))] == list(range(1, 12))
        assert list(store.check()) == []


def test_a_writer_that_purged_still_knows_its_newest_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a purge of another process makes it read them again."""
    forgotten: list[Tail] = []
    with closing(SqliteStore(tmp_path / "log.db")) as one, closing(SqliteStore(tmp_path / "log.db")) as other:
        for stream in ("note/1", "note/2", "note/3"):
            append(one, seal_any(stream=stream))
        real = Tail.forget

        def forget(tail: Tail) -> None:
            forgotten.append(tail)
            real(tail)

        monkeypatch.setattr(Tail, "forget", forget)
        with one.open_write() as write:
            write.purge("note/1", actor="user:ada", reason="asked to")
        append(one, seal_any(stream="note/2"))
        assert forgotten == []
        with other.open_write() as write:
            write.purge("note/2", actor="user:ada", reason="asked to")
        del forgotten[:]
        append(one, seal_any(stream="note/2"))
        assert len(forgotten) == 1
        assert [recorded.sequence for recorded in one.read(Query(stream="note/2"))] == [3]
