"""`GET /v1/events`: a page of events, at once or as soon as there is one, or all of them as lines.

    after=CURSOR       the caller holds state of earlier events: a page may be a reset in place of events
    from=POSITION      the caller only looks: what was purged is shown as holes, and there is no reset
    order=newest       the caller looks backwards: `next` is the `from` of the page of older events

`wait`, and `Accept` with NDJSON or CloudEvents, change when and how a page is sent, not what it has.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlencode

import msgspec

from everlog.application.events.reading import Read, Reading
from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import EverlogError, InvalidField, NotSignedIn
from everlog.server.events import cloudevents
from everlog.server.events.clients import Client, Live
from everlog.server.events.sending import Sending
from everlog.server.events.streaming import Filter, still_allowed
from everlog.server.routes.route import NDJSON, Answer, Policy, Request, Response, Route, Streamed, read_query
from everlog.wire import problems
from everlog.wire.messages import PageObject, page_bytes, record_bytes

LIMIT_MAX = 10_000
LIMIT = 100
WAIT_S_MAX = 60
EXPORT_PAGE = 500
END = "everlog_end"
"""The name of the last line of an export. An export without it was cut."""


class EventsQuery(Filter, frozen=True, kw_only=True):
    """The query string of a page."""

    after: Annotated[str | None, msgspec.Meta(description="Continue after this cursor, with resets.")] = None
    from_: Annotated[int, msgspec.Meta(ge=0, le=2**53, description="Only look, from this position.")] | None = (
        msgspec.field(default=None, name="from")
    )
    limit: (
        Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX, description="At most this many events; 100 without it.")]
        | None
    ) = None
    order: Annotated[Literal["oldest", "newest"], msgspec.Meta(description="Which end to begin with.")] = "oldest"
    wait: Annotated[
        float, msgspec.Meta(ge=0, le=WAIT_S_MAX, description="Wait so many seconds for an event, if there is none.")
    ] = 0


async def page(request: Request) -> Response | Streamed:
    asked: EventsQuery = read_query(request, EventsQuery)
    _refuse_contradictions(asked)
    accepted = request.header("accept")
    if NDJSON in accepted:
        return await _export(request, asked)
    found = await _json_page(request, asked)
    if found.status == 200 and cloudevents.are_accepted(accepted):
        origin = request.service.log.identity.origin
        body, facts = await request.service.run(cloudevents.of_page, found.body, origin)
        return Response(body, content_type=cloudevents.BATCH, headers=[*found.headers[1:], *facts])
    return found


async def _json_page(request: Request, asked: EventsQuery) -> Response:
    reading = Reading(request.service.log, asked.query(), request.caller.within)
    known = request.header("if-none-match")
    if known and not asked.wait:
        tag = await request.service.run(lambda: _tag(request, reading.epoch, reading.head()))
        if tag in known:
            return _unchanged(tag)
    if asked.order == "newest":
        return await request.service.run(_newest, request, asked, reading)
    found = await _waited(request, asked, reading) if asked.wait else None
    if found is None:
        found = await request.service.run(_oldest, request, asked, reading)
    tag = next(value for name, value in found.headers if name == "etag")
    return _unchanged(tag) if known and tag in known else found


def _refuse_contradictions(asked: EventsQuery) -> None:
    if asked.after is not None and asked.from_ is not None:
        raise InvalidField(
            "both after and from are given",
            why="after= is for a caller that holds state, and gets resets; from= is for one that only looks",
            hint="leave one of them out",
            field="from",
        )
    if asked.order == "newest" and (asked.after is not None or asked.wait):
        field = "wait" if asked.after is None else "after"
        raise InvalidField(
            f"{field} cannot be used with order=newest",
            why="what is new comes at the other end",
            hint="from= is where to continue with older events",
            field=field,
        )


def _start(asked: EventsQuery) -> Cursor:
    if asked.after is not None:
        return Cursor.of(asked.after)
    return Cursor(Position(max(0, (asked.from_ or 0) - 1)))


# ---- one page


def _oldest(request: Request, asked: EventsQuery, reading: Reading) -> Response:
    texts = request.service.texts
    read, found = reading.rendered(_start(asked), texts, limit=asked.limit or LIMIT, looking=asked.after is None)
    return _of_texts(request, asked, reading, read, found)


def _of_read(request: Request, asked: EventsQuery, reading: Reading, read: Read) -> Response:
    found = request.service.texts.of(read.page.events, reading.epoch)
    return _of_texts(request, asked, reading, read, found)


def _of_texts(request: Request, asked: EventsQuery, reading: Reading, read: Read, found: Sequence[bytes]) -> Response:
    page = read.page
    looked_to = page.next_cursor.position
    looking = asked.after is None
    if page.reset is not None:
        request.service.hub.resets_sent += 1
    body = page_bytes(
        found,
        next=str(page.next_cursor),
        head=page.head,
        looked_to=looked_to,
        reset=page.reset,
        holes=reading.holes(max(1, asked.from_ or 1), looked_to) if looking else (),
    )
    epoch = page.next_cursor.epoch or reading.epoch
    following = {"from": str(looked_to + 1)} if looking else {"after": str(page.next_cursor)}
    return _page(request, body, epoch=epoch, head=page.head, following=following)


def _newest(request: Request, asked: EventsQuery, reading: Reading) -> Response:
    epoch, head = reading.epoch, reading.head()
    records, before = reading.before(asked.from_, limit=asked.limit or LIMIT)
    first = asked.from_ if asked.from_ is not None else head
    body = page_bytes(
        request.service.texts.of(records, epoch),
        next=str(before),
        head=max(head, records[0].position) if records else head,
        looked_to=before + 1 if first else 0,
        holes=reading.holes(before + 1, min(first, head)),
    )
    return _page(request, body, epoch=epoch, head=head, following={"from": str(before)} if before else None)


def _page(request: Request, body: bytes, *, epoch: str, head: Position, following: dict[str, str] | None) -> Response:
    headers = [("etag", _tag(request, epoch, head)), ("cache-control", "private, no-cache"), ("vary", "accept")]
    if following is not None:
        kept = [(name, value) for name, value in _pairs(request) if name not in ("after", "from")]
        query = urlencode([*following.items(), *kept])
        headers.append(("link", f'<?{query}>; rel="next"'))
    return Response(body, headers=headers)


def _tag(request: Request, epoch: str, head: int) -> str:
    """Return what names the answer to this query, as long as the log does not grow.

    The head of a limited caller is its own: it does not change when others write.
    """
    asked = urlencode(sorted(pair for pair in _pairs(request) if pair[0] != "wait"))
    form = cloudevents.BATCH if cloudevents.are_accepted(request.header("accept")) else ""
    of_query = hashlib.sha256(f"{request.caller.within}\0{asked}\0{form}".encode()).hexdigest()[:16]
    return f'"{epoch}-{head}-{of_query}"'


def _pairs(request: Request) -> list[tuple[str, str]]:
    return parse_qsl(request.query_text, keep_blank_values=True)


def _unchanged(tag: str) -> Response:
    return Response(b"", status=304, headers=[("etag", tag), ("cache-control", "private, no-cache")])


# ---- waiting for a page


async def _waited(request: Request, asked: EventsQuery, reading: Reading) -> Response | None:
    """Return the page that is there within the time, None if none is: then the caller gets what there is."""
    hub, looking = request.service.hub, asked.after is None
    client = Client(reading, still_allowed(request), heartbeats=False)
    limit, until = asked.limit or LIMIT, asyncio.get_running_loop().time() + asked.wait
    hub.add(client)
    try:
        cursor = _start(asked)
        while not client.ending:
            read = await request.service.run(reading.after, cursor, limit=limit, looking=looking)
            if read.page.events or read.page.reset is not None or not read.at_end:
                return await request.service.run(_of_read, request, asked, reading, read)
            client.advance(read)
            answer = hub.poll(client)
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return await request.service.run(_of_read, request, asked, reading, read)
            try:
                async with asyncio.timeout(left):
                    if answer is None:
                        await client.wait()
                        continue
                    live = await answer
            except TimeoutError:
                return None
            if live is not None:
                return _of_live(request, asked, live, limit)
    finally:
        hub.remove(client)
    if client.ending == "revoked":
        raise NotSignedIn("the token is not valid any more", why="it was revoked, or it has expired")
    return None


def _of_live(request: Request, asked: EventsQuery, live: Live, limit: int) -> Response:
    frames, following, head = live.frames, live.next, live.head
    if len(frames) > limit:
        frames = frames[:limit]
        following = frames[-1].cursor
    body = page_bytes(
        [frame.record for frame in frames], next=str(following), head=head, looked_to=following.position
    )
    link = {"from": str(following.position + 1)} if asked.after is None else {"after": str(following)}
    return _page(request, body, epoch=following.epoch, head=head, following=link)


# ---- all pages, as lines


class Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last line of an export: how many events it had, and where to continue."""

    count: int
    next: str
    head: int
    reset_required: bool = False
    reason: str = ""
    problem: problems.Problem | None = None


