"""`everlog agent`: what a person sees of it; the rules are tested in tests/programs."""

from __future__ import annotations

from tests.cli.conftest import Run


def test_a_command_is_proposed_approved_and_run(log: Run) -> None:
    asked = log(
        "agent", "propose", "run_tests", '{"path": "tests"}', "--agent-id", "builder", "--actor", "agent:builder"
    )
    assert asked.code == 0
    (name, becomes, status) = asked.rows[0]
    assert (becomes, status) == ("pending", "recorded")
    assert log("agent", "list", "--pending").rows[0][:3] == [name, "pending", "builder"]
    assert log("agent", "approve", name, "--actor", "user:ada").code == 0
    assert log("agent", "execute", name, "--seconds", "1.5", "--json").data["becomes"] == "executed"
    assert log("agent", "show", name, "--json").data["decided_by"] == "user:ada"


def test_a_refusal_says_what_is_allowed_and_what_to_type(log: Run) -> None:
    log("agent", "propose", "run_tests", "--agent-id", "builder", "--id", "c1")
    refused = log("agent", "execute", "c1")
    assert refused.code == 3
    assert "the command c1 cannot be executed: it is pending" in refused.err.replace("\n  why:", ":")
    assert "fix: everlog agent approve c1" in refused.err
    error = log("agent", "execute", "c1", "--json").error
    assert (error["code"], error["details"]["allowed"]) == ("rule_refused", ["approve", "reject", "validate"])
    assert error["details"]["refused_before"] == 1
    assert "again: the same rule refused you 2 times before, last at 2" in log("agent", "execute", "c1").err
    assert "again:" not in refused.err
    assert log("agent", "show", "nowhere").code == 4


def test_a_trace_is_a_tree_of_causes(log: Run) -> None:
    given = ("--agent-id", "builder", "--correlation", "session-7")
    first = log("agent", "propose", "pytest", *given, "--id", "one", "--json").data["events"][0]["id"]
    log("agent", "approve", "one", "--actor", "user:bob")
    tree = [["0", "command/one", "pending"], ["1", "command/one", "approved"]]
    found = log("agent", "trace", "session-7").rows
    assert [[row[0], row[3], row[4]] for row in found] == tree
    for name in (first, "#1", "#2"):
        assert [[row[0], row[3], row[4]] for row in log("agent", "causes", name).rows] == tree
    assert log("agent", "causes", "#9").code == 4
    assert log("agent", "sources").rows[0][:3] == ["user:bob", "1", '{"approved":1}']


def test_input_that_is_not_json_is_a_mistake_of_usage(log: Run) -> None:
    assert log("agent", "propose", "pytest", "{", "--agent-id", "builder").code == 2


def test_a_list_of_a_status_that_none_has_does_not_say_that_nothing_was_proposed(log: Run) -> None:
    assert log("agent", "list").err == "nothing was proposed: everlog agent propose --help\n"
    assert log("agent", "propose", "run_tests", "--agent-id", "builder").code == 0
    assert log("agent", "list", "--status", "done").err == "none is done: everlog agent list\n"


def test_causes_are_asked_for_by_position_with_or_without_its_mark(notes: Run) -> None:
    assert notes("agent", "causes", "2").rows == notes("agent", "causes", "#2").rows != []
    assert "everlog log -n 5 -q" in notes("agent", "causes", "x").err


def test_nobody_who_took_part_is_told_so(notes: Run) -> None:
    found = notes("agent", "sources")
    assert (found.out, found.err) == ("", "nobody has done anything: everlog agent propose --help\n")
