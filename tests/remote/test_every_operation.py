"""Every command and question of every program can be sent, and its answer read into the class that it names."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import msgspec
import pytest

from everlog.programs.command import By, Command, Question
from everlog.programs.operations import Operation, operations
from everlog.remote import calls
from everlog.remote.calls import Reply
from everlog.server.routes.route import is_repeatable


def _given(operation: Operation) -> Any:
    return operation.read(operation.value.example)


OPERATIONS = {one.name: one for one in operations()}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_becomes_a_request_that_the_server_reads_as_the_same_value(name: str) -> None:
    operation = OPERATIONS[name]
    value = _given(operation)
    assert operation.result_type is not Any
    if isinstance(value, Command):
        call: calls.Call[Any] = calls.perform(value, By())
        assert call.path == f"/v1/do/{name}"
        assert operation.read(msgspec.json.decode(call.body)) == value
        return
    assert isinstance(value, Question)
    call = calls.ask(value)
    assert call.path == f"/v1/ask/{name}"
    found: dict[str, Any] = {}
    kinds = {one.encode_name: one.type for one in msgspec.structs.fields(operation.value)}
    for field, text in parse_qsl(call.target.partition("?")[2], keep_blank_values=True):
        if is_repeatable(kinds[field]):
            found.setdefault(field, []).append(text)
        else:
            found[field] = text
    assert msgspec.convert(found, operation.value, strict=False) == value


def test_an_answer_of_another_shape_is_not_taken_for_a_result() -> None:
    propose = _given(OPERATIONS["agents.propose"])
    reply = Reply(200, {}, b'{"result":{"no":"id"},"status":"recorded"}')
    with pytest.raises(Exception, match="does not answer as a server of everlog does"):
        calls.perform(propose, By()).read(reply, "https://log.example.com")
