from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.programs.elsewhere import lawless

import everlog
from everlog.core.ids import IdSource, id_uuid
from everlog.errors import InvalidField, InvalidPayload, KeyReuse, NoSuchSubject, RuleRefused
from everlog.log.log import Log
from everlog.log.read.causes import causes_of
from everlog.programs.agents.commands import Approve, Execute, Fail, Propose, Reject, Validate
from everlog.programs.agents.questions import Causes, List, Show, Sources, Trace
from everlog.programs.command import By
from everlog.programs.perform import ask, perform

PROPOSAL = Propose(agent_id="builder", tool_name="pytest", tool_input={"path": "tests"}, risk="low")
BUILDER = By(actor="agent:builder", correlation_id="session-7")


def test_a_command_goes_from_proposed_to_executed(log: Log) -> None:
    asked = perform(log, PROPOSAL, BUILDER)
    assert [one["id"] for one in ask(log, List(pending=True))] == [asked.result.id]
    perform(log, Approve(id=asked.result.id))
    assert ask(log, List(pending=True)) == []
    perform(log, Execute(id=asked.result.id, exit_code=1, seconds=2.5), BUILDER)
    shown = ask(log, Show(id=asked.result.id))
    assert (shown["status"], shown["exit_code"], shown["decided_by"]) == ("executed", 1, "user:ada")


def test_the_same_request_under_a_key_is_done_once_though_the_command_has_moved_on(log: Log) -> None:
    by = By(actor="agent:builder", key="ask-1")
    first = perform(log, PROPOSAL, by)
    perform(log, Approve(id=first.result.id), By(actor="user:ada", key="yes"))
    again = perform(log, PROPOSAL, by)
    assert (again.result.id, again.replayed) == (first.result.id, True)
    assert perform(log, Approve(id=first.result.id), By(actor="user:ada", key="yes")).replayed
    assert log.head() == 2
    with pytest.raises(KeyReuse):
        perform(log, Propose(agent_id="builder", tool_name="ruff"), by)


def test_a_refusal_is_on_record_and_nothing_is_written(log: Log) -> None:
    asked = perform(log, PROPOSAL, BUILDER)
    with pytest.raises(RuleRefused):
        perform(log, Execute(id=asked.result.id))
    with pytest.raises(NoSuchSubject):
        perform(log, Approve(id="nowhere"))
    assert log.head() == 1
    found = [(one.code, one.operation, one.stream) for one in log.refusals()]
    assert found == [
        ("no_such_subject", "agent approve", "command/nowhere"),
        ("rule_refused", "agent execute", f"command/{asked.result.id}"),
    ]


def test_a_tool_is_named_by_an_identifier(log: Log) -> None:
    with pytest.raises(InvalidPayload):
        perform(log, Propose(agent_id="builder", tool_name="rm -rf"), BUILDER)
    with pytest.raises(InvalidPayload):
        perform(log, Propose(agent_id="x" * 129, tool_name="pytest"), BUILDER)


def test_a_dry_run_checks_and_records_nothing_not_even_a_refusal(log: Log) -> None:
    assert perform(log, PROPOSAL, By(dry_run=True)).status == "dry_run"
    with pytest.raises(NoSuchSubject):
        perform(log, Approve(id="nowhere"), By(dry_run=True))
    assert (log.head(), log.refusals()) == (0, [])


def test_a_trace_shows_the_steps_of_a_session_below_their_causes(log: Log) -> None:
    first = perform(log, replace(PROPOSAL, id="one"), BUILDER)
    cause = first.events[0].id
    by = By(actor="user:ada", correlation_id="session-7", causation_id=cause)
    perform(log, Approve(id="one"), by)
    perform(log, replace(PROPOSAL, id="two"), By(actor="agent:builder", correlation_id="session-7"))
    perform(log, replace(PROPOSAL, id="other"), By(actor="agent:builder", correlation_id="session-8"))
    steps = ask(log, Trace(session="session-7"))
    assert [(step["stream"], step["status"], step["depth"]) for step in steps] == [
        ("command/one", "pending", 0),
        ("command/one", "approved", 1),
        ("command/two", "pending", 0),
    ]
    with pytest.raises(NoSuchSubject):
        ask(log, Trace(session="session-9"))


def test_the_first_version_of_a_proposal_is_read_as_the_second(log: Log) -> None:
    recorded = perform(log, PROPOSAL, BUILDER).records[0]
    old = {"agent_id": "b", "tool_name": "t", "tool_input": {}, "validation_status": "pending"}
    before = msgspec.structs.replace(recorded.event, version=1, payload=old)
    assert log.catalog.upcast(before).payload == {
        "agent_id": "b",
        "tool_name": "t",
        "tool_input": {},
        "validation_status": "pending",
        "why": "",
        "risk": "medium",
    }


