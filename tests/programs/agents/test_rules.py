from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused
from everlog.programs.agents.events import Approved, Executed, Failed, Proposed, Rejected
from everlog.programs.agents.rules import State, command_of, judge
from everlog.testing import builders
from everlog.testing.given_when_then import Given, given


def happened(what: str, **payload: Any) -> Event:
    actor = "agent:builder" if what == "proposed" else "user:ada"
    return builders.event(f"agent.command.{what}", stream="command/c1", payload=payload, actor=actor)


PROPOSED = happened(
    "proposed", agent_id="builder", tool_name="pytest", tool_input={}, validation_status="pending", why="", risk="low"
)


def history(*events: Event) -> Given:
    def fold(found: list[Any]) -> State:
        return command_of("c1", found)

    return given(*events).through(fold)


def test_a_proposed_command_can_be_approved_by_another_actor() -> None:
    history(PROPOSED).when(judge, Approved(note="go"), "user:ada").accepted()


@pytest.mark.parametrize("actor", ["agent:builder", "builder"])
def test_nobody_approves_what_they_proposed(actor: str) -> None:
    history(PROPOSED).when(judge, Approved(), actor).refused(RuleRefused, saying="its own command")


def test_what_a_validator_found_invalid_can_only_be_rejected() -> None:
    invalid = history(PROPOSED, happened("validated", valid=False, findings=[]))
    invalid.when(judge, Approved(), "user:ada").refused(RuleRefused, saying="it is invalid")
    invalid.when(judge, Rejected(reason="no"), "user:ada").accepted()


def test_only_an_approved_command_is_executed_and_only_once() -> None:
    def run(past: Given) -> Any:
        return past.when(judge, Executed(seconds=1.0), "user:ada")

    run(history(PROPOSED)).refused(RuleRefused, saying="it is pending")
    approved = (PROPOSED, happened("approved", note=""))
    run(history(*approved)).accepted()
    ran = happened("executed", exit_code=0, seconds=1.0, summary="")
    run(history(*approved, ran)).refused(RuleRefused, saying="nothing follows that")


def test_a_command_is_proposed_once_and_before_anything_else() -> None:
    proposal = Proposed(agent_id="builder", tool_name="pytest")
    history().when(judge, proposal, "agent:builder").accepted()
    history(PROPOSED).when(judge, proposal, "agent:builder").refused(RuleRefused, saying="already proposed")
    history().when(judge, Rejected(reason="no"), "user:ada").refused(NoSuchSubject)


def test_nobody_proposes_what_is_already_approved() -> None:
    proposal = Proposed(agent_id="builder", tool_name="pytest", validation_status="approved")
    history().when(judge, proposal, "agent:builder").refused(RuleRefused, saying="proposed as approved")


def test_a_refusal_names_the_rule_what_was_tried_what_is_allowed_and_what_to_type() -> None:
    error = history(PROPOSED).when(judge, Failed(error="x"), "user:ada").error
    assert isinstance(error, RuleRefused)
    assert error.details["rule"]
    assert error.details["tried"] == "fail c1"
    assert error.details["allowed"] == ["approve", "reject", "validate"]
    assert error.hint == "everlog agent approve c1"


def test_an_actor_that_proposed_in_the_name_of_an_agent_does_not_approve_it_either() -> None:
    asked = msgspec.structs.replace(PROPOSED, actor="user:eve")
    history(asked).when(judge, Approved(), "user:eve").refused(RuleRefused, saying="its own command")
    looked_at = history(asked, happened("validated", valid=True, findings=[]))
    looked_at.when(judge, Approved(), "user:eve").refused(RuleRefused, saying="its own command")
    looked_at.when(judge, Approved(), "user:ada").accepted()


def test_what_can_only_be_rejected_is_rejected_with_a_reason() -> None:
    invalid = history(PROPOSED, happened("validated", valid=False, findings=[]))
    error = invalid.when(judge, Approved(), "user:ada").error
    assert isinstance(error, RuleRefused)
    assert error.hint == 'everlog agent reject c1 --reason "…"'


def test_events_of_other_programs_on_the_stream_do_not_count() -> None:
    note = builders.event("note.added", stream="command/c1", payload={"text": "x"})
    assert command_of("c1", [note]).status == ""
