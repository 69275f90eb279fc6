"""A purge reaches what views keep: not a word of it stays on the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import ByActor, Picky, Said, Total

from everlog.core.query import Query
from everlog.log.log import Log
from everlog.views.builds.build import BUILDS, active_build, builds_of
from everlog.views.builtin import BUILT_IN
from everlog.views.registry import Views
from everlog.views.view import View

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
    before = active_build(log.views.small_state, "said")
    log.purge("note/1", reason="a request")
    assert active_build(log.views.small_state, "said") == before


def test_the_way_back_to_purged_words_is_closed(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    fill(log)
    handle = log.view(Said)
    handle.catch_up()
    handle.rebuild()
    assert len(builds_of(log.views.small_state, "said")) == 2
    log.purge("thing/1", reason="a request")
    assert len(builds_of(log.views.small_state, "said")) == 1
    assert not handle.get("thing/1").found
    assert caplog.messages == []


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


class Broken(Said):
    """The same name and version, and code that fails as soon as anybody asks what it reads."""

    @property
    def query(self) -> Query:
        raise ZeroDivisionError("no query")


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_states_of_a_view_whose_code_fails_are_emptied(
    make_log: Callable[..., Log], tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    with make_log(kind, tmp_path / "log") as log:
        fill(log)
        log.view(Said).catch_up()
    with make_log(kind, tmp_path / "log", make_views=lambda log: Views(log, (Broken,))) as log:
        log.purge("thing/1", reason="a request")
    assert words_left(tmp_path) == []
    (message,) = caplog.messages
    assert message == "the view said cannot follow a purge, and is rebuilt: ZeroDivisionError: no query"
    with make_log(kind, tmp_path / "log") as log:
        assert log.view(Said).count() == 40
        assert log.view(Said).audit().ok


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_what_a_purge_could_not_take_out_of_states_is_taken_out_later(
    make_log: Callable[..., Log], tmp_path: Path, kind: str, known: bool
) -> None:
    with make_log(kind, tmp_path / "log") as log:
        fill(log)
        log.append("thing.said", stream="thing/2", payload={"value": 1})
        for view in (Said, ByActor, Total):
            log.view(view).rebuild()
            log.view(view).rebuild()
    with make_log(kind, tmp_path / "log", make_views=None) as log:  # as if it were killed after the commit
        log.purge("thing/1", reason="a request")
    assert words_left(tmp_path), "otherwise this proves nothing"
    views = (*BUILT_IN, Said, ByActor, Total) if known else BUILT_IN
    with make_log(kind, tmp_path / "log", make_views=lambda log: Views(log, views)) as log:
        log.views.forget_missed()
        assert words_left(tmp_path) == []
    with make_log(kind, tmp_path / "log") as log:
        for view in (Said, ByActor, Total):
            log.view(view).catch_up()
            assert log.view(view).audit().ok
        before = dict(log.views.small_state.scan("builds"))
        log.views.forget_missed()
        assert dict(log.views.small_state.scan("builds")) == before, "what has followed is left alone"


def test_a_purge_stands_whatever_becomes_of_the_states(
    make_log: Callable[..., Log], caplog: pytest.LogCaptureFixture
) -> None:
    def no_views(log: Log) -> Views:
        raise MemoryError

    with make_log(make_views=no_views) as log:
        fill(log)
        assert log.purge("thing/1", reason="a request").count == 1
    (message,) = caplog.messages
    assert message.startswith(
        "the purge of thing/1 is done, but the states of views may still contain words of it: MemoryError"
    )


def test_an_interrupt_while_states_are_emptied_is_one_and_says_that_the_purge_stands(
    log: Log, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(views: Views, stream: str) -> None:
        raise KeyboardInterrupt

    fill(log)
    monkeypatch.setattr(Views, "forget_purged", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.purge("thing/1", reason="a request")
    assert len(log.stored.purges()) == 1
    assert "the purge of thing/1 is done" in caplog.messages[-1]


@pytest.mark.parametrize("number", ["x", "²"])
def test_a_purge_removes_a_build_whose_number_is_damaged(
    make_log: Callable[..., Log], tmp_path: Path, number: str
) -> None:
    """The key of a damaged record is not a number any more, and its rows may contain purged text all the same."""
    with make_log("sqlite", tmp_path / "log") as log, make_log("sqlite", tmp_path / "log") as other:
        fill(log)
        log.view(Said).catch_up()
        with log.views.small_state.change() as change:
            change.put(BUILDS, {f"said#{number}": b"{}"})
            change.put(f"said#{number}", {"thing/1": SECRET.encode()})
        other.purge("thing/1", reason="a request")
        assert words_left(tmp_path) == []
        assert log.view(Said).audit().ok
        assert [build.number for build in builds_of(log.views.small_state, "said")] == [2]
