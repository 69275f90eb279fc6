"""`everlog mcp`: a client of the Model Context Protocol initializes, lists the tools and calls them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run, clean_environment

Talk = Callable[..., list[Any]]
CALL = "tools/call"


@pytest.fixture
def talk(everlog: Run) -> Talk:
    """What the server answers to (method, params), each with its place as id; a text is sent as it is."""

    def run(*messages: tuple[str, dict[str, Any]] | str, options: tuple[str, ...] = ()) -> list[Any]:
        lines = []
        for place, message in enumerate(messages):
            if isinstance(message, str):
                lines.append(message)
            else:
                found = {"jsonrpc": "2.0", "id": place, "method": message[0], "params": message[1]}
                lines.append(json.dumps(found))
        answered = everlog("mcp", *options, stdin="\n".join(lines).encode())
        assert answered.code == 0, answered.err
        return [json.loads(line) for line in answered.out.splitlines()]

    return run


@pytest.fixture
def shop(everlog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERLOG_PROGRAMS")
    assert everlog("init", "--program", "issue").code == 0


@pytest.mark.usefixtures("shop")
def test_a_client_initializes_and_is_told_how_to_use_the_log(talk: Talk, everlog: Run) -> None:
    asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    started, pong = talk(
        ("initialize", asked), '{"jsonrpc":"2.0","method":"notifications/initialized"}', "", ("ping", {})
    )
    assert started["result"]["protocolVersion"] == "2025-06-18"
    assert started["result"]["capabilities"] == {"tools": {"listChanged": False}}
    assert started["result"]["serverInfo"]["name"] == "everlog"
    assert started["result"]["instructions"] + "\n" == everlog("help", "agents").out
    assert (pong["id"], pong["result"]) == (3, {})
    (newer,) = talk(("initialize", {"protocolVersion": "2099-01-01"}))
    assert newer["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.usefixtures("shop")
def test_the_tools_are_the_operations_of_the_log_and_of_the_programs_that_are_on(talk: Talk) -> None:
    (answer,) = talk(("tools/list", {}))
    tools = {tool["name"]: tool for tool in answer["result"]["tools"]}
    assert {name.partition("_")[0] for name in tools} == {"log", "view", "issues"}
    append = tools["log_append"]
    assert append["inputSchema"]["type"] == "object"
    assert "idempotency_key" in append["inputSchema"]["properties"]
    assert "idempotency_key" not in tools["log_head"]["inputSchema"]["properties"]
    assert tools["log_purge"]["annotations"]["destructiveHint"] is True
    assert tools["log_head"]["annotations"]["readOnlyHint"] is True
    assert all(tool["description"] for tool in tools.values())
    (answer,) = talk(("tools/list", {}), options=("--all",))
    assert "workpackages_claim" in {tool["name"] for tool in answer["result"]["tools"]}


@pytest.mark.usefixtures("shop")
def test_a_call_records_once_under_its_key_and_as_the_actor_of_the_server(talk: Talk, everlog: Run) -> None:
    fields = {"title": "The door squeaks", "idempotency_key": "call-1"}
    call = (CALL, {"name": "issues_create", "arguments": fields})
    first, again = talk(call, call, options=("--actor", "agent:builder"))
    assert first["result"] == {**again["result"]}
    assert first["result"]["isError"] is False
    assert first["result"]["structuredContent"]["status"] == "recorded"
    assert json.loads(first["result"]["content"][0]["text"]) == first["result"]["structuredContent"]
    (record,) = everlog("log", "--json").data
    assert (record["type"], record["actor"]) == ("issue.created", "agent:builder")
    head, page = talk((CALL, {"name": "log_head"}), (CALL, {"name": "log_page", "arguments": {"after": "0"}}))
    assert head["result"]["structuredContent"]["head"] == 1
    assert page["result"]["structuredContent"]["events"][0]["type"] == "issue.created"


@pytest.mark.usefixtures("shop")
def test_a_refusal_is_an_answer_that_says_what_to_do(talk: Talk) -> None:
    unknown = {"type": "note.aded", "stream": "note/1", "payload": {}}
    refused, wrong = talk(
        (CALL, {"name": "log_append", "arguments": unknown}),
        (CALL, {"name": "issues_create", "arguments": {"tilte": "x"}}),
    )
    assert refused["result"]["isError"] is True
    found = refused["result"]["structuredContent"]
    assert (found["code"], "did you mean note.added?" in found["hint"]) == ("unknown_type", True)
    assert "did you mean title?" in wrong["result"]["structuredContent"]["hint"]


@pytest.mark.usefixtures("shop")
def test_what_is_no_call_is_an_error_of_the_protocol_and_ends_nothing(talk: Talk) -> None:
    found = talk(
        "nonsense",
        "[]",
        ("resources/list", {}),
        (CALL, {"name": "no_such_tool"}),
        (CALL, {"name": "log_head", "arguments": [1]}),
        '{"jsonrpc":"2.0","id":"a","method":"ping","params":[1]}',
        '{"jsonrpc":"2.0","id":7,"result":{}}',
        ("ping", {}),
    )
    codes = [one.get("error", {}).get("code") for one in found]
    assert codes == [-32700, -32600, -32601, -32602, -32602, -32602, None]
    assert found[5]["id"] == "a"


def test_without_a_log_it_says_so(everlog: Run) -> None:
    assert everlog("mcp").code == 4


def test_the_official_client_agrees(everlog: Run, place: Path) -> None:
    mcp = pytest.importorskip("mcp", reason="the protocol's own client is not installed: pip install mcp")
    stdio = pytest.importorskip("mcp.client.stdio")
    assert everlog("init").code == 0
    parameters = mcp.StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "everlog", "mcp", "--actor", "agent:a"],
        env=clean_environment(place),
        cwd=place,
    )

    async def talk() -> tuple[str, int, bool]:
        async with (
            stdio.stdio_client(parameters) as (reading, writing),
            mcp.ClientSession(reading, writing) as session,
        ):
            started = await session.initialize()
            listed = await session.list_tools()
            fields = {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}
            called = await session.call_tool("log_append", fields)
            return started.server_info.name, len(listed.tools), called.is_error

    name, tools, wrong = asyncio.run(talk())
    assert (name, wrong) == ("everlog", False)
    assert tools > 10
    assert [one["actor"] for one in everlog("log", "--json").data] == ["agent:a"]
