"""The application: finds the route of a request, checks its limits and the caller's rights, and answers.

Every answer that is not a success is a problem document (RFC 9457) with a code. A defect of the server itself is
logged with the request's id, and reported as `internal` without its text.
"""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from everlog.core.ids import new_id
from everlog.errors import (
    BadRequest,
    BodyTooLarge,
    EverlogError,
    Forbidden,
    NoSuchRoute,
    NotSignedIn,
    WrongContentType,
    WrongMethod,
)
from everlog.server.auth import caller_of
from everlog.server.route import NOBODY, Request, Response, Route, Streamed
from everlog.server.sending import Gone, Sending
from everlog.server.service import Service
from everlog.wire import problems

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_logger = logging.getLogger("everlog.server")
_METHODS = ("GET", "POST", "DELETE", "HEAD")


class Table:
    """Finds routes: by their path as it is, or by the number of its parts if it has parameters."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._exact: dict[str, dict[str, Route]] = {}
        self._patterns: dict[int, list[tuple[list[str], dict[str, Route]]]] = {}
        for route in routes:
            if "{" not in route.path:
                self._exact.setdefault(route.path, {})[route.method] = route
                continue
            parts = route.path.split("/")
            same = self._patterns.setdefault(len(parts), [])
            for known, methods in same:
                if known == parts:
                    methods[route.method] = route
                    break
            else:
                same.append((parts, {route.method: route}))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        found = self._exact.get(path)
        params: dict[str, str] = {}
        if found is None:
            parts = path.split("/")
            for known, methods in self._patterns.get(len(parts), ()):
                if all(own == given or own[:1] == "{" for own, given in zip(known, parts, strict=True)):
                    params = {own[1:-1]: given for own, given in zip(known, parts, strict=True) if own[:1] == "{"}
                    found = methods
                    break
        if found is None:
            raise NoSuchRoute(f"there is nothing at {path[:200]}", hint="GET /openapi.json lists every route")
        route = found.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted(found))
            raise WrongMethod(f"{path[:200]} does not take {method}", why=f"it takes {allowed}", allow=allowed)
        return route, params


class App:
    """An ASGI application over one log, or several by name."""

    def __init__(self, services: Mapping[str, Service], routes: Sequence[Route]) -> None:
        self.services = dict(services)
        self._default = next(iter(services.values()))
        self.routes = routes
        self._table = Table(routes)

    def close(self) -> None:
        """End what serves the logs. The logs themselves stay open."""
        for service in self.services.values():
            service.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = headers.get("x-request-id", "")
        if not _is_usable_id(request_id):
            request_id = str(new_id())
        try:
            answer = await self._answer(scope, headers, request_id, receive)
        except EverlogError as error:
            answer = problem_response(error, request_id)
        except Exception:
            _logger.exception("request %s failed: %s %s", request_id, scope["method"], scope["path"])
            answer = _internal(request_id)
        answer.headers.append(("x-request-id", request_id))
        await _send(answer, scope["method"], send, receive)

    async def _answer(
        self, scope: Scope, headers: Mapping[str, str], request_id: str, receive: Receive
    ) -> Response | Streamed:
        method, path = scope["method"], scope["path"]
        if method not in _METHODS:
            raise WrongMethod(f"{method[:20]} is not used here", why=f"it is one of {', '.join(_METHODS)}")
        service = self._default
        if path.startswith("/v1/logs/"):
            name, _, rest = path.removeprefix("/v1/logs/").partition("/")
            service = self._named(name)
            path = "/v1/" + rest
        route, params = self._table.find(method, path)
        caller = NOBODY
        if route.policy.role != "none":
            caller = await caller_of(service, headers)
            if not caller.may(route.policy.role):
                raise Forbidden(
                    f"{route.name} needs the role {route.policy.role}",
                    why=f"the token {caller.name!r} has the role {caller.role}",
                    hint="use a token with that role",
                )
            if route.policy.scope == "log" and caller.within:
                raise Forbidden(
                    f"{route.name} is about the whole log",
                    why=f"the token {caller.name!r} is limited to {caller.within}",
                    hint="use a token without a scope",
                )
        body = await _body(route, headers, receive) if method == "POST" else b""
        request = Request(
            method=method,
            path=path,
            params=params,
            query_text=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=body,
            id=request_id,
            caller=caller,
            service=service,
            route=route,
        )
        return await route.call(request)

    def _named(self, name: str) -> Service:
        found = self.services.get(name)
        if found is None:
            raise NoSuchRoute(f"there is no log {name[:80]!r} here", hint="GET /v1/logs lists them")
        return found


def problem_response(error: EverlogError, request_id: str) -> Response:
    problem = problems.problem_of(error, request_id=request_id)
    headers = []
    if isinstance(error, WrongMethod) and "allow" in error.details:
        headers.append(("allow", error.details["allow"]))
    if isinstance(error, NotSignedIn):
        headers.append(("www-authenticate", 'Bearer realm="everlog"'))
    if "retry_after_s" in error.details or (problem.status == 503 and error.retryable):
        headers.append(("retry-after", str(int(error.details.get("retry_after_s", 1)) or 1)))
    return Response(
        msgspec.json.encode(problem), status=problem.status, content_type=problems.CONTENT_TYPE, headers=headers
    )


def _internal(request_id: str) -> Response:
    error = EverlogError("the server has a defect", why="it is in the server's log", hint="report the request id")
    return problem_response(error, request_id)


def _is_usable_id(text: str) -> bool:
    return 0 < len(text) <= 100 and text.isascii() and text.isprintable()


async def _body(route: Route, headers: Mapping[str, str], receive: Receive) -> bytes:
    """Return the body of a request, if it is of a kind and a size that the route takes."""
    if route.body is not None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in route.body.content_types and not _is_binary_cloudevent(route, headers):
            raise WrongContentType(
                f"the content type is {kind[:80]!r}",
                why=f"{route.name} takes {', '.join(route.body.content_types)}",
                hint=f"content-type: {route.body.content_types[0]}",
            )
    length = headers.get("content-length", "")
    if length and (not length.isdigit() or int(length) > route.bytes_max):
        raise _too_large(route)
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("the body ends early", hint="send as many bytes as content-length says")
        piece = message.get("body", b"")
        size += len(piece)
        if size > route.bytes_max:
            raise _too_large(route)
        pieces.append(piece)
        if not message.get("more_body"):
            break
    body = b"".join(pieces)
    encoding = headers.get("content-encoding", "identity").strip().lower()
    return body if encoding in ("", "identity") else _unpacked(body, encoding, route)


def _is_binary_cloudevent(route: Route, headers: Mapping[str, str]) -> bool:
    return (
        "ce-specversion" in headers
        and route.body is not None
        and "application/cloudevents+json" in (route.body.content_types)
    )


def _unpacked(body: bytes, encoding: str, route: Route) -> bytes:
    if encoding != "gzip":
        raise WrongContentType(f"the content encoding is {encoding[:40]!r}", why="gzip is the only one that is read")
    unpack = zlib.decompressobj(wbits=31)
    try:
        found = unpack.decompress(body, route.bytes_max + 1)
    except (zlib.error, gzip.BadGzipFile) as error:
        raise BadRequest("the body is not gzip", why=str(error)) from error
    if len(found) > route.bytes_max:
        raise _too_large(route)
    if not unpack.eof:
        raise BadRequest("the body ends early", why="its gzip stream is not complete")
    return found


def _too_large(route: Route) -> BodyTooLarge:
    return BodyTooLarge(
        "the body is too large", why=f"{route.name} takes at most {route.bytes_max:,} bytes", hint="send less at once"
    )


async def _send(answer: Response | Streamed, method: str, send: Send, receive: Receive) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    if isinstance(answer, Response):
        if answer.status != 304:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if method != "HEAD":
        sending = Sending(send, receive)
        sending.begin()
        try:
            await answer.send_body(sending)
        except Gone:
            return
        finally:
            sending.end()
    await send({"type": "http.response.body", "body": b""})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
