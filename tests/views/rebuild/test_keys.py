"""After a purge only the keys that it concerns are folded again."""

from __future__ import annotations

from typing import Any

import pytest
from tests.views.conftest import ALL, ByActor, Total
from tests.views.said import from_nothing, say

from everlog.log.log import Log
from everlog.views.view import View


@pytest.mark.parametrize("view", ALL)
def test_a_purge_takes_its_events_out_of_every_view(log: Log, view: type[View]) -> None:
    handle = log.view(view)
    for number in range(12):
        say(log, number, stream=f"thing/{number % 3}", actor=f"user:u{number % 2}")
    handle.catch_up()
    log.purge("thing/1", reason="a request")
    say(log, 99, stream="thing/1")

    assert handle.digest() == from_nothing(log, view)
    audit = handle.audit()
    assert audit.ok, audit


def test_a_purge_makes_only_the_keys_again_that_it_concerns(log: Log) -> None:
    applied: list[str] = []

    class Watched(ByActor):
        name = "watched"

        def apply(self, state: dict[str, Any], event: Any) -> dict[str, Any]:
            applied.append(event.actor)
            return super().apply(state, event)

    for number in range(6):
        say(log, number, stream=f"thing/{number}", actor=f"user:u{number}")
    handle = log.view(Watched)
    handle.catch_up()
    applied.clear()
    log.purge("thing/3", reason="a request")
    handle.catch_up()
    assert applied == []
    assert not handle.get("user:u3").found


def test_a_key_fed_by_very_many_streams_is_made_again_after_a_purge(log: Log) -> None:
    handle = log.view(Total)
    for number in range(40):
        say(log, number, stream=f"thing/{number}")
    handle.catch_up()
    log.purge("thing/7", reason="a request")
    assert handle.get("all").state["count"] == 39
    assert handle.digest() == from_nothing(log, Total)
