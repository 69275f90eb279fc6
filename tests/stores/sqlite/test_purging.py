"""A purge leaves no byte behind, whoever reads, fails or is killed meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.stores.sqlite.own import own_event
from tests.support.sqlite_edits import edit

from everlog.core.event import Position
from everlog.errors import Damaged, WriterStopped
from everlog.stores.sqlite import connection, tail
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import put_note, seal_any
from everlog.testing.filling import append, positions


def test_a_purge_leaves_no_byte_of_the_payload_behind(path: Path) -> None:
    """F63: not in the file, not in its free pages, not in the write-ahead log."""
    store = SqliteStore(path)
    sentinel = "sentinel-of-the-purged-payload"
    for number in range(50):
        append(store, seal_any(stream="note/1", payload={"text": f"{sentinel} {number} " + "x" * 300}))
        append(store, seal_any(stream="note/2"))
    assert any(sentinel.encode() in file.read_bytes() for file in path.parent.iterdir())

    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")

    assert not [file.name for file in path.parent.iterdir() if sentinel.encode() in file.read_bytes()]
    store.close()


def test_a_purge_that_a_reader_holds_up_is_told_and_finished_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """F63: success is not reported in silence while the bytes are still there."""
    monkeypatch.setattr("everlog.stores.sqlite.scrub._WAIT_MS", 10)
    store = SqliteStore(path)
    append(store, seal_any(stream="note/1", payload={"text": "sentinel-held-by-a-reader"}))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")

    assert "log.db-wal" in caplog.text
    reader.close()
    append(store, seal_any(stream="note/2"))
    assert not [file.name for file in path.parent.iterdir() if b"sentinel-held" in file.read_bytes()]
    store.close()


def test_a_stream_whose_group_is_damaged_cannot_be_purged_and_others_can(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a purge leaves of an event is its hash, and that of a damaged event cannot be computed any more."""
    monkeypatch.setattr(tail, "TAIL_MAX", 0)
    store = SqliteStore(path)
    for number in (1, 2, 3):
        own_event(store, stream=f"note/{number}")
    edit(path, "UPDATE groups SET events = replace(events, 'hello', 'hallo') WHERE first = 1")
    with pytest.raises(Damaged):
        list(store.read())
    with pytest.raises(Damaged), store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="damaged")
    with store.open_write() as writer:
        assert writer.purge("note/2", actor="user:ada", reason="asked to").count == 1
    assert positions(store.read(after=Position(1))) == [3]
    store.close()


def test_a_purge_rewrites_only_the_groups_that_had_the_events(path: Path) -> None:
    store = SqliteStore(path)
    append(store, *[seal_any(stream=f"note/{number % 2}") for number in range(4)])
    for number in range(300):
        own_event(store, stream=f"note/{number % 100}")
    assert store._writer is not None
    said: list[str] = []
    store._writer.set_trace_callback(said.append)
    with store.open_write() as writer:
        writer.purge("note/7", actor="user:ada", reason="asked to")
    assert len({statement for statement in said if statement.startswith("UPDATE groups")}) == 3
    assert list(store.check()) == []
    store.close()


def test_a_purge_whose_process_was_killed_is_tidied_up_by_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F63: between the commit of a purge and the emptying of the write-ahead log lies a moment."""
    store = SqliteStore(path)
    append(store, seal_any(stream="note/1", payload={"text": "sentinel-of-a-killed-purge"}))
    monkeypatch.setattr(SqliteStore, "_tidy_up", lambda self, writer, **asked: None)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    monkeypatch.undo()
    assert any(b"sentinel-of-a-killed" in file.read_bytes() for file in path.parent.iterdir())

    other = SqliteStore(path)  # the first one is as good as killed: it does nothing more
    own_event(other)
    assert not [file.name for file in path.parent.iterdir() if b"sentinel-of-a-killed" in file.read_bytes()]
    own_event(other)
    assert other._fetch("SELECT number FROM state WHERE name = 'scrub'", ()) == [(0,)]
    other.close()
    store.close()


def test_a_flush_that_fails_while_purged_bytes_are_removed_stops_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G12: the purge stands, and nothing is acknowledged after it as if the disk were well."""
    store = SqliteStore(path)
    own_event(store, stream="note/1")

    def fail(writer: sqlite3.Connection, *, wait_ms: int) -> bool:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
        raise error

    monkeypatch.setattr(connection, "empty_journal", fail)
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    assert len(store.purges()) == 1
    with pytest.raises(WriterStopped):
        own_event(store)
    monkeypatch.undo()
    store.close()


def test_a_purge_takes_what_has_expired_along(path: Path) -> None:
    """F63: an expired note is shown to nobody, but its bytes may be a response about what is purged."""
    now = [1_000_000]
    store = SqliteStore(path, now_us=lambda: now[0])
    own_event(store, stream="note/1")
    with store.open_write() as writer:
        put_note(writer, "key/a", "SENTINEL", expires_us=2_000_000)
    now[0] = 3_000_000
    with store.open_write() as writer:
        writer.purge("note/1", actor="user:ada", reason="asked to")
    store.close()
    assert b"SENTINEL" not in b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())
