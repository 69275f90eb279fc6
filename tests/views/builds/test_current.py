"""The current build in another copy of the log, in other processes, on damaged small state, without write access."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.at_once import at_once
from tests.views.conftest import Said, Total
from tests.views.said import from_nothing, say

from everlog.errors import Busy, ReadOnly, ViewBehind
from everlog.log.log import Log
from everlog.views.builds import current, purge
from everlog.views.builds.build import BUILDS, begin_build, builds_of
from everlog.views.live import LiveView
from everlog.views.rebuild.blue_green import activate, rebuild
from everlog.views.registry import live_view

# ---- another copy, other processes, a damaged small_state


def test_a_restored_older_copy_brings_its_own_views(make_log: Callable[..., Log], tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with make_log("sqlite", path) as log:
        say(log, 1)
        log.view(Total).catch_up()
    older = path.read_bytes()
    with make_log("sqlite", path) as log:
        say(log, 2)
        assert log.view(Total).get("all").state["values"] == [1, 2]
    path.write_bytes(older)
    with make_log("sqlite", path) as log:
        say(log, 3)
        assert log.view(Total).get("all").state["values"] == [1, 3]
        assert log.view(Total).audit().ok


def test_a_cursor_ahead_of_the_log_leads_to_a_rebuild(log: Log) -> None:
    import msgspec

    from everlog.views.builds.build import active_build, put_build

    say(log, 1)
    handle = log.view(Total)
    handle.catch_up()
    log.views.close()
    build = active_build(log.views.small_state, "total")
    assert build is not None
    with log.views.small_state.change() as change:
        put_build(change, msgspec.structs.replace(build, cursor="900"))
    handle = log.view(Total)
    assert handle.get("all").state["values"] == [1]
    assert handle.position() == 1
    assert handle.audit().ok


def test_an_answer_never_comes_from_a_build_that_was_removed_under_it(
    make_log: Callable[..., Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer build removes the rows of the older ones: what is read of them then is not an answer."""
    path = tmp_path / "log.db"
    with make_log("sqlite", path) as log, make_log("sqlite", path) as other:
        say(log, 1)
        handle, small_state = live_view(log, Total), log.views.small_state
        questions: list[Callable[[], Any]] = [
            lambda: handle.get("all").state["values"],
            lambda: [state["values"] for state in handle.get_many(["all"]).values()],
            lambda: [key for key, _ in handle.items()],
            handle.count,
        ]
        for question in questions:
            wanted = question()
            assert wanted
            ready = handle._ready

            def overtaken(fresh: bool, ready: Callable[[bool], Any] = ready) -> Any:
                found = ready(fresh)
                monkeypatch.undo()  # once
                for _ in range(2):
                    rebuild(other, other.views.small_state, Total(), fresh=True)
                assert found.build.number not in [build.number for build in builds_of(small_state, "total")]
                return found

            monkeypatch.setattr(handle, "_ready", overtaken)
            assert question() == wanted


def test_two_handles_on_one_log_never_apply_twice(make_log: Callable[..., Log], tmp_path: Path, kind: str) -> None:
    if kind in ("memory", "segments"):
        pytest.skip("such a log has one writer")
    with make_log(kind, tmp_path / "log") as one, make_log(kind, tmp_path / "log") as other:
        handles = [one.view(Total), other.view(Total)]
        for number in range(12):
            say((one, other)[number % 2], number)
            if number % 3:
                handles[number % 2].catch_up(limit=2)
        at_once(*(handle.catch_up for handle in handles))
        assert [handle.get("all").state["count"] for handle in handles] == [12, 12]
        assert handles[0].digest() == handles[1].digest() == from_nothing(one, Total)


