"""Given, when, then: a check passes for what was made, and fails for anything else."""

from __future__ import annotations

from typing import Any

import pytest

from everlog.testing.builders import event
from everlog.testing.given_when_then import given
from everlog.views.builtin import Types

EVENTS = [event(lamport=number) for number in range(1, 7)]


class Forbidden(Exception):
    pass


def move(history: list[str], to: str) -> list[str]:
    if history and history[-1] == "done":
        raise Forbidden("it is done")
    return [f"moved to {to}"]


def test_a_rule_is_checked_by_its_result() -> None:
    given("created").when(move, to="doing").then("moved to doing")
    given("created").through(lambda events: events[-1:]).when(move, to="doing").then("moved to doing")
    given("done").when(move, to="doing").refused(Forbidden, saying="done")
    given().when(lambda history: []).then_nothing()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: given("created").when(move, to="doing").then("moved to done"),
        lambda: given("created").when(move, to="doing").refused(Forbidden),
        lambda: given("done").when(move, to="doing").then("moved to doing"),
        lambda: given("done").when(move, to="doing").refused(KeyError),
        lambda: given("done").when(move, to="doing").refused(Forbidden, saying="another reason"),
        lambda: given(*EVENTS).view(Types).shows("note.added", {"events": 1}),
        lambda: given(*EVENTS).view(Types).shows_nothing_of("note.added"),
        lambda: given("no event").view(Types),
    ],
)
def test_a_wrong_expectation_fails(wrong: Any) -> None:
    with pytest.raises(AssertionError):
        wrong()


def test_a_view_is_checked_by_its_states() -> None:
    seen = given(*EVENTS).view(Types)
    seen.shows("note.added", {"events": 6, "last_at": "2026-11-15T12:00:00Z"})
    seen.shows_nothing_of("thing.said")
