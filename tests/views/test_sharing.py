"""Views in another copy of the log, in other processes, on a damaged shelf, for who may not write."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.at_once import at_once
from tests.views.conftest import Said, Total
from tests.views.said import from_nothing, say

from everlog.errors import ReadOnly
from everlog.log import pages
from everlog.log.log import Log
from everlog.views import builder, purging, runner
from everlog.views import rebuild as rebuilding
from everlog.views.rebuild import rebuild
from everlog.views.states import builds_of
from everlog.views.views import Handle

# ---- another copy, other processes, a damaged shelf


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


def test_a_cursor_ahead_of_the_log_builds_anew(log: Log) -> None:
    import msgspec

    from everlog.views.states import active_build, put_build

    say(log, 1)
    handle = log.view(Total)
    handle.catch_up()
    log.views.close()
    build = active_build(log.views.shelf, "total")
    assert build is not None
    with log.views.shelf.change() as change:
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
        handle, shelf = log.view(Total), log.views.shelf
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
                    rebuild(other, other.views.shelf, Total(), fresh=True)
                assert found.build.number not in [build.number for build in builds_of(shelf, "total")]
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


def test_who_waited_for_a_view_gets_what_is_kept(make_log: Callable[..., Log], tmp_path: Path, kind: str) -> None:
    """Another process may empty a build that a thread of this one keeps: it does after a purge, if it does not have
    the view's code. The thread finds out later, and until then nobody may be told that the view is there."""
    if kind in ("memory", "segments"):
        pytest.skip("such a log has one writer")
    with make_log(kind, tmp_path / "log") as log, make_log(kind, tmp_path / "log") as other:
        for number in range(3):
            position = say(log, number)
        log.views.register(Total, mode="async")
        assert log.view(Total).get("all").state["count"] == 3
        build = log.view(Total).build()
        assert build is not None
        purging._forget(other, other.views.shelf, build, lambda name: None)
        log.wait_for(Total, position, 20)
        assert log.view(Total).get("all", fresh=False).state["count"] == 3


QUESTIONS: dict[str, Callable[[Handle], object]] = {
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
        purging._forget(other, other.views.shelf, build, lambda name: None)
        assert QUESTIONS[question](log.view(Total)) == 3


def test_a_rebuild_whose_build_is_replaced_by_another_process_is_done_again(
    make_log: Callable[..., Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes may rebuild at once, as after a change of the epoch. The second removes the build of the first,
    which must not be taken for lost rows."""
    with make_log("sqlite", tmp_path / "log") as log, make_log("sqlite", tmp_path / "log") as other:
        say(log, 1)
        log.view(Total).catch_up()
        real, left = rebuilding.activate, [2]

        def overtaken(*given: Any) -> bool:
            done = real(*given)
            while left[0]:  # twice: the one before the active one is kept
                left[0] -= 1
                other.view(Total).rebuild()
            return done

        monkeypatch.setattr(rebuilding, "activate", overtaken)
        done = log.view(Total).rebuild()
        assert (done.keys, done.digest) == (1, from_nothing(log, Total))
        assert log.view(Total).get("all").state["values"] == [1]


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
        assert "made again" in caplog.text


def test_a_rebuild_that_was_stopped_goes_on(log: Log) -> None:
    for number in range(20):
        say(log, number)
    handle = log.view(Total)
    handle.catch_up()
    steps = iter([False, False, False])
    rebuild(log, log.views.shelf, Total(), stop=lambda: next(steps, True), limit=3)
    done = handle.rebuild(limit=3)
    assert (done.resumed_at, done.same, done.build) == (9, True, 2)
    assert handle.rebuild(fresh=True).resumed_at == 0


def test_a_slow_rebuild_keeps_what_it_has_in_the_midst_of_a_page(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill undoes what was folded since, and no more."""
    monkeypatch.setattr(builder, "GATHERED_S", -1.0)  # as if the view took longer than that for every piece
    monkeypatch.setattr(pages, "PIECE", 4)
    log = make_log()
    for number in range(10):
        say(log, number)
    kept: list[tuple[int, int]] = []
    shelf = log.views.shelf
    done = log.view(Total).rebuild(
        progress=lambda position: kept.append((position, builds_of(shelf, "total")[-1].position))
    )
    assert list(dict.fromkeys(kept)) == [(4, 4), (8, 8), (10, 10)]
    assert (done.applied, done.digest) == (10, from_nothing(log, Total))


@pytest.mark.parametrize("first", ["rebuild", "_start_over"])
def test_one_rebuild_is_made_at_a_time(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Two would go on with one build: also one that finds, in another thread, that history changed."""
    second = "_start_over" if first == "rebuild" else "rebuild"
    log = make_log()
    say(log, 1)
    one = runner.Runner(log, log.views.shelf, Total())
    begun: list[str] = []
    entered, go_on = threading.Event(), threading.Event()
    really = rebuild

    def held_up(*args: Any, **options: Any) -> Any:
        begun.append(threading.current_thread().name)
        entered.set()
        assert go_on.wait(20)
        return really(*args, **options)

    monkeypatch.setattr(runner, "rebuild", held_up)
    threads = [threading.Thread(target=getattr(one, name), name=name) for name in (first, second)]
    threads[0].start()
    assert entered.wait(20)
    threads[1].start()
    threads[1].join(0.2)
    assert begun == [first]
    go_on.set()
    for thread in threads:
        thread.join(20)
    assert begun == [first, second]
    assert [build.complete for build in builds_of(log.views.shelf, "total")] == [True, True]
    one.close()


def test_who_may_not_write_gets_an_old_answer_that_says_so(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    say(log, 1)
    handle = log.view(Total)
    handle.catch_up()
    say(log, 2)

    def refuse() -> Any:
        raise ReadOnly("this disk cannot be written")

    monkeypatch.setattr(log.views.shelf, "change", refuse)
    answer = handle.get("all")
    assert (answer.state["values"], answer.lag) == ([1], 1)
    with pytest.raises(ReadOnly):
        log.view(Said).get("thing/1")
    monkeypatch.undo()
    assert handle.get("all").state["values"] == [1, 2]
