"""Events over HTTP: append one or many, read one event or one position. `pages` and `streaming` read many."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec

from everlog import aio
from everlog.application.operations.appending import REFUSALS, RecordedBatch
from everlog.application.operations.fields import Record
from everlog.core.canonical import parse_json, parse_json_lines
from everlog.core.event import Recorded
from everlog.errors import InvalidField, NotFound, WrongSequence
from everlog.log.write.draft import Draft, Receipt
from everlog.log.write.guard import ATTEMPTS
from everlog.server.callers import confined
from everlog.server.events import cloudevents
from everlog.server.observe.tracing import traced
from everlog.server.routes.route import JSON, NDJSON, Answer, Body, Policy, Request, Response, Route, read_query
from everlog.wire.messages import DraftObject, receipt_bytes, record_bytes

T = TypeVar("T")

BATCH_MAX = 10_000
IN_LOOP_BYTES_MAX = 32 * 1024
BATCH_BYTES_MAX = 16 * 1024 * 1024


class AppendQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query string of an append."""

    dry_run: Annotated[bool, msgspec.Meta(description="Check everything, record nothing.")] = False


def read_draft(body: bytes) -> DraftObject:
    """Return the draft of a JSON body; refuse JSON that two readers could read differently."""
    return _converted(parse_json(body, levels_around=1), "the body")


def _converted(value: Any, name: str) -> DraftObject:
    try:
        return msgspec.convert(value, DraftObject)
    except msgspec.ValidationError as error:
        raise InvalidField(
            f"{name} is not an event",
            why=str(error),
            hint='send {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}',
            field="body",
        ) from error


async def append(request: Request) -> Response:
    asked = read_query(request, AppendQuery)
    key = request.header("idempotency-key")
    kind = _kind(request)
    if kind == cloudevents.ONE or cloudevents.is_binary(request.headers):
        draft, own_key = cloudevents.read_one(request.headers, request.body, request_id=request.id)
        key = key or own_key
    else:
        read = request.service.run(read_draft, request.body) if _is_large(request) else None
        draft = (read_draft(request.body) if read is None else await read).draft(request_id=request.id)
    receipt = await record(request, [draft], operation=draft.type, key=key, dry_run=asked.dry_run)
    return _recorded(receipt, receipt_bytes(receipt.records, batch=False))


def _is_large(request: Request) -> bool:
    """Return whether reading the body, or checking what is in it, would block the event loop for milliseconds."""
    return len(request.body) > IN_LOOP_BYTES_MAX


def _kind(request: Request) -> str:
    return request.header("content-type").partition(";")[0].strip().lower()


async def append_batch(request: Request) -> Response:
    asked = read_query(request, AppendQuery)
    drafts = await request.service.run(_read_batch, request)
    key = request.header("idempotency-key")
    receipt = await record(request, drafts, operation="batch", key=key, dry_run=asked.dry_run)
    body = await request.service.run(partial(receipt_bytes, receipt.records, batch=True))
    return _recorded(receipt, body)


def _read_batch(request: Request) -> list[Draft]:
    kind = _kind(request)
    if kind == cloudevents.BATCH:
        return _few(cloudevents.read_batch(request.body, request_id=request.id))
    if kind == NDJSON:
        values = parse_json_lines(request.body, levels_around=1, lines_max=BATCH_MAX)
    else:
        values = parse_json(request.body, levels_around=2)
    found = _few(values if isinstance(values, list) else [])
    try:
        objects = msgspec.convert(found, list[DraftObject])
    except msgspec.ValidationError:
        objects = [_converted(value, f"event {n}") for n, value in enumerate(found, start=1)]  # it names the event
    caller = request.caller
    return [one.draft(request_id=request.id, actor=caller.actor, scope=caller.within) for one in objects]


def _few(values: list[T]) -> list[T]:
    """Refuse a batch without events, or with too many."""
    if not values:
        raise InvalidField("the batch has no events", hint="send a JSON array, or one event per line", field="body")
    if len(values) > BATCH_MAX:
        raise InvalidField(f"the batch has more than {BATCH_MAX:,} events", hint="send several batches", field="body")
    return values


