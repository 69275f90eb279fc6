"""A build is made beside the active one, compared and activated; and back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.views.conftest import Said, Total
from tests.views.said import from_nothing, say
from tests.views.test_versions import Changed, stop_after

from everlog.errors import Busy, NotFound
from everlog.log.log import Log
from everlog.log.read import pages
from everlog.views import live
from everlog.views.builds import current, open_build
from everlog.views.builds.build import active_build, builds_of, drop_build
from everlog.views.builds.rows import kept_state
from everlog.views.live import LiveView
from everlog.views.rebuild import blue_green as rebuilding
from everlog.views.rebuild.blue_green import rebuild
from everlog.views.view import digest_of_bytes


def test_a_new_version_is_built_beside_and_the_old_one_is_kept(log: Log) -> None:
    class Newer(Said):
        version = 2

        def initial(self) -> dict[str, Any]:
            return {"values": ["new"], "count": 0}

    say(log, 1)
    log.view(Said).catch_up()
    log.views.close()
    handle = log.view(Newer)
    assert handle.get("thing/1").state["values"] == ["new", 1]
    names = [(build.number, build.version) for build in builds_of(log.views.small_state, "said")]
    assert names == [(1, 1), (2, 2)]

    assert handle.rollback().version == 1
    active = active_build(log.views.small_state, "said")
    assert active is not None
    assert active.version == 1


def test_old_code_does_not_take_the_place_of_new_code(log: Log) -> None:
    class Newer(Said):
        version = 2

    say(log, 1)
    log.view(Newer).catch_up()
    log.views.close()
    say(log, 2)
    assert log.view(Said).get("thing/1").state["values"] == [1, 2]
    active = active_build(log.views.small_state, "said")
    assert active is not None
    assert active.version == 2


def test_a_rollback_needs_something_to_go_back_to(log: Log) -> None:
    say(log, 1)
    log.view(Said).catch_up()
    with pytest.raises(NotFound):
        log.view(Said).rollback()


@pytest.mark.parametrize("view", [Said, Changed])
def test_a_rebuild_that_was_begun_goes_on_only_by_the_same_code(log: Log, view: type[Said]) -> None:
    for value in range(6):
        say(log, value)
    log.view(Said).catch_up()
    begun = rebuild(log, log.views.small_state, Said(), limit=2, stop=stop_after(2))
    assert (begun.switched, begun.position) == (False, 4)

    rebuilt = rebuild(log, log.views.small_state, view())
    assert rebuilt.resumed_at == (4 if view is Said else 0)
    states = {key: kept_state(data) for key, data in log.views.small_state.scan(f"said#{rebuilt.build}")}
    assert digest_of_bytes(states.items()) == from_nothing(log, view)


def test_rebuilds_by_two_codes_at_once_leave_each_other_in_peace(log: Log) -> None:
    for value in range(12):
        say(log, value)
    log.view(Said).catch_up()
    looks: list[int] = []

    def meanwhile(position: int) -> None:
        looks.append(position)
        if len(looks) == 2:
            rebuild(log, log.views.small_state, Changed(), switch=False)

    done = rebuild(log, log.views.small_state, Said(), limit=3, progress=meanwhile)
    assert (done.switched, done.digest) == (True, from_nothing(log, Said))
    assert looks == sorted(looks)  # it was not begun again


@pytest.mark.parametrize("times", [1, 99])
def test_a_rebuild_whose_build_is_taken_away_begins_again_and_not_for_ever(log: Log, times: int) -> None:
    for value in range(6):
        say(log, value)
    log.view(Said).catch_up()
    taken: list[int] = []

    def take_away(position: int) -> None:
        if len(taken) < times and (
            begun := [one for one in builds_of(log.views.small_state, "said") if not one.complete]
        ):
            taken.append(position)
            with log.views.small_state.change() as change:
                drop_build(change, begun[-1])

    if times > 1:
        with pytest.raises(Busy, match="could not be rebuilt"):
            rebuild(log, log.views.small_state, Said(), limit=2, progress=take_away)
    else:
        done = rebuild(log, log.views.small_state, Said(), limit=2, progress=take_away)
        assert (done.switched, done.digest) == (True, from_nothing(log, Said))


def test_a_rebuild_whose_build_is_replaced_by_another_process_is_done_again(
    make_log: Callable[..., Log], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes may rebuild at once, as after a change of the epoch. The second removes the build of the first,
    which must not be taken for lost rows."""
    with make_log("sqlite", tmp_path / "log") as log, make_log("sqlite", tmp_path / "log") as other:
        say(log, 1)
        log.view(Total).catch_up()
        real, left = rebuilding.activate, [2]

        def overtaken(*given: Any) -> bool | None:
            done = real(*given)
            while left[0]:  # twice: the one before the active one is kept
                left[0] -= 1
                other.view(Total).rebuild()
            return done

        monkeypatch.setattr(rebuilding, "activate", overtaken)
        done = log.view(Total).rebuild()
        assert (done.keys, done.digest) == (1, from_nothing(log, Total))
        assert log.view(Total).get("all").state["values"] == [1]


