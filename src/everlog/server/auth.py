"""Who calls: the token of a request, or a problem that does not say more than it must."""

from __future__ import annotations

from collections.abc import Mapping

from everlog.errors import NotSignedIn
from everlog.server.route import Caller
from everlog.server.service import Service


async def caller_of(service: Service, headers: Mapping[str, str]) -> Caller:
    """Return who sends a request. Raise NotSignedIn if its token is missing or not valid."""
    kind, _, secret = headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not secret:
        raise NotSignedIn(
            "the request has no token", why="the header Authorization is missing", hint="Authorization: Bearer TOKEN"
        )
    token = service.tokens.find(secret.strip())
    if token is None:
        raise NotSignedIn(
            "the token is not valid",
            why="it does not exist, it was revoked, or it has expired",
            hint="everlog tokens list, on the machine of the server",
        )
    return token.caller()
