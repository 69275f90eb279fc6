"""A purge reaches what views keep: not a word of it stays on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import ByActor, Picky, Said, Total

from everlog.log.log import Log
from everlog.views.builtin import BUILT_IN
from everlog.views.states import active_build, builds_of
from everlog.views.view import View
from everlog.views.views import Views

SECRET = "unmistakable-words"


def words_left(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def fill(log: Log) -> None:
    log.append("thing.said", stream="thing/1", payload={"value": SECRET}, actor="user:ada")
    for number in range(40):
        log.append("thing.said", stream=f"thing/x{number}", payload={"value": number}, actor="user:bob")


@pytest.mark.parametrize("view", [Said, ByActor, Total])
@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_not_a_word_stays_in_any_build(
    make_log: Callable[..., Log], tmp_path: Path, kind: str, view: type[View], known: bool
) -> None:
    with make_log(kind, tmp_path / "log") as log:
        fill(log)
        log.view(view).catch_up()
        log.view(view).rebuild()
    assert words_left(tmp_path), "otherwise this proves nothing"

    # Whoever purges may not even know the view's code.
    views = (*BUILT_IN, view) if known else BUILT_IN
    with make_log(kind, tmp_path / "log", make_views=lambda log: Views(log, views)) as log:
        log.purge("thing/1", reason="a request")
        assert words_left(tmp_path) == []
    with make_log(kind, tmp_path / "log") as log:
        handle = log.view(view)
        assert handle.audit().ok
        handle.catch_up()
        assert handle.audit().ok
        assert log.verify().ok
        assert SECRET not in str(dict(handle.items()))


def test_a_view_that_holds_nothing_of_it_is_left_alone(log: Log) -> None:
    fill(log)
    log.append("note.added", stream="note/1", payload={"text": SECRET})
    log.view(Said).catch_up()
    before = active_build(log.views.shelf, "said")
    log.purge("note/1", reason="a request")
    assert active_build(log.views.shelf, "said") == before


def test_the_way_back_to_purged_words_is_closed(log: Log) -> None:
    fill(log)
    handle = log.view(Said)
    handle.catch_up()
    handle.rebuild()
    assert len(builds_of(log.views.shelf, "said")) == 2
    log.purge("thing/1", reason="a request")
    assert len(builds_of(log.views.shelf, "said")) == 1
    assert not handle.get("thing/1").found


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_view_goes_on_when_what_stopped_it_is_purged(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    with make_log(kind, tmp_path / "log") as log:
        handle = log.view(Picky)
        log.append("thing.said", stream="thing/1", payload={"value": {"key": "a"}})
        log.append("thing.said", stream="thing/bad", payload={"value": {SECRET: "and no key"}})
        log.append("thing.said", stream="thing/1", payload={"value": {"key": "a"}})
        assert handle.get("a").stopped_at == 2
        log.purge("thing/bad", reason="a request")
        assert handle.dead_letters() == []
        assert words_left(tmp_path) == []
        answer = handle.get("a")
        assert (answer.state, answer.stopped_at) == ({"count": 2}, 0)
        assert handle.audit().ok
        assert handle.rebuild().same