def test_a_view_that_was_overtaken_goes_on_to_the_head(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    """A page without an event to apply moves the cursor. If another handle changed the build meanwhile, the cursor is
    the other one's, which may be short of the head."""
    if kind in ("memory", "segments"):
        pytest.skip("such a log has one writer")
    with make_log(kind, tmp_path / "log") as one, make_log(kind, tmp_path / "log") as other:
        assert one.view(Total).catch_up() == 0
        say(other, 1)
        assert other.view(Total).catch_up() == 1
        other.purge("thing/1", reason="asked to")
        answer = one.view(Total).get("all")
        assert (answer.state, answer.position, answer.lag) == (None, 2, 0)


def test_after_waiting_for_a_view_its_stored_states_have_the_position(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    """Another process may empty a build that a thread of this one keeps: it does after a purge, if it does not have
    the view's code. The thread finds out later, and until then the view must not claim the position."""
    if kind in ("memory", "segments"):
        pytest.skip("such a log has one writer")
    with make_log(kind, tmp_path / "log") as log, make_log(kind, tmp_path / "log") as other:
        for number in range(3):
            position = say(log, number)
        log.views.register(Total, mode="async")
        assert log.view(Total).get("all").state["count"] == 3
        log.wait_for(Total, position, 20)  # then the build is stored
        build = log.view(Total).build()
        assert build is not None
        purge._forget(other, other.views.small_state, build, lambda name: None)
        log.wait_for(Total, position, 20)
        assert log.view(Total).get("all", fresh=False).state["count"] == 3


def test_waiting_for_a_new_view_is_over_when_its_first_build_answers(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that keeps it has applied everything before, and other processes do not see its build until then."""
    position, goes_on = say(log, 1), threading.Event()

    def late(*asked: Any) -> bool | None:
        assert goes_on.wait(20)
        return activate(*asked)

    monkeypatch.setattr(current, "activate", late)
    log.views.register(Total, mode="async")
    with pytest.raises(ViewBehind):
        log.wait_for(Total, position, 0.5)
    goes_on.set()
    log.wait_for(Total, position, 20)
    assert log.view(Total).build() is not None


def test_an_answer_of_a_new_view_comes_when_its_build_is_stored(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may be about to let the build answer."""
    say(log, 1)
    there, goes_on = threading.Event(), threading.Event()

    def late(*asked: Any) -> bool | None:
        if not there.is_set():  # the first thread
            there.set()
            assert goes_on.wait(20)
        return activate(*asked)

    monkeypatch.setattr(current, "activate", late)
    log.views.register(Total, mode="async")
    assert there.wait(20)
    assert log.view(Total).get("all").state["values"] == [1]
    assert log.view(Total).build() is not None
    goes_on.set()


def test_a_new_build_that_could_not_be_activated_is_activated_with_the_next_answer(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(log, 1)

    def refuse(*asked: Any) -> bool | None:
        raise Busy("another process is writing views there")

    monkeypatch.setattr(current, "activate", refuse)
    with pytest.raises(Busy):
        log.view(Total).get("all")
    monkeypatch.undo()
    assert log.view(Total).get("all").state["values"] == [1]
    assert log.view(Total).build() is not None


QUESTIONS: dict[str, Callable[[LiveView], object]] = {
    "get": lambda view: view.get("all").state["count"],
    "get_many": lambda view: view.get_many(["all"])["all"]["count"],
    "items": lambda view: dict(view.items())["all"]["count"],
    "count": lambda view: 3 * view.count(),
    "digest": lambda view: 3 if view.digest() == view.rebuild().digest else 0,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_never_comes_from_a_build_that_was_emptied_under_it(
    make_log: Callable[..., Log], tmp_path: Path, question: str
) -> None:
    with make_log("sqlite", tmp_path / "log") as log, make_log("sqlite", tmp_path / "log") as other:
        for number in range(3):
            say(log, number)
        log.view(Total).catch_up()
        build = log.view(Total).build()
        assert build is not None
        purge._forget(other, other.views.small_state, build, lambda name: None)
        assert QUESTIONS[question](live_view(log, Total)) == 3


def test_two_workers_on_one_view_agree(make_log: Callable[..., Log], tmp_path: Path) -> None:
    with make_log("sqlite", tmp_path / "log.db") as one, make_log("sqlite", tmp_path / "log.db") as other:
        for log in (one, other):
            log.views.register(Total, mode="async")
        for number in range(30):
            position = say((one, other)[number % 2], number)
        for log in (one, other):
            log.wait_for(Total, position, 20)
            assert log.view(Total).get("all").state["count"] == 30
            assert log.view(Total).audit().ok


def test_a_damaged_file_of_views_is_made_again(
    make_log: Callable[..., Log], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with make_log("jsonl", tmp_path / "log") as log:
        say(log, 1)
        log.view(Total).catch_up()
    (tmp_path / "log" / "local" / "views.db").write_bytes(b"this is no database" * 1000)
    with make_log("jsonl", tmp_path / "log") as log:
        assert log.view(Total).get("all").state["values"] == [1]
        assert "rebuilt from the events" in caplog.text


def test_a_reader_without_write_access_gets_an_old_answer_with_its_lag(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(log, 1)
    handle = log.view(Total)
    handle.catch_up()
    say(log, 2)

    def refuse() -> Any:
        raise ReadOnly("this disk cannot be written")

    monkeypatch.setattr(log.views.small_state, "change", refuse)
    answer = handle.get("all")
    assert (answer.state["values"], answer.lag) == ([1], 1)
    with pytest.raises(ReadOnly):
        log.view(Said).get("thing/1")
    monkeypatch.undo()
    assert handle.get("all").state["values"] == [1, 2]


def test_an_answer_reads_the_record_of_its_build_once(
    make_log: Callable[..., Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the answer, which shows that no other handle has moved the build."""
    with make_log("sqlite", tmp_path / "log") as log, make_log("sqlite", tmp_path / "log") as other:
        say(log, 1)
        handle = log.view(Total)
        handle.catch_up()
        read, asked = log.views.small_state.get, list[str]()

        def counted(space: str, key: str) -> bytes | None:
            asked.append(space)
            return read(space, key)

        monkeypatch.setattr(log.views.small_state, "get", counted)
        assert handle.get("all").state["values"] == [1]
        assert asked.count(BUILDS) == 1
        say(other, 2)
        other.view(Total).catch_up()
        assert handle.get("all").state["values"] == [1, 2]


def test_a_build_that_was_begun_by_this_code_is_continued_and_one_of_another_version_is_not(log: Log) -> None:
    class Other(Total):
        version = 2

    say(log, 1)
    with log.views.small_state.change() as change:
        begun, other = (begin_build(change, code(), str(log.verdicts()), 0) for code in (Total, Other))
    assert begun.number != other.number
    assert live_view(log, Total).current().build.number == begun.number
    assert log.view(Total).get("all").state["values"] == [1]
