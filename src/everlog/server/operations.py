"""Every command and question, as routes: `POST /v1/do/NAME` with its fields as the body, `GET /v1/ask/NAME` with its
fields as the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from everlog.core.canonical import parse_json
from everlog.errors import BadRequest
from everlog.programs.command import By
from everlog.programs.operations import Operation
from everlog.server.observe.tracing import trace_tags
from everlog.server.route import Answer, Body, Policy, Request, Response, Route, read_query


def routes_of(operations: Sequence[Operation]) -> list[Route]:
    """Return the routes of operations."""
    return [_route(operation) for operation in operations]


def _route(operation: Operation) -> Route:
    kind = "do" if operation.records else "ask"
    return Route(
        method="POST" if operation.records else "GET",
        path=f"/v1/{kind}/{operation.name}",
        name=f"{kind}.{operation.name}",
        about=operation.summary,
        policy=policy_of(operation),
        call=_do if operation.records else _ask,
        query=None if operation.records else operation.value,
        body=Body(type=operation.value) if operation.records else None,
        answers=(Answer(status=200, about="The answer.", type=Mapping[str, Any]),),
        problems=("invalid_field", "no_such_subject", "rule_refused", "idempotency_key_reuse")
        if operation.records
        else ("invalid_field", "no_such_subject", "not_found"),
        example=next(iter(operation.value.examples), operation.name),
        keyed=operation.records,
    )


def policy_of(operation: Operation) -> Policy:
    if operation.records:
        return Policy(role="append", scope="within", destructive=operation.destructive, idempotent=False)
    return Policy(role="read", scope="within")


def by_of(request: Request) -> By:
    """Return who runs a command, from the token and the headers of a request."""
    return By(
        actor=request.caller.actor,
        within=request.caller.within,
        key=request.header("idempotency-key"),
        request_id=request.id,
        tags=trace_tags(),
    )


async def _do(request: Request) -> Response:
    body = parse_json(request.body or b"{}", levels_around=1)
    if not isinstance(body, dict):
        raise BadRequest("the body is not an object", hint=f"send the fields of {request.route.name} as JSON")
    return await _called(request, body)


async def _ask(request: Request) -> Response:
    value = read_query(request, request.service.operations[request.path.rpartition("/")[2]].value)
    return await _called(request, msgspec.to_builtins(value))


async def _called(request: Request, body: Mapping[str, Any]) -> Response:
    operation = request.service.operations[request.path.rpartition("/")[2]]
    answer = await request.service.run(operation.call, request.service.log, body, by_of(request))
    return Response(msgspec.json.encode(answer))
