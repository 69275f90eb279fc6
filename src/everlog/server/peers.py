"""The endpoints of sync (`/sync/v1/…`), for nodes of the same log: see docs/how-to/nodes/sync.md.

A node signs its requests with its key (RFC 9421), so it needs no token. Errors have the shape of that protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from everlog.errors import EverlogError
from everlog.server.routes.route import Answer, Body, Policy, Request, Response, Route
from everlog.sync.carriers.http_messages import BYTES, JSON, PREFIX, content_type, method_of, problem_of
from everlog.sync.carriers.http_server import Asker
from everlog.sync.exchange import EVENTS, HEADS, KEYS, RANGES, REQUESTS, VIEWS, WANTS
from everlog.sync.wire import MESSAGE_BYTES_MAX, Events, Heads, Keys, Received, SharedViews, Wants

_ABOUT = {
    HEADS: "Return the end of every origin's chain.",
    EVENTS: "Take events of a peer, and answer which were accepted.",
    WANTS: "Return events by origin and number.",
    RANGES: "Compare ranges of hashes (negentropy v1).",
    KEYS: "Exchange keys of persons, each sealed to the node that needs it.",
    VIEWS: "Exchange signed statements about views, and fetch the rows of one.",
}
_TYPES: dict[str, tuple[Any, Any]] = {
    HEADS: (None, Heads),
    EVENTS: (Events, Received),
    WANTS: (Wants, Events),
    RANGES: (bytes, bytes),
    KEYS: (Keys, Keys),
    VIEWS: (SharedViews, SharedViews),
}


def _handler(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        asker = Asker("http", request.method, request.path, dict(request.headers))
        try:
            found = await request.service.run(request.service.door.answer, name, request.body, asker)
        except EverlogError as error:
            status, body = problem_of(error)
            return Response(body, status=status, content_type=JSON)
        return Response(found, content_type=content_type(name))

    return answer


ROUTES = tuple(
    Route(
        method=method_of(name),
        path=PREFIX + name,
        name=f"sync.{name}",
        about=_ABOUT[name],
        policy=Policy(role="none", scope="log"),
        call=_handler(name),
        body=None
        if _TYPES[name][0] is None
        else Body(type=_TYPES[name][0], content_types=(BYTES if name == RANGES else JSON,)),
        answers=(Answer(status=200, about="The answer.", type=_TYPES[name][1], content_type=content_type(name)),),
        problems=("rejected_message", "not_authorized", "conflict", "busy"),
        problem_type=JSON,
        example=PREFIX + name,
        bytes_max=MESSAGE_BYTES_MAX,
    )
    for name in REQUESTS
)