def test_what_was_decided_before_it_came_here_is_not_lost(log: Log) -> None:
    old = {"agent_id": "b", "tool_name": "t", "tool_input": {}, "validation_status": "approved"}
    with lawless("agents", actor="agent:builder") as elsewhere:
        made = elsewhere.append("agent.command.proposed", stream="command/c1", payload=old)
    (recorded,) = log.admit([made.event])
    assert recorded.event.payload["validation_status"] == "approved"
    shown = ask(log, Show(id="c1"))
    assert (shown["status"], shown["validation_status"]) == ("approved", "approved")
    assert ask(log, List(pending=True)) == []
    assert perform(log, Execute(id="c1")).result.status == "executed"


def test_the_status_of_a_validation_is_told_in_three_words(log: Log) -> None:
    for name in ("one", "two", "three"):
        perform(log, replace(PROPOSAL, id=name), BUILDER)
    perform(log, Validate(id="one", valid=True))
    perform(log, Reject(id="two", reason="no"))
    perform(log, Approve(id="three"))
    perform(log, Fail(id="three", error="it stopped"))
    told = {one["id"]: one["validation_status"] for one in ask(log, List())}
    assert told == {"one": "pending", "two": "rejected", "three": "approved"}


def test_what_waits_is_listed_from_the_oldest_on_until_somebody_decides(log: Log) -> None:
    for name in ("b", "a", "c"):
        perform(log, replace(PROPOSAL, id=name), BUILDER)
    perform(log, Validate(id="a", valid=False))
    perform(log, Approve(id="b"))
    assert [(one["id"], one["status"], one["tool_name"]) for one in ask(log, List(pending=True))] == [
        ("a", "invalid", "pytest"),
        ("c", "pending", "pytest"),
    ]


def test_a_step_follows_from_the_one_before_and_belongs_to_its_session(log: Log) -> None:
    asked = perform(log, replace(PROPOSAL, id="one"), BUILDER).events[0]
    approved = perform(log, Approve(id="one")).events[0]
    done = perform(log, Execute(id="one"), By(causation_id="job 17")).events[0]
    assert (asked.causation_id, approved.causation_id, done.causation_id) == ("", asked.id, "job 17")
    assert {event.correlation_id for event in (asked, approved, done)} == {"session-7"}


def test_a_trace_goes_over_all_streams_of_a_session(log: Log) -> None:
    asked = perform(log, replace(PROPOSAL, id="one"), BUILDER).events[0]
    log.append(
        "note.added", stream="note/1", payload={"text": "x"}, correlation_id="session-7", causation_id=asked.id
    )
    perform(log, Approve(id="one"))
    steps = ask(log, Trace(session="session-7"))
    assert [(step["depth"], step["stream"], step["status"]) for step in steps] == [
        (0, "command/one", "pending"),
        (1, "note/1", "added"),
        (1, "command/one", "approved"),
    ]
    assert [(step["source"], step["source_seq"]) for step in steps] == [
        (log.identity.origin, number) for number in (1, 2, 3)
    ]


def test_the_tree_of_causes_goes_over_streams_and_sessions_from_the_first_cause_on(log: Log) -> None:
    first = perform(log, replace(PROPOSAL, id="one"), BUILDER).events[0]
    approved = perform(log, Approve(id="one")).events[0]
    second = perform(log, replace(PROPOSAL, id="two"), By(causation_id=approved.id, correlation_id="other"))
    perform(log, replace(PROPOSAL, id="apart"), BUILDER)
    note = log.append("note.added", stream="note/1", payload={"text": "x"}, causation_id=first.id)
    perform(log, Reject(id="two", reason="no"))
    tree = [
        (0, "command/one", "pending"),
        (1, "command/one", "approved"),
        (2, "command/two", "pending"),
        (3, "command/two", "rejected"),
        (1, "note/1", "added"),
    ]
    for asked in (first.id, second.events[0].id, note.event.id):
        steps = ask(log, Causes(event=asked))
        assert [(step["depth"], step["stream"], step["status"]) for step in steps] == tree
        assert [step["id"] for step in steps if step["asked"]] == [asked]
    with pytest.raises(NoSuchSubject):
        ask(log, Causes(event="01ARZ3NDEKTSV4RRFFQ69G5FAV"))