def test_a_rebuild_that_was_stopped_goes_on(log: Log) -> None:
    for number in range(20):
        say(log, number)
    handle = log.view(Total)
    handle.catch_up()
    steps = iter([False, False, False])
    rebuild(log, log.views.small_state, Total(), stop=lambda: next(steps, True), limit=3)
    done = handle.rebuild(limit=3)
    assert (done.resumed_at, done.same, done.build) == (9, True, 2)
    assert handle.rebuild(fresh=True).resumed_at == 0


def test_a_slow_rebuild_keeps_what_it_has_in_the_midst_of_a_page(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill undoes what was folded since, and no more."""
    monkeypatch.setattr(open_build, "GATHERED_S", -1.0)  # as if the view took longer than that for every piece
    monkeypatch.setattr(pages, "PIECE", 4)
    log = make_log()
    for number in range(10):
        say(log, number)
    kept: list[tuple[int, int]] = []
    small_state = log.views.small_state
    done = log.view(Total).rebuild(
        progress=lambda position: kept.append((position, builds_of(small_state, "total")[-1].position))
    )
    # A page begins with the event at its cursor, which is already applied.
    assert list(dict.fromkeys(kept)) == [(4, 4), (7, 7), (10, 10)]
    assert (done.applied, done.digest) == (10, from_nothing(log, Total))


@pytest.mark.parametrize("first", ["rebuild", "start_over"])
def test_one_rebuild_is_made_at_a_time(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Two would go on with one build: also one that finds, in another thread, that history changed."""
    second = "start_over" if first == "rebuild" else "rebuild"
    log = make_log()
    say(log, 1)
    one = LiveView(log, log.views.small_state, Total())
    begun: list[str] = []
    entered, go_on = threading.Event(), threading.Event()
    really = rebuild

    def held_up(*args: Any, **options: Any) -> Any:
        begun.append(threading.current_thread().name)
        entered.set()
        assert go_on.wait(20)
        return really(*args, **options)

    monkeypatch.setattr(live, "rebuild", held_up)
    monkeypatch.setattr(current, "rebuild", held_up)
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
    assert [build.complete for build in builds_of(log.views.small_state, "total")] == [True, True]
    one.close()


def test_a_build_that_moves_on_while_it_is_compared_is_compared_again(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what came between the two reads would be reported as a difference."""
    say(log, 1)
    handle = log.view(Said)
    handle.catch_up()
    real = rebuilding._differing
    rounds: list[int] = []

    def differing(*given: Any) -> Any:
        rounds.append(len(rounds))
        if len(rounds) == 1:
            say(log, 2)
            handle.catch_up()
        return real(*given)

    monkeypatch.setattr(rebuilding, "_differing", differing)
    rebuilt = handle.rebuild()
    assert (rebuilt.same, rebuilt.differing, rounds) == (True, (), [0, 1])
    assert handle.get("thing/1").state["values"] == [1, 2]
