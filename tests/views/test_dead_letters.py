"""Events that a view cannot take: what waits, what goes on, retrying and skipping, on every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.views.conftest import ByActor, Causal, CausalByStream, Everything, Picky, Said, Total
from tests.views.said import say

from everlog.errors import EverlogError, NotFound, ViewStopped
from everlog.log.dead_letters import (
    FAILED,
    SKIPPED,
    STOPPED,
    WAITING,
)
from everlog.log.log import Log
from everlog.testing.builders import event
from everlog.views.advance import Advance
from everlog.views.builds.open_build import OpenBuild
from everlog.views.view import View

# ---- dead letters


def test_a_poison_event_stops_only_its_key(log: Log) -> None:
    say(log, 1)
    poison = say(log, "poison")
    later = say(log, 2)
    say(log, 3, stream="thing/2")
    handle = log.view(Said)

    answer = handle.get("thing/1")
    assert (answer.state["values"], answer.parked) == ([1], True)
    assert handle.get("thing/2").state["values"] == [3]
    letters = handle.dead_letters()
    assert [(letter.position, letter.what) for letter in letters] == [(poison, FAILED), (later, WAITING)]
    assert "this cannot be applied" in letters[0].reason
    assert "conftest.py" in letters[0].trace
    assert handle.audit().ok


def test_a_poison_event_of_one_key_waits_although_another_key_got_a_late_event(log: Log) -> None:
    """In causal order a late event has its key folded again. What failed for the other keys stays a dead letter."""
    for value in (1, 2):
        say(log, value)
    handle = log.view(CausalByStream)
    handle.catch_up()
    poison = say(log, "poison", stream="thing/2")
    peer = "01PEER" + event().id[6:]
    log.admit([event("thing.said", stream="thing/1", payload={"value": "late"}, lamport=1, origin=peer)])

    assert handle.get("thing/2").parked
    assert [(letter.position, letter.what) for letter in handle.dead_letters()] == [(poison, FAILED)]
    assert sorted(map(str, handle.get("thing/1").state["values"])) == ["1", "2", "late"]
    assert handle.audit().ok


@pytest.mark.parametrize("view", [Said, ByActor, Causal])
def test_half_a_change_of_a_poison_event_is_not_kept(log: Log, view: type[View]) -> None:
    say(log, 1)
    say(log, "poison")
    key = "thing/1" if view is Said else "user:ada"
    assert log.view(view).get(key).state["values"] == [1]
    log.view(view).rebuild()
    assert log.view(view).get(key).state["values"] == [1]


@pytest.mark.parametrize("view", [Said, ByActor, Total, Causal])
def test_a_skipped_letter_frees_those_behind_it_in_order(log: Log, view: type[View]) -> None:
    say(log, 1)
    poison = say(log, "poison")
    say(log, 2)
    handle = log.view(view)
    handle.catch_up()
    assert handle.skip(poison, reason="it was a test", actor="user:eve") == []
    say(log, 3)

    ((_, state),) = handle.items()
    assert state["values"] == [1, 2, 3]
    (letter,) = handle.dead_letters()
    assert (letter.what, letter.decided_by, letter.decided_because) == (SKIPPED, "user:eve", "it was a test")
    assert handle.audit().ok
    assert handle.audit().skipped == 1


def test_only_a_dead_letter_can_be_skipped(log: Log) -> None:
    position = say(log, 1)
    log.view(Said).catch_up()
    with pytest.raises(NotFound):
        log.view(Said).skip(position, reason="no")


def test_a_repaired_view_takes_what_waited(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    say(log, 1)
    say(log, "poison")
    say(log, 2)
    handle = log.view(Said)
    handle.catch_up()
    assert len(handle.retry()) == 1

    def mended(self: Said, state: dict[str, Any], event: Any) -> dict[str, Any]:
        return {"values": [*state["values"], event.payload["value"]], "count": state["count"] + 1}

    monkeypatch.setattr(Said, "apply", mended)
    assert handle.retry() == []
    assert handle.get("thing/1").state["values"] == [1, "poison", 2]
    assert handle.dead_letters() == []
    assert handle.audit().ok


def test_an_event_without_a_key_stops_the_view_and_no_other(log: Log) -> None:
    say(log, {"key": "a"})
    bad = say(log, "no key in here")
    say(log, {"key": "a"})
    picky, said = log.view(Picky), log.view(Said)

    answer = picky.get("a")
    assert (answer.state, answer.position, answer.stopped_at) == ({"count": 1}, bad - 1, bad)
    assert said.get("thing/1").state["count"] == 3
    assert [letter.what for letter in picky.dead_letters()] == [STOPPED]
    with pytest.raises(ViewStopped):
        log.wait_for(Picky, bad + 1, 0.1)

    assert picky.skip(bad, reason="never mind") == []
    assert picky.get("a").state == {"count": 2}
    assert picky.audit().ok


def test_a_state_that_json_cannot_say_is_a_dead_letter(log: Log) -> None:
    class Odd(View):
        name = "odd"
        types = ("thing.said",)

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            value = event.payload["value"]
            return {"values": [*state.get("values", []), float("nan") if value == 2 else value]}

    say(log, 1)
    bad = say(log, 2)
    say(log, 3)
    handle = log.view(Odd)
    assert handle.get("thing/1").state == {"values": [1]}
    letters = [(bad, FAILED), (bad + 1, WAITING)]
    assert [(letter.position, letter.what) for letter in handle.dead_letters()] == letters
    assert handle.audit().ok
    for limit in (1, 2, 10):
        assert handle.rebuild(limit=limit).same
        assert [(letter.position, letter.what) for letter in handle.dead_letters()] == letters
        assert handle.audit().ok


def test_what_fails_on_top_of_such_a_state_waits_however_large_a_page_is(log: Log) -> None:
    class Set(Said):
        name = "set"

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            return {"a": {"set"}} if event.payload["value"] == "set" else super().apply(state, event)

    say(log, 1)
    bad = say(log, "set")
    say(log, 3)
    handle = log.view(Set)
    for limit in (1, 2, 10):
        handle.rebuild(limit=limit)
        letters = [(letter.position, letter.what) for letter in handle.dead_letters()]
        assert letters == [(bad, FAILED), (bad + 1, WAITING)]


def test_what_was_gathered_is_taken_again_when_a_rebuild_is_stopped_behind_it(log: Log) -> None:
    from everlog.views.rebuild.blue_green import rebuild

    class Odd(Total):
        name = "odd-total"

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            return {"values": [*state["values"], float("nan") if event.payload["value"] == 3 else 0]}

    for number in range(6):
        say(log, number)
    for stopped_after in range(1, 6):
        steps = iter([False] * stopped_after)
        rebuild(log, log.views.small_state, Odd(), stop=lambda steps=steps: next(steps, True), limit=1)  # type: ignore[misc]
    handle = log.view(Odd)
    assert handle.get("all").state == {"values": [0, 0, 0]}
    assert [letter.position for letter in handle.dead_letters()] == [4, 5, 6]
    assert handle.audit().ok


def test_an_upcaster_that_fails_stops_the_views_of_that_type_only(
    make_log: Callable[..., Log], kind: str, clock: Any
) -> None:
    from everlog.testing.builders import event

    class Moves(View):
        name = "moves"
        types = ("workpackage.moved",)

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            return {"lane": event.payload["went_to"]}

    with make_log(kind) as log:
        foreign = event("workpackage.moved", stream="workpackage/9", payload={"unheard": "of"})
        log.admit([foreign])
        say(log, 1)
        log.append("workpackage.moved", stream="workpackage/1", payload={"went_to": "doing"})

        assert log.view(Said).get("thing/1").state["count"] == 1
        assert log.view(Everything).get("thing/1").state == {"thing.said": 1}
        moves = log.view(Moves)
        assert moves.get("workpackage/1").state == {"lane": "doing"}
        (letter,) = moves.dead_letters()
        assert (letter.stream, letter.what) == ("workpackage/9", FAILED)
        with pytest.raises(EverlogError) as raised:
            log.catalog.upcast(foreign)
        assert raised.value.what in letter.reason


def test_a_retry_that_another_process_came_before_is_made_again(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    say(log, "poison")
    say(log, 1)
    handle = log.view(Said)
    handle.catch_up()
    tries, real = [], OpenBuild.retry

    def overtaken(opened: OpenBuild, **options: Any) -> Advance:
        tries.append(opened)
        return Advance.GONE if len(tries) == 1 else real(opened, **options)

    monkeypatch.setattr(OpenBuild, "retry", overtaken)
    assert handle.skip(1, reason="a test") == []
    assert (len(tries), handle.get("thing/1").state["values"]) == (2, [1])
