"""`GET /v1/logs`: the logs of this server that a token is valid for, and what it may do there."""

from __future__ import annotations

import msgspec

from everlog.errors import NotSignedIn
from everlog.server.callers.auth import caller_of
from everlog.server.routes.route import Answer, Policy, Request, Response, Route

PATH = "/v1/logs"


class ServedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A log of this server, and what the token of the request is there."""

    name: str
    path: str  # every route of it begins so
    actor: str
    role: str
    scope: str  # that the token is limited to; empty: the whole log


async def _every(request: Request) -> Response:
    found = []
    for name, service in request.service.neighbours.items():
        try:
            caller = await caller_of(service, request.method, request.headers)
        except NotSignedIn:
            continue  # a log of others: it is not named
        one = ServedLog(name=name, path=f"{PATH}/{name}", actor=caller.actor, role=caller.role, scope=caller.within)
        found.append(one)
    return Response(msgspec.json.encode(found), headers=[("cache-control", "no-store")])


ROUTES = (
    Route(
        method="GET",
        path=PATH,
        name="server.logs",
        about="Return the logs that the token is valid for: who it acts as there, and with which role and scope.",
        policy=Policy(role="read", scope="none"),
        call=_every,
        answers=(Answer(status=200, about="The logs.", type=list[ServedLog]),),
        example=PATH,
    ),
)
