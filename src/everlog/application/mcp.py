"""A log as tools for agents: the Model Context Protocol over standard input and output.

Every operation of the log, and of the programs that are on in it, is a tool; `everlog help agents` is what a client
tells its model first. The protocol is JSON-RPC, one message per line: `initialize`, `ping`, `tools/list` and
`tools/call` are all that a server of tools needs, so no library is (docs/decisions/0054).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from everlog import programs
from everlog._version import __version__
from everlog.application.folder.open import Location
from everlog.application.operations.registry import operations
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.operations import Operation, tools_of

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Of the protocol, the newest first. What is used here is the same in all of them."""

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
KEY = "idempotency_key"
_KEY_SCHEMA = {"type": "string", "description": "A retry with the same key is done once."}


def offered(location: Location, log: Log, *, everything: bool) -> list[Operation]:
    """Return the operations for an agent: of the log, of the user's programs, and of those of everlog that are on."""
    own = location.own_programs()
    on = {"log", "view", *(program.name for program in own)}
    on.update(name for name in programs.TYPES if everything or location.is_on(name, log))
    return [one for one in operations(own) if one.name.partition(".")[0] in on]


class _Refused(Exception):
    """An error of the protocol: a call that no tool ever saw."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """The tools of one log, for one client."""

    def __init__(
        self, log: Log, operations: Iterable[Operation], *, actor: str, within: str, instructions: str
    ) -> None:
        self._log, self._actor, self._within = log, actor, within
        self._instructions = instructions
        self._operations = {one.name.replace(".", "_"): one for one in operations}
        self._methods: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "initialize": self._initialize,
            "ping": lambda params: {},
            "tools/list": lambda params: {"tools": list(self.tools())},
            "tools/call": self._call,
        }

    def tools(self) -> Iterator[dict[str, Any]]:
        """Describe every tool. One that may be retried takes a key beside its own fields."""
        for tool, operation in zip(tools_of(self._operations.values()), self._operations.values(), strict=True):
            if operation.keyed:
                schema = tool["inputSchema"]
                tool = {**tool, "inputSchema": {**schema, "properties": {**schema["properties"], KEY: _KEY_SCHEMA}}}
            yield tool

    def answers(self, lines: Iterable[str]) -> Iterator[str]:
        """Answer the messages of a client, one line each, until there are no more."""
        for line in lines:
            if line.strip() and (answer := self.answer(line)) is not None:
                yield json.dumps(answer, ensure_ascii=False, separators=(",", ":"))

    def answer(self, line: str) -> dict[str, Any] | None:
        """Return the answer to one message; None to a notification, and to an answer of the client."""
        try:
            message = json.loads(line)
        except ValueError as error:
            return _error(None, PARSE_ERROR, f"it is not JSON: {error}")
        if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
            return _error(None, INVALID_REQUEST, "a message is an object with a method")
        if "method" not in message or "id" not in message:
            return None
        name = message["id"]
        try:
            params = message.get("params") or {}
            if message["method"] not in self._methods:
                raise _Refused(NO_METHOD, f"there is no method {message['method'][:80]}")
            if not isinstance(params, dict):
                raise _Refused(INVALID_PARAMS, "params is an object")
            return {"jsonrpc": "2.0", "id": name, "result": self._methods[message["method"]](params)}
        except _Refused as error:
            return _error(name, error.code, str(error))

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "everlog", "version": __version__},
            "instructions": self._instructions,
        }

    def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        operation = self._operations.get(str(params.get("name")))
        given = params.get("arguments") or {}
        if operation is None:
            raise _Refused(INVALID_PARAMS, f"there is no tool {str(params.get('name'))[:80]}")
        if not isinstance(given, dict):
            raise _Refused(INVALID_PARAMS, "arguments is an object")
        fields = dict(given)
        key = str(fields.pop(KEY, "")) if operation.keyed else ""
        try:
            by = By(actor=self._actor, key=key, within=self._within)
            answer = msgspec.to_builtins(operation.call(self._log, fields, by))
        except EverlogError as error:
            return _result(_refusal(error), wrong=True)
        return _result(answer if isinstance(answer, dict) else {"result": answer})


def _refusal(error: EverlogError) -> dict[str, Any]:
    """Return what the command line prints with --json."""
    return {
        "code": error.code,
        "message": error.what,
        "why": error.why,
        "hint": error.hint,
        "details": msgspec.to_builtins(error.details, enc_hook=repr),
        "retryable": error.retryable,
    }


def _result(content: dict[str, Any], *, wrong: bool = False) -> dict[str, Any]:
    """Return an answer twice, as the protocol wants it: as text for a model, and as data."""
    text = json.dumps(content, ensure_ascii=False)
    return {"content": [{"type": "text", "text": text}], "structuredContent": content, "isError": wrong}


def _error(name: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": name, "error": {"code": code, "message": message}}
