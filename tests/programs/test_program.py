"""What a program hands to a log: its commands belong to it, and its guard judges the stream of an event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

import everlog
from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.errors import RuleRefused
from everlog.programs import agents
from everlog.programs.agents.commands import Reject
from everlog.programs.agents.events import Rejected
from everlog.programs.command import Command
from everlog.programs.program import Program, guard_of_stream, program_of, require_kind
from everlog.testing.builders import event

CATALOG = Catalog()


@CATALOG.event("lamp.switched")
class Switched(msgspec.Struct, frozen=True):
    on: bool


def is_on(name: str, events: Iterable[Event]) -> bool:
    found = [one.payload["on"] for one in events]
    return bool(found and found[-1])


def judge(state: bool, payload: Switched, actor: str) -> None:
    if payload.on == state:
        raise RuleRefused("it is so already", rule="a switch changes something", tried="switch", allowed=[], hint="-")


LAMPS = Program(name="lamps", types=CATALOG, rules=guard_of_stream("lamp", is_on, judge))


def test_a_command_and_a_payload_belong_to_the_program_that_lists_them() -> None:
    assert program_of(Reject) is agents.PROGRAM
    assert agents.PROGRAM.operation(Reject) == "agent reject"
    assert agents.PROGRAM.type_of(Rejected(reason="no")) == "agent.command.rejected"
    assert agents.PROGRAM.view("agents.pending") in agents.PROGRAM.views
    assert agents.PROGRAM.view("pending") is None


def test_a_command_that_no_program_lists_is_a_mistake_of_its_author() -> None:
    class Lonely(Command[Any], frozen=True, kw_only=True):
        pass

    with pytest.raises(TypeError, match="Lonely is in no program"):
        program_of(Lonely)


def test_a_guard_of_a_stream_judges_by_the_events_before_also_in_the_same_batch() -> None:
    with everlog.open("memory:", programs=[LAMPS], actor="user:ada") as log:
        log.append(Switched(on=True), stream="lamp/1")
        log.append(Switched(on=True), stream="lamp/2")  # another stream
        with pytest.raises(RuleRefused, match="already"):
            log.append(Switched(on=True), stream="lamp/1")
        twice = [everlog.Draft("lamp.switched", "lamp/1", {"on": False})] * 2
        with pytest.raises(RuleRefused, match="already"):
            log.append_batch(twice)
        assert log.head() == 2


def test_an_event_on_a_stream_of_another_kind_is_refused_with_the_right_one() -> None:
    require_kind(event(stream="lamp/1"), "lamp", "bulb")
    with pytest.raises(RuleRefused) as refused:
        require_kind(event(stream="note/1"), "lamp", "bulb")
    assert refused.value.details["allowed"] == ["lamp/ID or bulb/ID"]
    assert refused.value.hint == "everlog append note.added -s lamp/ID"
