"""States of views: found or not, how old they are, kept up to date, rebuilt and audited."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import everlog
from everlog.application.views import states
from everlog.errors import NotFound, ReadOnly


@pytest.fixture
def log(tmp_path: Path) -> Iterator[everlog.Log]:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        for number in (1, 2, 3):
            log.append("note.added", stream=f"note/{number}", payload={"text": "x"})
        yield log


@contextmanager
def quiet(name: str = "") -> Iterator[Callable[[int], None]]:
    yield lambda position: None


def test_a_state_is_found_fresh_or_as_it_was_stored(log: everlog.Log) -> None:
    assert states.state_of(log, "streams", "note/1").position == 3
    log.append("note.added", stream="note/4", payload={"text": "x"})
    stale = states.state_of(log, "streams", "note/1", stale=True)
    assert (stale.lag, states.age_of(stale)) == (1, "the log is 1 position ahead of this answer")
    assert states.age_of(states.state_of(log, "streams", "note/1")) == ""
    with pytest.raises(NotFound, match="no state for note/9"):
        states.state_of(log, "streams", "note/9")


def test_the_states_of_a_view_come_in_pages(log: everlog.Log) -> None:
    first = states.states_of(log, "streams", limit=2)
    rest = states.states_of(log, "streams", after="note/2", limit=2)
    assert (list(first.states), list(rest.states)) == (["note/1", "note/2"], ["note/3"])
    assert (first.position, first.lag) == (3, 0)


def test_views_are_brought_up_to_the_head_and_audited(log: everlog.Log) -> None:
    assert states.audit_views(log, [], quiet) == []  # none has been run
    reached = states.bring_up_to_date(log, ["streams", "types"], quiet)
    assert [(one.view, one.position) for one in reached] == [("streams", 3), ("types", 3)]
    audited = states.audit_views(log, [], quiet)
    assert sorted((one.view, one.ok) for one in audited) == [("streams", True), ("types", True)]


def test_a_small_log_is_rebuilt_in_this_process(log: everlog.Log) -> None:
    def no_spark() -> Any:
        raise AssertionError("Spark was started")

    found = states.rebuild_view(
        log,
        "streams",
        engine="auto",
        store="sqlite:log.db",
        here=quiet,
        spark=no_spark,
    )
    assert (found.engine, found.advice, found.done.keys, found.done.switched) == ("process", "process", 3, True)
    assert found.shows_all_differing


def test_a_warning_names_the_command_that_repairs_a_view(log: everlog.Log) -> None:
    states.bring_up_to_date(log, ["streams"], quiet)
    (streams,) = [one for one in states.overviews(log) if one.view == "streams"]
    assert states.warning_about(streams) == ""
    mended = msgspec.structs.replace(streams, mended=2)
    assert "everlog views audit streams" in states.warning_about(mended)
    damaged = msgspec.structs.replace(streams, state="damaged")
    assert "everlog views rebuild streams" in states.warning_about(damaged)


def test_a_user_who_may_not_write_is_shown_the_command_that_stores_nothing(
    log: everlog.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise ReadOnly("the log cannot be written", hint="ask its owner")

    monkeypatch.setattr(type(log.view("streams")), "get", refuse)
    with pytest.raises(ReadOnly) as refused:
        states.state_of(log, "streams", "note/1")
    assert refused.value.hint == "ask its owner; this command stores nothing: everlog state streams note/1"
