"""Every command and question, as routes: `POST /v1/do/NAME` with its fields as the body, `GET /v1/ask/NAME` with its
fields as the query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from everlog.core.canonical import parse_json
from everlog.errors import BadRequest, InvalidField
from everlog.programs.command import By, Command
from everlog.programs.operations import Operation
from everlog.programs.perform import perform
from everlog.server.observe.tracing import trace_tags
from everlog.server.route import Answer, Body, Policy, Request, Response, Route, read_query
from everlog.wire.messages import outcome_bytes


class DoQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query string of a command: what belongs to the request and not to the command."""

    dry_run: Annotated[bool, msgspec.Meta(description="Check everything, record nothing.")] = False
    full: Annotated[bool, msgspec.Meta(description="Answer with the result and the records, each as a whole.")] = (
        False
    )
    at: Annotated[datetime | None, msgspec.Meta(description="When it happened, if not now.")] = None
    causation_id: Annotated[str, msgspec.Meta(description="The event that caused this.")] = ""
    correlation_id: Annotated[str, msgspec.Meta(description="What all events that belong together share.")] = ""
    actor: Annotated[str, msgspec.Meta(description="Who acts; another actor than the token's is refused.")] = ""


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
        query=DoQuery if operation.records else operation.value,
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


def by_of(request: Request, asked: DoQuery | None = None) -> By:
    """Return who runs a command, from the token, the headers and the query string of a request."""
    asked = asked or DoQuery()
    if asked.actor and asked.actor != request.caller.actor:
        raise InvalidField(
            f"the request names the actor {asked.actor[:80]!r}",
            why=f"a token decides who acts, and this one is of {request.caller.actor}",
            hint="leave actor out",
            field="actor",
        )
    return By(
        actor=request.caller.actor,
        within=request.caller.within,
        key=request.header("idempotency-key"),
        at=asked.at,
        request_id=request.id,
        causation_id=asked.causation_id,
        correlation_id=asked.correlation_id,
        dry_run=asked.dry_run,
        tags=trace_tags(),
    )


async def _do(request: Request) -> Response:
    body = parse_json(request.body or b"{}", levels_around=1)
    if not isinstance(body, dict):
        raise BadRequest("the body is not an object", hint=f"send the fields of {request.route.name} as JSON")
    asked = read_query(request, DoQuery)
    by = by_of(request, asked)
    operation = request.service.operations[request.path.rpartition("/")[2]]
    command = operation.read(body)
    assert isinstance(command, Command), "the route is that of a command"
    if not asked.full:
        return Response(msgspec.json.encode(await request.service.run(operation.call, request.service.log, body, by)))
    outcome = await request.service.run(perform, request.service.log, command, by)
    headers = [("idempotent-replay", "true")] if outcome.replayed else []
    return Response(await request.service.run(outcome_bytes, outcome), headers=headers)


async def _ask(request: Request) -> Response:
    value = read_query(request, request.service.operations[request.path.rpartition("/")[2]].value)
    body = msgspec.to_builtins(value)
    operation = request.service.operations[request.path.rpartition("/")[2]]
    answer = await request.service.run(operation.call, request.service.log, body, by_of(request))
    return Response(msgspec.json.encode(answer))
