"""`GET /openapi.json` and `GET /asyncapi.json`: the server describes itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from everlog.server.routes.asyncapi import stream_document
from everlog.server.routes.openapi import document
from everlog.server.routes.route import Answer, Policy, Request, Response, Route


async def _openapi(request: Request) -> Response:
    return await _made(request, "openapi", document)


async def _asyncapi(request: Request) -> Response:
    return await _made(request, "asyncapi", stream_document)


async def _made(request: Request, name: str, make: Callable[[Sequence[Route]], dict[str, Any]]) -> Response:
    """Return a document; it is made once, because the table does not change."""
    from everlog.server.routes.table import routes  # it lists these routes, too

    known = request.service.documents
    if name not in known:

        def made() -> bytes:
            return msgspec.json.encode(make(routes(list(request.service.operations.values()))))

        known[name] = await request.service.run(made)
    return Response(known[name], headers=[("cache-control", "public, max-age=60")])


_POLICY = Policy(role="none", scope="none")
ROUTES = (
    Route(
        method="GET",
        path="/openapi.json",
        name="server.openapi",
        about="Return the OpenAPI 3.1 document of this server.",
        policy=_POLICY,
        call=_openapi,
        answers=(Answer(status=200, about="The document.", type=dict[str, Any]),),
        example="/openapi.json",
    ),
    Route(
        method="GET",
        path="/asyncapi.json",
        name="server.asyncapi",
        about="Return the AsyncAPI 3 document of the stream of events.",
        policy=_POLICY,
        call=_asyncapi,
        answers=(Answer(status=200, about="The document.", type=dict[str, Any]),),
        example="/asyncapi.json",
    ),
)
