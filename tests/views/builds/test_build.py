"""A build knows whose code made its states."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import CATALOG
from tests.views.conftest import Said
from tests.views.said import from_nothing, say
from tests.views.test_versions import Changed, Marking, state_of

import everlog
from everlog.errors import OtherCode
from everlog.log.log import Log
from everlog.views.builds.build import Build, begin_build, builds_of
from everlog.views.builds.open_build import OpenBuild


def test_a_first_build_that_other_code_has_begun_is_not_gone_on_with(log: Log) -> None:
    for value in range(4):
        say(log, value)
    with log.views.small_state.change() as change:
        build = begin_build(change, Said())
    OpenBuild(log, log.views.small_state, Said(), build, live=False).catch_up(limit=2, upto=2)
    assert log.view(Changed).digest() == from_nothing(log, Changed)


def test_states_that_two_codes_have_made_are_of_neither(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", catalog=CATALOG) as log:
        say(log, 1)
        log.view(Said).catch_up()
        log.views.close()
        say(log, 2)
        log.view(Marking).catch_up()
        log.views.close()
        assert log.view(Said).get("thing/1").state["values"] == [1, 2, "marked"]
        assert state_of(log) == "other code"
        for view in (Said, Marking):
            log.views.close()
            with pytest.raises(OtherCode):
                log.view(view).snapshot()
        log.views.close()
        log.view(Said).rebuild()
        assert state_of(log) == "ok"


def test_an_empty_build_belongs_to_the_code_that_fills_it(log: Log) -> None:
    say(log, 1)
    with log.views.small_state.change() as change:
        build = begin_build(change, Said())
    OpenBuild(log, log.views.small_state, Changed(), build, live=False).catch_up()
    (filled,) = builds_of(log.views.small_state, "said")
    assert (filled.is_of(Changed()), filled.is_of(Said())) == (True, False)


def test_a_build_of_another_version_is_of_other_code() -> None:
    class Newer(Said):
        version = 2

    unknown = Build(name="said", number=1, version=1)
    assert unknown.is_of(Said())
    assert not unknown.is_of(Newer())


def test_what_a_change_has_emptied_is_not_read_in_it_and_by_others_until_it_is_committed(log: Log) -> None:
    """A build takes the number of one whose record was lost, and must not count what that one has left."""
    small_state, keys = log.views.small_state, ["a", "b"]
    with small_state.change() as change:
        change.put("left", {"a": b"1", "b": b"2"})
    with small_state.change() as change:
        change.clear("left")
        assert change.rows("left", keys) == {}
        change.put("left", {"b": b"3"})
        assert change.rows("left", keys) == {"b": b"3"}
        assert small_state.rows("left", keys) == {"a": b"1", "b": b"2"}
    assert small_state.rows("left", keys) == {"b": b"3"}
