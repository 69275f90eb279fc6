"""What is opened, made or refused, and who has to wait for whom."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.at_once import at_once
from tests.stores.sqlite.own import own_event

from everlog.errors import Busy, Damaged, NewerFormat, NotALog, NotFound
from everlog.stores.sqlite import connection
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.filling import positions


def test_files_are_not_open_to_others(path: Path) -> None:
    """S17: the log may be read by its group and by nobody else."""
    store = SqliteStore(path)
    own_event(store)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()

    assert set(modes) >= {"log.db", "log.db-wal", "log.db-shm", "log.db-lock"}
    assert {name: mode for name, mode in modes.items() if mode & 0o027} == {}


def test_an_empty_file_is_not_taken_for_a_new_log(path: Path) -> None:
    """F04: never restart at 0."""
    path.touch()
    with pytest.raises(NotALog, match="empty"):
        SqliteStore(path)
    assert path.stat().st_size == 0


def test_a_new_log_does_not_take_the_last_writes_of_a_removed_one(path: Path) -> None:
    """A killed writer leaves them in the write-ahead log, which SQLite would replay into any file of that name."""
    subprocess.run([sys.executable, "-c", WRITE_AND_DIE, str(path)], timeout=60)
    journal = path.with_name(path.name + "-wal")
    assert journal.stat().st_size
    path.unlink()
    before = journal.read_bytes()
    with pytest.raises(Damaged, match=r"log\.db is gone, and log\.db-wal is still there"):
        SqliteStore(path)
    assert journal.read_bytes() == before
    journal.rename(path.with_name("kept"))
    store = SqliteStore(path)
    assert positions(store.read()) == []
    store.close()


WRITE_AND_DIE = """
import os, signal, sys, everlog
log = everlog.open("sqlite:" + sys.argv[1])
log.append("note.added", stream="note/1", payload={"text": "there"})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"just some text, long enough to be looked at")
    with pytest.raises(NotALog, match="not an SQLite database"):
        SqliteStore(path)
    assert path.read_bytes() == b"just some text, long enough to be looked at"


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE events (position INTEGER PRIMARY KEY)")
    other.close()
    with pytest.raises(NotALog, match="another program"):
        SqliteStore(path)


def test_a_log_of_a_newer_format_is_refused_and_never_read_as_empty(path: Path) -> None:
    SqliteStore(path).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(NewerFormat, match="99"):
        SqliteStore(path)


def test_a_log_that_is_not_there_is_not_made_unless_asked(path: Path) -> None:
    with pytest.raises(NotFound):
        SqliteStore(path, create=False)
    assert list(path.parent.iterdir()) == []


def test_a_crash_while_making_a_log_leaves_no_half_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F04, F06: the file gets its name when it is whole."""
    monkeypatch.setattr(connection, "create_database", _crash)
    with pytest.raises(RuntimeError):
        SqliteStore(path)
    assert not path.exists()
    monkeypatch.undo()

    store = SqliteStore(path)  # what the crash left beside it is no obstacle
    own_event(store)
    assert store.head() == 1
    store.close()


def _crash(draft: Path, schema: str) -> sqlite3.Connection:
    sqlite3.connect(draft).execute("CREATE TABLE half (a)")
    raise RuntimeError("the process ended here")


def test_many_openers_make_one_log(path: Path) -> None:
    opened: list[SqliteStore] = []
    at_once(*[lambda: opened.append(SqliteStore(path))] * 6)

    assert len({store.identity.log_id for store in opened}) == 1
    for store in opened:
        store.close()


def test_a_second_writer_is_told_who_holds_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G13."""
    one, other = SqliteStore(path), SqliteStore(path)
    with one.open_write(), monkeypatch.context() as impatient:
        impatient.setattr(connection, "BUSY_TIMEOUT_MS", 50)
        with pytest.raises(Busy) as refused, other.open_write():
            pass
        assert refused.value.hint
    own_event(other)
    assert one.head() == 1
    one.close()
    other.close()


def test_a_program_that_locks_the_database_makes_it_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_MS", 50)
    store = SqliteStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy), store.open_write():
        pass
    other.execute("ROLLBACK")
    own_event(store)
    other.close()
    store.close()


def test_a_log_whose_file_was_removed_takes_no_more_writes(path: Path) -> None:
    """G1: SQLite itself would go on, into a file that nobody can find."""
    store = SqliteStore(path)
    own_event(store)
    path.rename(path.with_name("moved.db"))
    with pytest.raises(Damaged, match="removed or replaced"):
        own_event(store)
    path.with_name("moved.db").rename(path)
    own_event(store)
    assert positions(store.read()) == [1, 2]
    store.close()


def test_a_file_that_is_gone_is_not_reported_as_one_that_may_not_be_read(path: Path) -> None:
    store = SqliteStore(path)
    own_event(store)
    path.rename(path.with_name("moved.db"))
    while store._idle_readers:
        store._idle_readers.pop().close()  # so that a read opens the file
    with pytest.raises(Damaged, match=r"log\.db is gone") as caught:
        positions(store.read())
    assert "restore it" in caught.value.hint
    path.with_name("moved.db").rename(path)
    assert positions(store.read()) == [1]
    store.close()