async def record(request: Request, drafts: list[Draft], *, operation: str, key: str, dry_run: bool) -> Receipt:
    """Record drafts as the caller of a request."""
    caller, log = request.caller, request.service.log

    def own_drafts() -> list[Draft]:
        return traced([confined.own_draft(draft, caller) for draft in drafts])

    large = _is_large(request)
    asked = await request.service.run(own_drafts) if large else own_drafts()
    for attempt in range(1, ATTEMPTS + 1):
        own = asked
        if caller.within:
            own = await request.service.run(confined.claimed_streams, log, asked, caller.within)
        try:
            if dry_run:
                receipt = await request.service.run(
                    log.writer.commit, own, key=key, operation=operation, dry_run=True, key_scope=caller.within
                )
                return await request.service.run(confined.without_place, log, receipt, caller.within)
            return await aio.commit(
                log, own, key=key, operation=operation, key_scope=caller.within, owned=True, large=large
            )
        except WrongSequence as error:
            if attempt == ATTEMPTS or not confined.taken_meanwhile(error, asked):
                raise
    raise AssertionError("the last attempt returns or raises")


def _recorded(receipt: Receipt, body: bytes) -> Response:
    headers = [("idempotent-replay", "true")] if receipt.replayed else []
    return Response(body, status=200 if receipt.dry_run else 201, headers=headers)


async def get(request: Request) -> Response:
    """Return one event by its id, in either spelling."""
    found = await request.service.run(request.service.log.get, request.params["id"])
    return _one(request, confined.visible(found, request.caller), request.params["id"])


async def at(request: Request) -> Response:
    """Return the event at a position."""
    text = request.params["position"]
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise InvalidField(f"{text[:40]!r} is not a position", hint="a position is a number from 1", field="position")
    found = await request.service.run(request.service.log.get, int(text))
    return _one(request, confined.visible(found, request.caller), f"#{text}")


def _one(request: Request, found: Recorded | None, name: str) -> Response:
    if found is None:
        raise NotFound(f"there is no event {name[:80]}", hint="GET /v1/events")
    accept = request.header("accept")
    if cloudevents.are_accepted(accept):
        body, kind = cloudevents.of_record(found, accept)
        return Response(body, content_type=kind, headers=[("vary", "accept")])
    return Response(record_bytes(found), headers=[("vary", "accept")])


_RECORDED = Answer(status=201, about="It is on the disk.", type=Record)
_APPEND = Policy(role="append", scope="within", idempotent=False)
_READ = Policy(role="read", scope="within")

_ONE = (
    Answer(status=200, about="The event.", type=Record),
    Answer(status=200, about="The event, if Accept asks for a CloudEvent.", content_type=cloudevents.ONE),
    Answer(status=200, about="The same as a batch of one.", content_type=cloudevents.BATCH),
)

ROUTES = (
    Route(
        method="POST",
        path="/v1/events",
        name="events.append",
        about="Record one event. When this answers, it is on the disk.",
        policy=_APPEND,
        call=append,
        query=AppendQuery,
        body=Body(type=DraftObject, content_types=(JSON, cloudevents.ONE)),
        answers=(_RECORDED, Answer(status=200, about="A dry run: nothing was recorded.", type=Record)),
        problems=REFUSALS,
        example='{"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}',
        keyed=True,
    ),
    Route(
        method="POST",
        path="/v1/events:batch",
        name="events.append_batch",
        about="Record all events of a batch, or none.",
        policy=_APPEND,
        call=append_batch,
        query=AppendQuery,
        body=Body(type=list[DraftObject], content_types=(JSON, NDJSON, cloudevents.BATCH)),
        answers=(
            Answer(status=201, about="All of them are on the disk.", type=RecordedBatch),
            Answer(status=200, about="A dry run: nothing was recorded.", type=RecordedBatch),
        ),
        problems=REFUSALS,
        example='[{"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}]',
        keyed=True,
        bytes_max=BATCH_BYTES_MAX,
    ),
    Route(
        method="GET",
        path="/v1/events/{id}",
        name="events.get",
        about="Return one event.",
        policy=_READ,
        call=get,
        answers=_ONE,
        problems=("not_found", "invalid_field"),
        example="/v1/events/01M7GNA1VYFX6R4DN7FYV6RCAF",
    ),
    Route(
        method="GET",
        path="/v1/at/{position}",
        name="events.at",
        about="Return the event at a position.",
        policy=_READ,
        call=at,
        answers=_ONE,
        problems=("not_found", "invalid_field"),
        example="/v1/at/1",
    ),
)
