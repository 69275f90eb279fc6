"""The status of a view, from what is stored: no view is run for it."""

from __future__ import annotations

from tests.views.conftest import Said
from tests.views.said import say

from everlog.log.log import Log
from everlog.views.builds.overview import Overview, overview


def status(log: Log, code: type[Said] | None = Said) -> Overview:
    return overview(log.views.small_state, "said", None if code is None else code(), log.head())


def test_a_view_that_never_ran_is_behind_by_the_whole_log_and_stays_so(log: Log) -> None:
    say(log, 1)
    for _ in range(2):
        found = status(log)
        assert (found.state, found.lag, found.build, found.code_version) == ("never run", 1, 0, 1)


def test_a_view_is_ok_then_behind_then_parked(log: Log) -> None:
    say(log, 1)
    log.view(Said).catch_up()
    found = status(log)
    assert (found.state, found.position, found.lag, found.keys, found.applied) == ("ok", 1, 0, 1, 1)
    say(log, "poison")
    assert (status(log).state, status(log).lag) == ("behind", 1)
    log.view(Said).catch_up()
    assert (status(log).state, status(log).letters) == ("parked", 1)
    log.view(Said).skip(2, reason="a test")
    assert (status(log).state, status(log).letters) == ("ok", 0)


def test_other_code_is_reported_and_a_view_without_code_is_not(log: Log) -> None:
    class Changed(Said):
        version = 2

    say(log, 1)
    log.view(Said).catch_up()
    assert (status(log, Changed).state, status(log, Changed).version) == ("other code", 1)
    assert (status(log, None).state, status(log, None).code_version) == ("ok", 0)


def test_a_lost_row_is_reported(log: Log) -> None:
    say(log, 1)
    log.view(Said).catch_up()
    log.views.close()
    with log.views.small_state.change() as change:
        build = log.view(Said).build()
        assert build is not None
        change.put(build.rows, {"thing/1": None})
    assert status(log).state == "damaged"


def test_a_build_that_is_being_made_beside_it_is_shown_with_its_place(log: Log) -> None:
    for value in range(4):
        say(log, value)
    shown: list[tuple[str, int, int, int]] = []

    def look(position: int) -> None:
        found = status(log)
        shown.append((found.state, found.build, found.building, found.building_at))

    log.view(Said).rebuild(limit=2, progress=look)
    assert (shown[0], shown[-1]) == (("never run", 0, 1, 0), ("never run", 0, 1, 4))
    shown.clear()
    log.view(Said).rebuild(limit=2, progress=look)
    assert (shown[0], shown[-1]) == (("ok", 1, 2, 0), ("ok", 1, 2, 4))
    found = status(log)
    assert (found.state, found.build, found.previous, found.building, found.building_at) == ("ok", 2, 1, 0, 0)
