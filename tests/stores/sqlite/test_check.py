"""The check of an SQLite log follows its indexes both ways: from events to entries, and from entries to events."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.sqlite.own import own_event
from tests.support.sqlite_edits import edit

from everlog.stores.sqlite import tail
from everlog.stores.sqlite.queries import BLOCK
from everlog.stores.sqlite.store import SqliteStore
from everlog.testing.builders import seal_any
from everlog.testing.filling import append


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log whose streams are indexed, with ids of elsewhere that are not in the order of positions."""
    monkeypatch.setattr(tail, "TAIL_MAX", 2)
    path = tmp_path / "log.db"
    with closing(SqliteStore(path)) as store:
        for number in range(6):
            own_event(store, stream=f"thing/{number % 2}")
        append(store, *reversed([seal_any(stream="thing/2") for _ in range(4)]))
        for _ in range(4):
            own_event(store, stream="thing/1")
        assert list(store.check()) == []
    return path


def problems(path: Path) -> list[tuple[int, str]]:
    with closing(SqliteStore(path)) as store:
        found = list(store.check())
    return [(problem.position, problem.reason) for problem in found if problem.code == "index_disagrees"]


STRAY = "0" * 26


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("DELETE FROM stream_places WHERE position = 3", (3, "its stream's index does not lead to it")),
        (
            "INSERT INTO stream_places SELECT stream, 99, 3 FROM stream_places WHERE position = 3",
            (3, "the index of a stream leads here, and its event is not here"),
        ),
        (
            "INSERT INTO stream_places SELECT 999, 1, 3",
            (3, "the index of a stream leads here, and its event is not here"),
        ),
        (
            "INSERT INTO id_strays VALUES ('00000000000000000000000000', 3)",
            (3, f"the id {STRAY} is filed here and is not here"),
        ),
        (
            "INSERT INTO id_strays VALUES ('00000000000000000000000000', 77)",
            (77, f"the id {STRAY} is filed here and is not here"),
        ),
    ],
)
@pytest.mark.parametrize("purged", ["", "thing/2"])
def test_every_false_entry_is_reported_and_no_other(
    path: Path, sql: str, expected: tuple[int, str], purged: str
) -> None:
    if purged:
        with closing(SqliteStore(path)) as store, store.open_write() as writer:
            writer.purge(purged, actor="user:ada", reason="asked to")
    edit(path, sql)
    assert problems(path) == [expected]


def test_an_id_of_elsewhere_that_lost_its_entry_is_reported_unless_its_event_was_purged(path: Path) -> None:
    """An id that is not in the order of positions has an entry of its own, which stays if its event is purged."""
    made = [seal_any(stream=f"thing/{number % 2}") for number in range(2 * BLOCK)]
    with closing(SqliteStore(path)) as store:
        append(store, *made[BLOCK:], *made[:BLOCK])
        with store.open_write() as writer:
            writer.purge("thing/0", actor="user:ada", reason="asked to")
    edit(path, "INSERT INTO id_strays VALUES ('00000000000000000000000000', 4)")
    assert problems(path) == [(4, f"the id {STRAY} is filed here and is not here")]
    lost = made[1].event.id
    edit(path, f"DELETE FROM id_strays WHERE id IN ('{STRAY}', '{lost}')")  # noqa: S608
    ((_, reason),) = problems(path)
    assert reason == f"the id {lost} leads to another place"
