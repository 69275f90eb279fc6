"""Who calls: a token of the log, a session of a browser, or a JWT of an identity provider.

    Authorization: Bearer evl_…     a token of the log (tokens.py)
    Authorization: Bearer eyJ…      a JWT, if the setting oidc_issuer is set (oidc.py)
    Cookie: __Host-everlog=…        a session, which POST /v1/session gives for a token

A browser cannot send a header with an EventSource, so it exchanges its token for a cookie. A page of another site
could have the browser send that cookie along; so a request with a cookie that changes something needs an `Origin` of
this host. A session is signed with a key that only this process has: it ends with the process, with its token, and
after 12 hours.
"""

from __future__ import annotations

import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from everlog.errors import Forbidden, NotSignedIn
from everlog.server.callers.tokens import SECRET_PREFIX, Tokens
from everlog.server.routes.route import Answer, Caller, Policy, Request, Response, Route

if TYPE_CHECKING:
    from everlog.server.callers.oidc import Oidc
    from everlog.server.service import Service

COOKIE = "__Host-everlog"
SESSION_S = 12 * 3600
_SAFE = ("GET", "HEAD")
_OWN, _BEARER = f"Bearer {SECRET_PREFIX}", len("Bearer ")


class Session(msgspec.Struct, frozen=True, array_like=True):
    """What a cookie says: the token by its hash, and when the session ends. Nobody can read it without the key."""

    token: str
    ends: int


class Callers:
    """Finds out who sends a request."""

    def __init__(self, tokens: Tokens, oidc: Oidc | None = None) -> None:
        self._tokens = tokens
        self._oidc = oidc
        self._key = secrets.token_bytes(32)

    def caller(self, method: str, headers: Mapping[str, str]) -> Caller:
        """Return who sends a request. Raise NotSignedIn if nothing in it is valid. This may read the log."""
        given = headers.get("authorization", "")
        if given:
            return self._of_secret(_secret_in(given))
        cookie = _cookie(headers.get("cookie", ""))
        if not cookie:
            raise NotSignedIn(
                "the request has no token",
                why="it has no header Authorization",
                hint="send the header Authorization: Bearer TOKEN",
            )
        if method not in _SAFE:
            _require_same_site(headers)
        return self._of_session(cookie)

    def _of_secret(self, secret: str) -> Caller:
        if self._oidc is not None and not secret.startswith(SECRET_PREFIX):
            return self._oidc.caller(secret)
        token = self._tokens.find(secret)
        if token is None:
            raise _not_valid("the token")
        return token.caller()

    # ---- sessions

    def start_session(self, headers: Mapping[str, str]) -> str:
        """Return the value of a cookie for the token of a request."""
        token = self._tokens.find(_secret_in(headers.get("authorization", "")))
        if token is None:
            raise _not_valid("the token")
        session = msgspec.json.encode(Session(token.hash, int(time.time()) + SESSION_S))
        return f"{urlsafe_b64encode(session).decode()}.{self._signature(session)}"

    def _of_session(self, cookie: str) -> Caller:
        body, _, signature = cookie.partition(".")
        try:
            data = urlsafe_b64decode(body)
        except (BadBase64, ValueError):
            raise _not_valid("the session") from None
        if not hmac.compare_digest(self._signature(data).encode(), signature.encode()):
            raise _not_valid("the session")
        session = msgspec.json.decode(data, type=Session)
        token = self._tokens.of_hash(session.token)
        if token is None or time.time() >= session.ends:
            raise _not_valid("the session")
        return token.caller()

    def _signature(self, data: bytes) -> str:
        return hmac.digest(self._key, data, "sha256").hex()


def _secret_in(header: str) -> str:
    kind, _, secret = header.partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise NotSignedIn(
            "the header Authorization cannot be read",
            why="it is not a bearer token",
            hint="Authorization: Bearer TOKEN",
        )
    return secret.strip()


def _not_valid(what: str) -> NotSignedIn:
    return NotSignedIn(
        f"{what} is not valid",
        why="it does not exist, it was revoked, or it has expired",
        hint="get a new one from the operator of the server",
    )


def _cookie(header: str) -> str:
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _require_same_site(headers: Mapping[str, str]) -> None:
    origin = headers.get("origin", "")
    if not origin or urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise Forbidden(
            "a request of another site may change nothing",
            why=f"its Origin is {origin[:80]!r}, and this host is {headers.get('host', '')[:80]!r}",
            hint="send it from a page of this host, or with the header Authorization",
        )


async def caller_of(service: Service, method: str, headers: Mapping[str, str]) -> Caller:
    """Return who sends a request, without blocking the event loop."""
    given = headers.get("authorization", "")
    if given.startswith(_OWN) and service.tokens.is_fresh:
        return service.tokens.found_lately(given[_BEARER:]) or service.callers.caller(method, headers)
    return await service.run(service.callers.caller, method, headers)


async def _start_session(request: Request) -> Response:
    value = await request.service.run(request.service.callers.start_session, request.headers)
    cookie = f"{COOKIE}={value}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={SESSION_S}"
    answer = msgspec.json.encode({"actor": request.caller.actor, "role": request.caller.role, "ends_in_s": SESSION_S})
    return Response(answer, headers=[("set-cookie", cookie), ("cache-control", "no-store")])


async def _end_session(request: Request) -> Response:
    cookie = f"{COOKIE}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0"
    return Response(b"{}", headers=[("set-cookie", cookie)])


class SessionAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Who a session acts as."""

    actor: str
    role: str
    ends_in_s: int


ROUTES = (
    Route(
        method="POST",
        path="/v1/session",
        name="session.start",
        about="Exchange a token for a cookie, for pages that use EventSource.",
        policy=Policy(role="read", scope="none"),
        call=_start_session,
        answers=(Answer(status=200, about="The cookie is set.", type=SessionAnswer),),
        example="/v1/session",
    ),
    Route(
        method="DELETE",
        path="/v1/session",
        name="session.end",
        about="Remove the cookie of a session.",
        policy=Policy(role="none", scope="none"),
        call=_end_session,
        answers=(Answer(status=200, about="The cookie is removed.", type=dict[str, str]),),
        example="/v1/session",
    ),
)
