"""Small state: a change that is made over another and added to it, and notes that expire."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import Clock

from everlog.errors import Busy, EverlogError, LogClosed, ReadOnly, StorageFull
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.stores import small_state_sqlite
from everlog.stores.contract import Claim
from everlog.stores.small_state import CLAIMS, NOTES, MemoryState, StateChanges, claim_of, read_note, read_notes
from everlog.stores.small_state_sqlite import StateFile
from everlog.stores.texts import Text
from everlog.testing.builders import put_claim, put_note
from everlog.views.builtin import Streams
from everlog.views.registry import views_of


def test_a_change_over_another_is_the_same_as_one_change_for_both() -> None:
    state = MemoryState()
    with state.change() as before:
        before.put("rows#1", {"a": b"1", "b": b"2"})
        before.put("rows#2", {"c": b"3"})
    with state.change() as first:
        first.put("rows#1", {"a": b"4"})
        first.put("rows#2", {"d": b"5"})
        over = StateChanges(first)
        assert over.rows("rows#1", ["a", "b"]) == {"a": b"4", "b": b"2"}
        over.put("rows#1", {"b": None, "e": b"6"})
        over.clear("rows#2")
        over.put("rows#2", {"f": b"7"})
        over.put_texts("rows#1", {"e": Text("", ("hello",), ())})
        over.scrub = True
        assert first.rows("rows#1", ["b", "e"]) == {"b": b"2"}  # not before it is taken
        first.take(over)
        assert first.scrub
    assert list(state.scan("rows#1")) == [("a", b"4"), ("e", b"6")]
    assert list(state.scan("rows#2")) == [("f", b"7")]
    assert state.holding("rows#1", ["hello"], within="", limit=5) == ["e"]


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments"])
def test_a_note_is_there_until_the_moment_at_which_it_expires(
    kind: str, make_log: Callable[..., Log], clock: Clock
) -> None:
    with make_log(kind, now_us=clock) as log:
        state, ends = log._store.small_state, clock.us + 10
        with log._store.open_write() as write:
            put_note(write, "short", "1", expires_us=ends)
            put_note(write, "long", "2", expires_us=ends + 1)
        for clock.us, there in ((ends - 1, {"short": "1", "long": "2"}), (ends, {"long": "2"}), (ends + 1, {})):
            assert read_notes(state, "") == there
            assert read_note(state, "short") == there.get("short")
            assert {row.key for row in state.every_row() if row.space == NOTES} == set(there)


@pytest.mark.parametrize(
    ("name", "kind", "hint"),
    [
        ("SQLITE_BUSY_TIMEOUT", Busy, "another process is writing views"),
        ("SQLITE_LOCKED", Busy, "another process is writing views"),
        ("SQLITE_FULL", StorageFull, "free some space"),
        ("SQLITE_READONLY_DIRECTORY", ReadOnly, "ls -ld"),
        ("SQLITE_CANTOPEN", ReadOnly, "ls -ld"),
        ("SQLITE_IOERR_FSYNC", EverlogError, "may be deleted"),
    ],
)
def test_a_file_of_views_that_cannot_be_used_says_what_to_do(
    tmp_path: Path, name: str, kind: type[EverlogError], hint: str
) -> None:
    state = StateFile(tmp_path / "views.db")
    with state.change() as change:
        change.put("rows#1", {"a": b"1"})
    error = sqlite3.OperationalError("as SQLite says")
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)

    class Failing:
        def execute(self, *given: object) -> None:
            raise error

    whole, state._connection = state._connection, Failing()  # type: ignore[assignment]
    with pytest.raises(EverlogError) as caught:
        state.count("rows#1")
    assert type(caught.value) is kind
    assert hint in caught.value.hint
    state._connection = whole
    assert list(state.scan("rows#1")) == [("a", b"1")]  # nothing was removed
    state.close()
    with pytest.raises(LogClosed):
        state.count("rows#1")


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl", "segments"])
def test_a_claim_is_found_as_a_row_and_in_the_scan_of_all(kind: str, make_log: Callable[..., Log]) -> None:
    with make_log(kind) as log:
        position = log.append("thing.said", stream="thing/1").position
        state, name = log._store.small_state, b"n" * 16
        with log._store.open_write() as write:
            put_claim(write, name, position, 1)
        rows = state.rows(CLAIMS, [name.hex(), (b"x" * 16).hex()])
        assert {key: claim_of(value) for key, value in rows.items()} == {name.hex(): Claim(position, 1)}
        assert (name.hex(), rows[name.hex()]) in state.scan(CLAIMS)
        assert state.get(CLAIMS, name.hex()) == rows[name.hex()]


def test_a_file_whose_tables_cannot_be_made_is_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []

    def fail(connection: sqlite3.Connection) -> None:
        opened.append(connection)
        raise KeyboardInterrupt

    monkeypatch.setattr(small_state_sqlite, "make_table", fail)
    state = StateFile(tmp_path / "views.db", DiskFiles())
    with pytest.raises(KeyboardInterrupt), state.change() as changes:
        changes.put("rows#1", {"a": b"1"})
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")
    state.close()


def test_of_a_damaged_file_nothing_is_left(tmp_path: Path) -> None:
    """What SQLite keeps beside it would be put back into the new one."""
    state = StateFile(tmp_path / "views.db", DiskFiles())
    for ending in ("", "-wal", "-shm", ".other"):
        (tmp_path / f"views.db{ending}").write_bytes(b"damaged")
    state._remove(ValueError("damaged"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("views.db")] == ["views.db.other"]
    state.close()


@pytest.mark.parametrize(
    ("kind", "in_log"), [("memory", True), ("sqlite", True), ("jsonl", False), ("segments", False)]
)
def test_an_inline_view_is_part_of_the_write_where_its_rows_are_in_the_log(
    kind: str, in_log: bool, make_log: Callable[..., Log]
) -> None:
    with make_log(kind) as log:
        assert log._store.small_state.in_log is in_log
        log.views.register(Streams, mode="inline")
        assert bool(views_of(log)._derive.views) is in_log
