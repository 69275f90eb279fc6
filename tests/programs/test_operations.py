"""The list of operations: complete, with schemas, callable, and described for HTTP and for tools."""

from __future__ import annotations

import json

import pytest

from everlog.application.operations import registry
from everlog.errors import InvalidField
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.operations import operations, tools
from everlog.programs.registry import every_value

BY_NAME = {one.name: one for one in operations()}


def test_every_command_and_every_question_is_an_operation_with_its_own_name() -> None:
    assert len(BY_NAME) == len(operations()) == len(list(every_value()))


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_an_operation_has_a_summary_a_schema_with_described_fields(name: str) -> None:
    one = BY_NAME[name]
    assert one.summary.endswith((".", "…"))
    assert sorted(one.schema["properties"]) == sorted(one.value.__struct_fields__)
    assert [field for field, text in one.schema["properties"].items() if not text.get("description")] == []


def test_the_tools_describe_the_same_operations_and_are_json() -> None:
    listed = tools()
    assert sorted(tool["name"] for tool in listed) == sorted(name.replace(".", "_") for name in BY_NAME)
    assert json.loads(json.dumps(listed)) == listed


def test_the_list_of_all_operations_has_those_of_the_log_with_their_own_names() -> None:
    every = registry.operations()
    names = [one.name for one in every]
    assert len(set(names)) == len(names) > len(BY_NAME)
    assert {"log.append", "log.state", "view.rows", "group.take", "snapshot.create"} <= set(names)
    assert len(registry.tools()) == len(every)
    for one in every:
        assert one.summary.endswith((".", "…")), one.name
        assert [field for field, text in one.schema["properties"].items() if not text.get("description")] == []


def test_an_operation_runs_a_command_and_a_retry_under_its_key_gets_the_same_answer(log: Log) -> None:
    by = By(actor="agent:builder", key="k1")
    body = {"agent_id": "builder", "tool_name": "pytest"}
    first = BY_NAME["agents.propose"].call(log, body, by)
    assert BY_NAME["agents.propose"].call(log, body, by) == first
    assert (first["status"], log.head()) == ("recorded", 1)
    assert [row["id"] for row in BY_NAME["agents.list"].call(log, {"pending": True})] == [first["id"]]


@pytest.mark.parametrize("body", [{"id": "c1"}, {"id": "c1", "reason": 3}, {"id": "c1", "reason": "no", "why": "x"}])
def test_a_body_that_does_not_fit_is_refused_and_nothing_is_recorded(log: Log, body: dict[str, object]) -> None:
    with pytest.raises(InvalidField, match=r"agents\.reject"):
        BY_NAME["agents.reject"].call(log, body)
    assert log.head() == 0