@pytest.mark.parametrize("spell", [str, lambda one: str(id_uuid(one)), lambda one: id_uuid(one).hex, str.lower])
def test_a_cause_is_the_same_event_however_its_id_is_spelled(log: Log, spell: Callable[[str], str]) -> None:
    """An id is 128 bits with two spellings; who records an effect may know the cause by either."""
    note = log.append("note.added", stream="note/1", payload={"text": "x"}, correlation_id="s1")
    named = spell(note.event.id)
    by = By(actor="agent:builder", causation_id=named, correlation_id="s1")
    step = perform(log, Propose(agent_id="builder", tool_name="pytest", id="c1"), by)
    effect = step.events[0]
    assert effect.causation_id == named, "what was recorded stays as it was said"
    wanted = [(note.event.id, 0), (effect.id, 1)]
    assert [(one["id"], one["depth"]) for one in ask(log, Trace(session="s1"))] == wanted
    for asked in (note.event.id, effect.id, str(id_uuid(effect.id))):
        assert [(one["id"], one["depth"]) for one in ask(log, Causes(event=asked))] == wanted
    found, unknown = causes_of(log.get, step.records[0])
    assert ([one.event.id for one in found], unknown) == ([note.event.id], "")


def test_what_claims_to_have_caused_itself_is_shown_once(log: Log) -> None:
    one, two = IdSource().take(2)
    for own, cause in ((one, two), (two, one)):
        log.append("note.added", stream="note/1", payload={"text": "x"}, id=own, causation_id=cause)
    assert sorted(step["id"] for step in ask(log, Causes(event=one))) == sorted([one, two])


def test_every_source_has_a_count_of_its_own(log: Log) -> None:
    for name in ("one", "two"):
        perform(log, replace(PROPOSAL, id=name), BUILDER)
    perform(log, Approve(id="one"), By(actor="user:bob"))
    perform(log, Execute(id="one"), BUILDER)
    found = {one["source"]: (one["sequence"], one["did"]) for one in ask(log, Sources())}
    assert found == {"agent:builder": (3, {"executed": 1, "proposed": 2}), "user:bob": (1, {"approved": 1})}


def test_after_two_logs_came_together_both_say_the_same_of_a_command(log: Log) -> None:
    perform(log, replace(PROPOSAL, id="one"), BUILDER)
    with everlog.open("memory:", actor="user:bob") as elsewhere:
        elsewhere.admit([recorded.event for recorded in log.read()])
        perform(log, Approve(id="one"), By(actor="user:ada"))
        perform(elsewhere, Validate(id="one", valid=True))
        perform(elsewhere, Reject(id="one", reason="no"))
        ours = [recorded.event for recorded in log.read()]
        log.admit([recorded.event for recorded in elsewhere.read()])
        elsewhere.admit(ours)
        assert ask(log, Show(id="one")) == ask(elsewhere, Show(id="one"))
        assert ask(log, Show(id="one"))["status"] == "rejected", "the greater clock wins"
        for each in (log, elsewhere):
            with pytest.raises(RuleRefused):
                perform(each, Execute(id="one"))


def test_commands_are_listed_from_the_oldest_on_whatever_their_names(log: Log) -> None:
    for name in ("b", "a", "c"):
        perform(log, replace(PROPOSAL, id=name), BUILDER)
    assert [one["id"] for one in ask(log, List())] == ["b", "a", "c"]


def test_a_command_whose_proposal_has_not_arrived_is_listed_all_the_same(log: Log) -> None:
    with everlog.open("memory:", actor="agent:builder") as elsewhere:
        perform(elsewhere, replace(PROPOSAL, id="c1"))
        perform(elsewhere, Approve(id="c1"), By(actor="user:bob"))
        asked, approved = [recorded.event for recorded in elsewhere.read()]
    log.admit([approved])
    (row,) = ask(log, List())
    assert (row["id"], row["status"], row["agent_id"], row["proposed_at"]) == ("c1", "approved", "", "")
    log.admit([asked])
    (row,) = ask(log, List())
    assert (row["status"], row["agent_id"], row["decided_by"]) == ("approved", "builder", "user:bob")


@pytest.mark.parametrize("key", ["\udcff", "two\nlines", "k" * 300])
def test_a_key_that_is_none_is_refused_and_the_refusal_is_on_record(log: Log, key: str) -> None:
    with pytest.raises(InvalidField, match="idempotency key"):
        perform(log, PROPOSAL, By(key=key))
    assert (log.head(), [one.operation for one in log.refusals()]) == (0, ["agent propose"])
