"""The operations of all programs: name, JSON Schema and call, for surfaces that are not a command line.

    for operation in operations():
        mount(operation.name, operation.schema, operation.call)       # HTTP, tools for agents, ...

`openapi()` and `tools()` describe the same list. Nothing here imports an HTTP or a tool library. What comes with a
request but is not part of it (actor, key, what the caller may see) is the `By` that the surface makes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from everlog._version import __version__
from everlog.errors import EverlogError, InvalidField
from everlog.log.log import Log
from everlog.programs.command import NOBODY, By, Command, Question, facts_of
from everlog.programs.perform import ask, perform
from everlog.programs.program import Program
from everlog.programs.registry import Own, every_value


class Operation:
    """A command or a question that a surface can offer."""

    def __init__(self, program: Program, value: type[Command[Any]] | type[Question[Any]]) -> None:
        self.value = value
        self.name = f"{program.name}.{value.verb.replace(' ', '_')}"
        self.records = issubclass(value, Command)

    @property
    def destructive(self) -> bool:
        return bool(getattr(self.value, "destructive", False))

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.value) or "").partition("\n")[0]

    @cached_property
    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the input."""
        (_, *_), components = msgspec.json.schema_components([self.value], ref_template="#/$defs/{name}")
        own = components.pop(self.value.__name__)
        own.pop("title", None)
        return {**own, "additionalProperties": False} | ({"$defs": components} if components else {})

    def call(self, log: Log, body: Mapping[str, Any], by: By = NOBODY) -> Any:
        """Run it with the fields of a JSON object, and return what JSON can hold."""
        value = self.read(body)
        if isinstance(value, Command):
            outcome = perform(log, value, by)
            return {
                **facts_of(outcome.result),
                "status": outcome.status,
                "events": [
                    {"position": one.position, "id": one.event.id, "type": one.event.type, "stream": one.event.stream}
                    for one in outcome.records
                ],
                "next": list(outcome.next),
            }
        return msgspec.to_builtins(ask(log, value, within=by.within))

    def read(self, body: Mapping[str, Any]) -> Command[Any] | Question[Any]:
        """Return the command or the question that the fields of a JSON object make."""
        unknown = sorted(set(body) - set(self.value.__struct_fields__))
        if unknown:
            fields = ", ".join(self.value.__struct_fields__)
            raise _unusable(self.name, f"it has no field {', '.join(unknown)}; its fields are {fields}")
        try:
            found: Command[Any] | Question[Any] = msgspec.convert(dict(body), self.value)
            return found
        except msgspec.ValidationError as error:
            raise _unusable(self.name, str(error)) from error


def _unusable(name: str, why: str) -> EverlogError:
    return InvalidField(f"the input of {name} is not valid", why=why, hint=f"see the schema of {name}", field="body")


def operations(own: Own = "") -> list[Operation]:
    """Return every operation of the built-in programs, then every one of your own programs.

    `own` is `[PROGRAM]`, or the names of modules as in the setting `programs`. The settings of a folder are not read.
    """
    return [Operation(program, value) for program, value in every_value(own)]


def openapi(own: Own = "") -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of all operations."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "everlog", "version": __version__},
        "paths": {f"/{one.name.replace('.', '/')}": {"post": _described(one)} for one in operations(own)},
        "components": {"schemas": {"Error": _ERROR}},
    }


def tools(own: Own = "") -> list[dict[str, Any]]:
    """Return all operations as tools for agents: a name without dots, a description, the schema of the input."""
    return [
        {
            "name": one.name.replace(".", "_"),
            "description": inspect.getdoc(one.value) or "",
            "inputSchema": one.schema,
            "annotations": {"readOnlyHint": not one.records, "idempotentHint": not one.records},
        }
        for one in operations(own)
    ]


def _described(one: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "description": inspect.getdoc(one.value) or "",
        "requestBody": {"required": True, "content": {"application/json": {"schema": one.schema}}},
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {"schema": {}}}},
            "default": {
                "description": "A refusal.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
    if one.records:
        text = "Makes a retry safe: the same request under the same key is recorded once."
        header = {"name": "Idempotency-Key", "in": "header", "description": text, "schema": {"type": "string"}}
        found["parameters"] = [header]
    return found


_ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "why": {"type": "string"},
        "hint": {"type": "string"},
        "details": {"type": "object"},
        "retryable": {"type": "boolean"},
    },
}
