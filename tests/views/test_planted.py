"""Planted bugs: what the tests of views are for must make them fail, or they prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.views.conftest import ByActor, Causal

from everlog.core.query import EVERYTHING
from everlog.log.derived import ViewOfLog
from everlog.log.log import Log
from everlog.log.read import pages
from everlog.testing.builders import event
from everlog.views import fold
from everlog.views.builds import content, in_memory, open_build
from everlog.views.builds.rows import Row, row_of
from everlog.views.fold import fold_all
from everlog.views.rebuild import blue_green
from everlog.views.view import digest


def history(log: Log) -> ViewOfLog:
    """A history that meets everything: several streams a key, a late event, a purge, a rebuild."""
    handle = log.view(Causal)
    for number in range(9):
        log.append("thing.said", stream=f"thing/{number % 3}", payload={"value": number}, actor=f"user:u{number % 2}")
        handle.catch_up(limit=2)
    log.purge("thing/1", reason="a request")
    handle.catch_up(limit=2)
    log.admit([event("thing.said", stream="thing/8", payload={"value": "late"}, lamport=2, actor="user:u0")])
    handle.catch_up(limit=2)
    return handle


def whole(log: Log, handle: ViewOfLog) -> bool:
    expected = digest(fold_all(handle.view, log._store.read(EVERYTHING), upcast=log.catalog.upcast).items())
    same = handle.digest() == expected
    audit = handle.audit()
    return same and audit.ok


def late_events_are_taken_as_they_come(patch: pytest.MonkeyPatch) -> None:
    real = fold.fold

    def careless(view: Any, rows: Any, records: Any, **options: Any) -> Any:
        for row in rows.values():
            row.last = (0, "")
        return real(view, rows, records, **options)

    patch.setattr(in_memory, "fold", careless)
    patch.setattr(fold, "row_of", _without_order)
    patch.setattr(content, "row_of", _without_order)


def _without_order(data: bytes) -> Row:
    row = row_of(data)
    return Row(row.state, row.count, (0, ""), row.sources or set(), is_new=False)


def a_purge_is_not_followed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("everlog.views.builds.open_build.keys_fed_by", lambda small_state, build, streams: set())
    patch.setattr("everlog.views.registry.forget_purged", lambda *arguments: None)


def streams_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fold, "remember_source", lambda row, stream: None)


def the_cursor_is_kept_without_the_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_memory, "kept_rows", lambda *arguments: {})


def a_page_leaves_an_event_out(patch: pytest.MonkeyPatch) -> None:
    def leaky(*arguments: Any, **options: Any) -> Any:
        page = pages.OpenPage(*arguments, **options)
        page.found = iter([[one for one in piece if one.event.payload["value"] != "late"] for piece in page.found])
        return page

    patch.setattr(open_build, "OpenPage", leaky)


def places_are_not_marked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_memory, "mark_applied", lambda *arguments: 0)


PLANTED = [
    late_events_are_taken_as_they_come,
    a_purge_is_not_followed,
    streams_are_forgotten,
    the_cursor_is_kept_without_the_rows,
    a_page_leaves_an_event_out,
    places_are_not_marked,
]


@pytest.fixture
def memory(make_log: Callable[..., Log]) -> Iterator[Log]:
    with make_log("memory") as log:
        yield log


def test_without_a_bug_the_history_is_whole(memory: Log) -> None:
    assert whole(memory, history(memory))


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_noticed(memory: Log, bug: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    handle = history(memory)
    monkeypatch.undo()
    assert not whole(memory, handle)


def test_a_rebuild_that_publishes_changes_is_detected(memory: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[int] = []

    class Publishing(ByActor):
        name = "publishing"

        def on_change(self, changes: Any) -> None:
            published.append(len(changes))

    real = open_build.OpenBuild
    monkeypatch.setattr(blue_green, "OpenBuild", lambda *arguments, live: real(*arguments, live=True))
    memory.append("thing.said", stream="thing/1", payload={"value": 1})
    memory.view(Publishing).rebuild()
    assert published == [1], "the bug was not planted"
