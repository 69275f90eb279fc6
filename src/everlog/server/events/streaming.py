"""`GET /v1/events/stream`: events as they are recorded, as Server-Sent Events. `frames` has their form.

A stream reads pages from its cursor until the hub's ring has the rest, and is then given chunks of the hub. Pages and
chunks are checked for resets by the same function as `GET /v1/events`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from everlog.application.events.reading import Read, Reading
from everlog.application.operations.fields import Filter as Filter
from everlog.core.query import Cursor
from everlog.errors import CursorConflict, EverlogError, Unavailable
from everlog.log.log import Log
from everlog.server.callers.auth import caller_of
from everlog.server.events import cloudevents
from everlog.server.events.clients import Allowed, Client
from everlog.server.events.frames import frames_of, notice
from everlog.server.events.sending import Chunk, Sending
from everlog.server.routes.route import SSE, Answer, Policy, Request, Response, Route, Streamed, read_query
from everlog.wire import problems

PAGE, FIRST_PAGE = 500, 50
PAGE_BYTES = 256 * 1024
"""About how much a stream that catches up reads at once."""


class StreamQuery(Filter, frozen=True, kw_only=True):
    """The query string of a stream."""

    after: Annotated[str | None, msgspec.Meta(description="Begin after this cursor; without it, at the start.")] = (
        None
    )


async def stream(request: Request) -> Response | Streamed:
    asked: StreamQuery = read_query(request, StreamQuery)
    last_id = request.header("last-event-id")
    if asked.after is not None and last_id:
        raise CursorConflict(
            "both after and Last-Event-ID are given",
            why="each names a cursor to continue from",
            hint="leave after out when a stream is continued",
        )
    cursor = Cursor.of(last_id or asked.after or "0")
    service = request.service
    if service.hub.closing:
        raise Unavailable("the server is stopping", hint="try again in a moment")
    reading = Reading(service.log, asked.query(), request.caller.within)
    # The first page is read before the answer begins: what is wrong then is still a problem document.
    first = await service.run_catching_up(_read, reading, service.log, cursor, FIRST_PAGE)
    return Streamed(
        _Stream(request, reading, first).run,
        content_type=f"{SSE}; charset=utf-8",
        headers=[("cache-control", "no-store"), ("x-accel-buffering", "no")],
    )


def _read(reading: Reading, log: Log, cursor: Cursor, limit: int) -> tuple[Read, bytes]:
    """Return a page, and its events as text."""
    read = reading.after(cursor, limit=limit)
    return read, b"".join([frame.data for frame in frames_of(read.page, read.knows, log.identity)])


def still_allowed(request: Request) -> Allowed:
    """Return a check whether the caller of a request would still be allowed to send it."""

    async def check() -> bool:
        try:
            return await caller_of(request.service, request.method, request.headers) == request.caller
        except EverlogError:
            return False

    return check


class _Stream:
    """One open stream."""

    def __init__(self, request: Request, reading: Reading, first: tuple[Read, bytes]) -> None:
        self._request = request
        self._service = request.service
        self._hub = request.service.hub
        self._reading = reading
        self._first: tuple[Read, bytes] | None = first
        self._limit = FIRST_PAGE
        self._client = Client(reading, still_allowed(request))
        self._as_cloudevents = cloudevents.are_accepted(request.header("accept"))

    async def run(self, sending: Sending) -> None:
        client, hub = self._client, self._hub
        sending.on_gone = client.wake
        if not self._as_cloudevents:
            client.send_at_once = sending.at_once
        hub.add(client)
        try:
            await sending(b": welcome\n\n")  # the headers alone may wait in a proxy
            while not client.ending:
                await self._catch_up(sending)
                while client.live and not sending.gone:
                    chunks = client.take()
                    if chunks:
                        await self._send_all(sending, chunks)
                    else:
                        await client.wait()
                if sending.gone:
                    return
            await self._send_queue(sending)  # of a shutdown: another reason has emptied the queue
            await sending(notice("bye", client.ending, client.cursor))
        except EverlogError as error:
            problem = msgspec.json.encode(problems.problem_of(error, request_id=self._request.id))
            await self._send_queue(sending)
            await sending(notice("bye", "failed", client.cursor, problem=problem))
        finally:
            hub.remove(client)

    async def _send(self, sending: Sending, data: bytes) -> None:
        """Send events in the form that was asked for: all clients of a filter share the text of records."""
        if self._as_cloudevents:
            data = await self._service.run(cloudevents.of_frames, data)
        await sending(data)

    async def _send_all(self, sending: Sending, chunks: Sequence[Chunk]) -> None:
        if self._as_cloudevents:
            await self._send(sending, b"".join([chunk.data for chunk in chunks]))
        else:
            await sending.send_all(chunks)

    async def _send_queue(self, sending: Sending) -> None:
        while chunks := self._client.take():
            await self._send_all(sending, chunks)

    async def _catch_up(self, sending: Sending) -> None:
        """Send pages until the client has joined the live end, or ends."""
        client, hub = self._client, self._hub
        while not client.ending and not sending.gone:
            await self._send_queue(sending)
            found, self._first = self._first, None
            if found is None:
                await sending.until_taken()  # nothing is read for a client that does not take it
                found = await self._service.run_catching_up(
                    _read, self._reading, self._service.log, client.cursor, self._limit
                )
            read, text = found
            page = read.page
            if text:
                self._limit = min(PAGE, max(1, PAGE_BYTES * len(page.events) // len(text)))
                await self._send(sending, text)
            client.advance(read)
            if page.reset is not None:
                hub.resets_sent += 1
                await sending(notice("reset", page.reset.reason, page.reset.cursor))
            elif hub.join(client):
                return
            elif read.at_end:
                await client.wait()


ROUTES = (
    Route(
        method="GET",
        path="/v1/events/stream",
        name="events.stream",
        about="Follow the log: events after a cursor and then new ones, as Server-Sent Events.",
        policy=Policy(role="read", scope="within"),
        call=stream,
        query=StreamQuery,
        answers=(Answer(status=200, about="A stream of events.", type=Mapping[str, Any], content_type=SSE),),
        problems=("invalid_field", "cursor_conflict", "damaged", "schema_broken"),
        headers=("Last-Event-ID",),
        example="/v1/events/stream?kind=note",
    ),
)
