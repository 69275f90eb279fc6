from __future__ import annotations

import msgspec
import pytest

from everlog.domains.agents import commands
from everlog.domains.agents.events import Proposed
from everlog.domains.deciding import By
from everlog.errors import InvalidPayload, KeyReuse, NoSuchSubject, RuleRefused
from everlog.log.log import Log

PROPOSAL = Proposed(agent_id="builder", tool_name="pytest", tool_input={"path": "tests"}, risk="low")
BUILDER = By(actor="agent:builder", correlation_id="session-7")


def test_a_command_goes_from_proposed_to_executed(log: Log) -> None:
    asked = commands.propose(log, PROPOSAL, by=BUILDER)
    assert [one["id"] for one in commands.pending(log)] == [asked.id]
    commands.approve(log, asked.id)
    assert commands.pending(log) == []
    commands.execute(log, asked.id, exit_code=1, seconds=2.5, by=BUILDER)
    shown = commands.show(log, asked.id)
    assert (shown["status"], shown["exit_code"], shown["decided_by"]) == ("executed", 1, "user:ada")


def test_the_same_request_under_a_key_is_done_once_though_the_command_has_moved_on(log: Log) -> None:
    by = By(actor="agent:builder", key="ask-1")
    first = commands.propose(log, PROPOSAL, by=by)
    commands.approve(log, first.id, by=By(actor="user:ada", key="yes"))
    again = commands.propose(log, PROPOSAL, by=by)
    assert (again.id, again.done.replayed) == (first.id, True)
    assert commands.approve(log, first.id, by=By(actor="user:ada", key="yes")).done.replayed
    assert log.head() == 2
    with pytest.raises(KeyReuse):
        commands.propose(log, Proposed(agent_id="builder", tool_name="ruff"), by=by)


def test_a_refusal_is_on_record_and_nothing_is_written(log: Log) -> None:
    asked = commands.propose(log, PROPOSAL, by=BUILDER)
    with pytest.raises(RuleRefused):
        commands.execute(log, asked.id)
    with pytest.raises(NoSuchSubject):
        commands.approve(log, "nowhere")
    assert log.head() == 1
    found = [(one.code, one.operation, one.stream) for one in log.refusals()]
    assert found == [
        ("no_such_subject", "agent approve", "command/nowhere"),
        ("rule_refused", "agent execute", f"command/{asked.id}"),
    ]


def test_a_tool_is_named_by_an_identifier(log: Log) -> None:
    with pytest.raises(InvalidPayload):
        commands.propose(log, Proposed(agent_id="builder", tool_name="rm -rf"), by=BUILDER)
    with pytest.raises(InvalidPayload):
        commands.propose(log, Proposed(agent_id="x" * 129, tool_name="pytest"), by=BUILDER)


def test_a_dry_run_checks_and_records_nothing_not_even_a_refusal(log: Log) -> None:
    assert commands.propose(log, PROPOSAL, by=By(dry_run=True)).done.dry_run
    with pytest.raises(NoSuchSubject):
        commands.approve(log, "nowhere", by=By(dry_run=True))
    assert (log.head(), log.refusals()) == (0, [])


def test_a_trace_shows_the_steps_of_a_session_below_their_causes(log: Log) -> None:
    first = commands.propose(log, PROPOSAL, id="one", by=BUILDER)
    cause = first.done.events[0].id
    by = By(actor="user:ada", correlation_id="session-7", causation_id=cause)
    commands.approve(log, "one", by=by)
    commands.propose(log, PROPOSAL, id="two", by=By(actor="agent:builder", correlation_id="session-7"))
    commands.propose(log, PROPOSAL, id="other", by=By(actor="agent:builder", correlation_id="session-8"))
    steps = commands.trace(log, "session-7")
    assert [(step["command"], step["status"], step["depth"]) for step in steps] == [
        ("one", "pending", 0),
        ("one", "approved", 1),
        ("two", "pending", 0),
    ]
    with pytest.raises(NoSuchSubject):
        commands.trace(log, "session-9")


def test_the_first_version_of_a_proposal_is_read_as_the_second(log: Log) -> None:
    recorded = commands.propose(log, PROPOSAL, by=BUILDER).done.records[0]
    old = {"agent_id": "b", "tool_name": "t", "tool_input": {}, "validation_status": "pending"}
    before = msgspec.structs.replace(recorded.event, version=1, payload=old)
    assert log.catalog.upcast(before).payload == {
        "agent_id": "b",
        "tool_name": "t",
        "tool_input": {},
        "why": "",
        "risk": "medium",
    }
