"""Views on every store: asking, resets, waiting, the audit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.at_once import at_once
from tests.views.conftest import ALL, ByActor, Causal, Said, Total
from tests.views.said import from_nothing, say

from everlog.errors import Conflict, ViewBehind
from everlog.log.log import Log
from everlog.views import live
from everlog.views.registry import live_view
from everlog.views.view import View

# ---- asking


def test_a_view_answers_with_the_state_of_a_key(log: Log) -> None:
    say(log, 1)
    say(log, 2, stream="thing/2")
    position = say(log, 3)

    answer = log.view(Said).get("thing/1")

    assert answer.state == {"values": [1, 3], "count": 2}
    assert (answer.position, answer.lag, answer.parked) == (position, 0, False)
    assert dict(log.view(Said).items())["thing/2"] == {"values": [2], "count": 1}
    assert log.view(Said).count() == 2


def test_a_key_that_is_not_there_has_no_state(log: Log) -> None:
    say(log, 1)
    answer = log.view(Said).get("thing/none")
    assert (answer.found, answer.state) == (False, None)


def test_no_row_is_listed_while_the_view_is_advanced(log: Log) -> None:
    say(log, "a")
    view = live_view(log, Said)
    view.catch_up()
    listed: list[str] = []
    lister = threading.Thread(target=lambda: listed.extend(key for key, _ in view.items(fresh=False)))
    with view.current().lock:
        lister.start()
        lister.join(0.2)
        assert (lister.is_alive(), listed) == (True, [])
    lister.join()
    assert listed == ["thing/1"]


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 4, 7, 50])
def test_a_list_of_any_length_has_every_row_once_in_order(
    log: Log, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_PAGE_ROWS", 1)
    monkeypatch.setattr(live, "_PAGE_ROWS_MAX", 3)
    for number in range(10):
        say(log, "a", stream=f"thing/{number}")
    keys = [f"thing/{number}" for number in range(10)]
    assert [key for key, _ in log.view(Said).items(limit=limit)] == keys[:limit]
    assert [key for key, _ in log.view(Said).items(after="thing/4", limit=limit)] == keys[5:][:limit]


def test_an_old_answer_says_how_old_it_is(log: Log) -> None:
    say(log, 1)
    log.view(Said).get("thing/1")
    say(log, 2)
    say(log, 3)
    answer = log.view(Said).get("thing/1", fresh=False)
    assert (answer.state["values"], answer.position, answer.lag) == ([1], 1, 2)
    assert log.view(Said).lag() == 2


def test_a_view_without_a_match_still_moves_on(log: Log) -> None:
    for number in range(5):
        log.append("note.added", stream="note/1", payload={"text": str(number)})
    assert log.view(Said).catch_up() == 5
    assert log.view(Said).lag() == 0


def test_an_event_that_the_view_leaves_out_is_not_missing(log: Log) -> None:
    say(log, 1)
    say(log, 2, actor="user:nobody")
    handle = log.view(ByActor)
    assert [key for key, _ in handle.items()] == ["user:ada"]
    assert handle.audit().ok


@pytest.mark.parametrize("view", ALL)
def test_a_view_kept_live_a_rebuilt_one_and_one_from_nothing_are_the_same(log: Log, view: type[View]) -> None:
    handle = log.view(view)
    for number in range(30):
        say(log, number, stream=f"thing/{number % 4}", actor=f"user:u{number % 3}")
        if number % 7 == 0:
            handle.catch_up()
    live = handle.digest()
    assert live == from_nothing(log, view)
    assert handle.rebuild().same
    assert handle.digest() == live
    assert handle.audit().ok


def test_a_view_goes_on_where_it_was_when_the_log_is_opened_again(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    if kind == "memory":
        pytest.skip("nothing survives in memory")
    with make_log(kind, tmp_path / "log") as log:
        say(log, 1)
        log.view(Total).catch_up()
        say(log, 2)
    with make_log(kind, tmp_path / "log") as log:
        assert log.view(Total).get("all", fresh=False).position == 1
        assert log.view(Total).get("all").state["values"] == [1, 2]
        assert log.verify().ok


# ---- names and shapes


# ---- history that changes


# ---- inline and async


def test_an_inline_view_has_seen_what_the_append_returned(log: Log) -> None:
    handle = log.views.register(Said, mode="inline")
    for number in range(5):
        position = say(log, number)
        answer = handle.get("thing/1", fresh=False)
        assert (answer.state["count"], answer.position) == (number + 1, position)
    say(log, "poison")
    say(log, 6)
    assert handle.get("thing/1", fresh=False).parked
    assert handle.rebuild().same
    assert handle.audit().ok


def test_an_inline_view_follows_a_purge(log: Log) -> None:
    handle = log.views.register(Total, mode="inline")
    for number in range(4):
        say(log, number, stream=f"thing/{number}")
    log.purge("thing/2", reason="a request")
    assert handle.get("all", fresh=False).state["values"] == [0, 1, 3]


def test_an_append_that_fails_leaves_no_trace_in_an_inline_view(log: Log) -> None:
    handle = log.views.register(Said, mode="inline")
    say(log, 1)
    with pytest.raises(Conflict):
        log.append("thing.said", stream="thing/1", payload={"value": 2}, expect=0)
    say(log, 3)
    assert handle.get("thing/1", fresh=False).state["values"] == [1, 3]


def test_inline_views_survive_many_threads(log: Log) -> None:
    handle = log.views.register(Said, mode="inline")
    other = log.views.register(Causal, mode="inline")

    def run(number: int) -> None:
        for value in range(10):
            say(log, value, stream=f"thing/{number}", actor=f"user:u{number % 2}")

    at_once(*(partial(run, number) for number in range(4)))
    assert handle.digest() == from_nothing(log, Said)
    assert other.digest() == from_nothing(log, Causal)


def test_a_writer_can_wait_until_the_view_has_its_event(log: Log) -> None:
    log.views.register(Said, mode="async")
    recorded = log.append("thing.said", stream="thing/1", payload={"value": 1})
    assert log.wait_for(Said, recorded, 10) >= recorded.position
    assert log.view(Said).get("thing/1", fresh=False).state["values"] == [1]


def test_waiting_for_what_never_comes_ends(log: Log) -> None:
    say(log, 1)
    with pytest.raises(ViewBehind) as caught:
        log.wait_for(Said, 100, 0.1)
    assert caught.value.details["position"] == 1


# ---- the audit
