"""Where the newest events of a stream are, before the index of streams has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from everlog.errors import Damaged
from everlog.stores.sqlite import recent as module
from everlog.stores.sqlite.recent import Recent
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import seal_any
from everlog.testing.filling import append

Fetch = Callable[[str, Any], list[Any]]


@pytest.fixture
def fetch(tmp_path: Path) -> Iterator[Callable[[str], Fetch]]:
    """Opens the file of a store beside it: `fetch("one")`."""
    opened = []

    def of(name: str) -> Fetch:
        connection = sqlite3.connect(tmp_path / name)
        opened.append(connection)

        def ask(sql: str, parameters: Any) -> list[Any]:
            return connection.execute(sql, parameters).fetchall()

        return ask

    yield of
    for connection in opened:
        connection.close()


def filled(path: Path, *streams: str) -> SqliteStore:
    store = SqliteStore(path)
    for stream in streams:
        append(store, seal_any(stream=stream))
    return store


def test_events_are_found_once_as_the_log_grows(tmp_path: Path, fetch: Callable[[str], Fetch]) -> None:
    recent = Recent("one")
    with closing(filled(tmp_path / "one", "note/1", "note/2", "note/1")) as store:
        ask = fetch("one")
        for _ in range(2):
            assert recent.places(ask, "note/1") == [(1, 1), (2, 3)]
            assert recent.places(ask, "note/2") == [(1, 2)]
            assert recent.places(ask, "note/3") == []
        append(store, seal_any(stream="note/2"))
        assert recent.places(ask, "note/2") == [(1, 2), (2, 4)]
        assert recent.places(ask, "note/1") == [(1, 1), (2, 3)]


def test_what_the_index_has_is_not_looked_for(tmp_path: Path, fetch: Callable[[str], Fetch]) -> None:
    recent = Recent("one")
    with closing(filled(tmp_path / "one", "note/1", "note/2", "note/1")) as store:
        ask = fetch("one")
        assert recent.places(ask, "note/1") == [(1, 1), (2, 3)]
        with store.open_write() as write:
            write.purge("note/2", actor="user:ada", reason="asked to")  # it fills the index first
        assert recent.places(ask, "note/1") == []
        append(store, seal_any(stream="note/1"))
        assert recent.places(ask, "note/1") == [(3, 5)]
        assert Recent("one").places(ask, "note/1") == [(3, 5)]


def test_what_is_known_of_a_log_that_was_put_back_is_dropped(tmp_path: Path, fetch: Callable[[str], Fetch]) -> None:
    recent = Recent("one")
    with (
        closing(filled(tmp_path / "one", "note/1", "note/1")),
        closing(filled(tmp_path / "two", "note/2", "note/1", "note/1")),
    ):
        assert recent.places(fetch("one"), "note/1") == [(1, 1), (2, 2)]
        assert recent.places(fetch("two"), "note/1") == [(1, 2), (2, 3)]


def test_no_more_is_known_than_fits(
    tmp_path: Path, fetch: Callable[[str], Fetch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KNOWN_MAX", 2)
    recent = Recent("one")
    with closing(filled(tmp_path / "one", "note/1", "note/1")) as store:
        ask = fetch("one")
        recent.places(ask, "note/1")
        append(store, seal_any(stream="note/1"))
        assert recent.places(ask, "note/1") == [(1, 1), (2, 2), (3, 3)]
        kept = recent._places
        assert recent.places(ask, "note/1") == [(1, 1), (2, 2), (3, 3)]
        assert recent._places is not kept


def test_a_damaged_group_is_named(tmp_path: Path, fetch: Callable[[str], Fetch]) -> None:
    with closing(filled(tmp_path / "one", "note/1", "note/1")):
        ask = fetch("one")

        def damaged(sql: str, parameters: Any) -> list[Any]:
            return [
                tuple(value[:-1] if isinstance(value, bytes) and len(value) > 60 else value for value in row)
                for row in ask(sql, parameters)
            ]

        with pytest.raises(Damaged) as caught:
            Recent("one").places(damaged, "note/1")
        assert caught.value.details["position"] == 1