async def _export(request: Request, asked: EventsQuery) -> Streamed:
    if asked.wait:
        raise InvalidField(
            "an export does not wait", hint="leave wait out, or follow /v1/events/stream", field="wait"
        )
    reading = Reading(request.service.log, asked.query(), request.caller.within)
    export = _Export(request, asked, reading)
    # The first page is read before the answer begins: what is wrong then is still a problem document.
    first = await request.service.run(export.read)

    async def send(sending: Sending) -> None:
        data = first
        while data:
            await sending(data)
            data = await request.service.run(export.read_or_end)

    return Streamed(send, content_type=NDJSON, headers=[("cache-control", "no-store")])


class _Export:
    """An export, page by page: it holds one page at a time, however long the log is."""

    def __init__(self, request: Request, asked: EventsQuery, reading: Reading) -> None:
        self._request = request
        self._reading = reading
        self._newest = asked.order == "newest"
        self._looking = asked.after is None
        self._left = asked.limit
        self._cursor = _start(asked)
        self._before = asked.from_
        self._upto = -1  # the head when it began: what comes later is not part of it, or it might never end
        self._count = 0
        self._ended = False

    def read_or_end(self) -> bytes:
        """Return the next lines, or why there are none. Nothing after the last line."""
        try:
            return b"" if self._ended else self.read()
        except EverlogError as error:
            return self._end(problem=problems.problem_of(error, request_id=self._request.id))

    def read(self) -> bytes:
        """Return the next lines; the last one says how the export ended."""
        if self._upto < 0:
            self._upto = self._reading.head()
        limit = EXPORT_PAGE if self._left is None else min(EXPORT_PAGE, self._left)
        if self._newest:
            records, self._before = self._reading.before(self._before, limit=limit)
            found = [record_bytes(recorded) for recorded in records]
            more = self._before > 0
        else:
            texts = self._request.service.texts
            read, found = self._reading.rendered(self._cursor, texts, limit=limit, looking=self._looking)
            page = read.page
            self._cursor = page.next_cursor
            if page.reset is not None:
                self._request.service.hub.resets_sent += 1
                return self._end(reset_required=True, reason=page.reset.reason)
            more = not page.at_head and self._cursor.position < self._upto
        self._count += len(found)
        if self._left is not None:
            self._left -= len(found)
        lines = b"".join([text + b"\n" for text in found])
        return lines if more and self._left != 0 else lines + self._end()

    def _end(
        self, *, reset_required: bool = False, reason: str = "", problem: problems.Problem | None = None
    ) -> bytes:
        self._ended = True
        following = str(self._before or 0) if self._newest else str(self._cursor)
        ended = Ended(self._count, following, self._reading.head(), reset_required, reason, problem)
        return msgspec.json.encode({END: ended}) + b"\n"


ROUTES = (
    Route(
        method="GET",
        path="/v1/events",
        name="events.page",
        about="Return some events after a cursor, in order, or a reset if history has changed under it.",
        policy=Policy(role="read", scope="within"),
        call=page,
        query=EventsQuery,
        answers=(
            Answer(status=200, about="A page.", type=PageObject),
            Answer(status=200, about="All events, one per line; the last line is the end.", content_type=NDJSON),
            Answer(
                status=200, about="A page as CloudEvents, if Accept asks for them.", content_type=cloudevents.BATCH
            ),
            Answer(status=304, about="Nothing has changed since the answer that If-None-Match names."),
        ),
        problems=("invalid_field", "damaged", "schema_broken"),
        headers=("If-None-Match",),
        example="/v1/events?after=0&kind=note",
    ),
)
