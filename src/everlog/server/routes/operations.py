"""Every command, question and action, as routes: `POST /v1/do/NAME` with its fields as the body, `GET /v1/ask/NAME`
with its fields as the query. `spellings` has further routes for the same operations, with fields in the path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec

from everlog.core.canonical import parse_json
from everlog.errors import BadRequest, InvalidField
from everlog.programs.command import Action, By, Command
from everlog.programs.operations import CommandAnswer, Operation, Value
from everlog.programs.perform import perform
from everlog.server.jobs import Job
from everlog.server.observe.tracing import trace_tags
from everlog.server.routes.route import Answer, Body, Request, Response, Route, is_repeatable, read_query
from everlog.wire.messages import OutcomeObject, outcome_bytes


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


class NoQuery(msgspec.Struct, frozen=True):
    """A query string without parameters."""


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """Another route for an operation. `fields` are those that the path has."""

    path: str
    name: str
    operation: str
    fields: Mapping[str, str] = {}
    example: Mapping[str, Any] | None = None  # if that of the operation does not fit the path


def routes_of(operations: Sequence[Operation], spellings: Sequence[Spelling] = ()) -> list[Route]:
    """Return the routes of operations: one for each, and one for each spelling."""
    named = {operation.name: operation for operation in operations}
    return [
        *map(route_of, operations),
        *(route_of(named[one.operation], one) for one in spellings),
    ]


def route_of(operation: Operation, spelling: Spelling | None = None) -> Route:
    kind = "do" if operation.records else "ask"
    value = operation.value
    fields = {} if spelling is None else spelling.fields
    path = f"/v1/{kind}/{operation.name}" if spelling is None else spelling.path
    example = value.example if spelling is None or spelling.example is None else spelling.example
    query: type[msgspec.Struct] | None = None
    if not operation.records:
        query = value
    elif issubclass(value, Command):
        query = DoQuery
    return Route(
        method="POST" if operation.records else "GET",
        path=path,
        name=f"{kind}.{operation.name}" if spelling is None else spelling.name,
        about=operation.summary,
        policy=operation.policy,
        call=_do if operation.records else _ask,
        query=query,
        body=Body(type=value) if operation.records else None,
        answers=_answers(operation),
        problems=operation.problems,
        example=_example(operation, example, path, fields),
        example_path=example_path(path, example, fields),
        operation=operation.name,
        from_path=fields,
        keyed=operation.keyed,
    )


def _answers(operation: Operation) -> tuple[Answer, ...]:
    if operation.long:
        return (Answer(status=202, about="It has begun; Location names the job.", type=Job),)
    if not issubclass(operation.value, Command):
        return (Answer(status=200, about="The answer.", type=operation.result_type),)
    brief = Answer(status=200, about="What was done.", type=_outcome_type(operation.result_type))
    return brief, Answer(status=200, about="The whole outcome, with full=true.", type=OutcomeObject)


def _outcome_type(result: Any) -> Any:
    """Return the type of what a command answers: the fields of its result, and those of every command."""
    if not (isinstance(result, type) and issubclass(result, msgspec.Struct)) or hasattr(result, "facts"):
        return CommandAnswer
    own = [(one.name, one.type) for one in msgspec.structs.fields(result)]
    return msgspec.defstruct(f"{result.__name__}Answer", own, bases=(CommandAnswer,), kw_only=True)


def _example(operation: Operation, example: Mapping[str, Any], path: str, from_path: Mapping[str, str]) -> str:
    """Return an example of an operation as a path with a query, or as a body."""
    given = {name: value for name, value in example.items() if name not in from_path}
    if operation.records:
        return msgspec.json.encode(given).decode()
    pairs = [
        (name, str(one).lower() if isinstance(one, bool) else one)
        for name, value in given.items()
        for one in (value if isinstance(value, list | tuple) else [value])
    ]
    path = example_path(path, example, from_path)
    return f"{path}?{urlencode(pairs)}" if pairs else path


def example_path(path: str, example: Mapping[str, Any], from_path: Mapping[str, str]) -> str:
    """Return a path with the values of an example in place of its {names}."""
    for field, pattern in from_path.items():
        value = example.get(field, "")
        texts = str(value[0] if isinstance(value, list | tuple) else value).split("/", pattern.count("{") - 1)
        for name, text in zip(pattern.split("/"), texts, strict=False):
            path = path.replace(name.rstrip("}") + "+}", name).replace(name, text)
    return path


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
        request_id=request.id,
        tags=trace_tags(),
        at=asked.at,
        causation_id=asked.causation_id,
        correlation_id=asked.correlation_id,
        dry_run=asked.dry_run,
    )


async def _do(request: Request) -> Response:
    operation = request.service.operations[request.route.operation]
    asked = read_query(request, DoQuery if request.route.query is not None else NoQuery)
    body = parse_json(request.body or b"{}", levels_around=1)
    if not isinstance(body, dict):
        raise BadRequest("the body is not an object", hint=f"send the fields of {operation.name} as JSON")
    given = _from_path(request, operation)
    if twice := sorted(set(body) & set(given)):
        raise InvalidField(
            f"the body has the field {twice[0]}",
            why="the path has it already",
            hint="leave it out",
            field=twice[0],
        )
    value = operation.read({**body, **given})
    by = by_of(request, asked if isinstance(asked, DoQuery) else None)
    if not (isinstance(value, Command) and asked.full):
        return await _called(request, operation, value, by)
    outcome = await request.service.run(perform, request.service.log, value, by)
    headers = [("idempotent-replay", "true")] if outcome.replayed else []
    return Response(await request.service.run(outcome_bytes, outcome), headers=headers)


async def _ask(request: Request) -> Response:
    operation = request.service.operations[request.route.operation]
    value = read_query(request, operation.value, _from_path(request, operation))
    return await _called(request, operation, value, by_of(request))


def _from_path(request: Request, operation: Operation) -> dict[str, Any]:
    """Return the fields that the path has, with the types of the fields."""
    kinds = operation.field_types
    found: dict[str, Any] = {}
    for field, pattern in request.route.from_path.items():
        text = pattern.format_map(request.params)
        given = [text] if is_repeatable(kinds[field]) else text
        try:
            found[field] = msgspec.to_builtins(msgspec.convert(given, kinds[field], strict=False))
        except msgspec.ValidationError as error:
            raise InvalidField(
                f"{text[:80]!r} in the path is not a {field}", why=str(error), hint="correct the path", field=field
            ) from error
    return found


async def _called(request: Request, operation: Operation, value: Value, by: By) -> Response:
    service = request.service
    if operation.long:
        assert isinstance(value, Action)
        value.check()
        job = service.jobs.start(
            operation.name, lambda progress: operation.run(service.log, value, by, progress).answer
        )
        return Response(msgspec.json.encode(job), status=202, headers=[("location", f"/v1/jobs/{job.id}")])
    run = service.run_waiting if not isinstance(value, Command) and value.waits else service.run
    called = await run(operation.run, service.log, value, by)
    headers = [("idempotent-replay", "true")] if called.replayed else []
    return Response(msgspec.json.encode(called.answer), headers=headers)
