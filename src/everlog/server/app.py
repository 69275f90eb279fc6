"""The application: finds the route of a request, checks its limits and the caller's rights, and answers.

Every answer that is not a success is a problem document (RFC 9457) with a code. A defect of the server itself is
logged with the request's id, and reported as `internal` without its text.
"""

from __future__ import annotations

import gzip
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from everlog.errors import (
    BadRequest,
    BodyTooLarge,
    EverlogError,
    Forbidden,
    NoSuchRoute,
    NotSignedIn,
    QueryTooLong,
    WrongContentType,
    WrongMethod,
)
from everlog.server.callers.auth import caller_of
from everlog.server.events.sending import Gone, Sending
from everlog.server.listen.front import Front
from everlog.server.listen.hosts import require_known_host
from everlog.server.observe.current import CURRENT, Current, new_request_id
from everlog.server.observe.tracing import is_traced, read_traceparent, span
from everlog.server.routes import logs
from everlog.server.routes.answers import defect_response, problem_response
from everlog.server.routes.route import NOBODY, Caller, Request, Response, Route, Streamed
from everlog.server.routes.routing import Table
from everlog.server.service import Service
from everlog.wire.problems import HINTS

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_logger = logging.getLogger("everlog.server")
CONNECTION = "everlog.connection"
"""Where a request has its connection, if it came over a socket: see listen/connection.py."""

ALWAYS_ANSWERED = ("/healthz", "/readyz", "/metrics")
"""Also while the server stops."""

_METHODS = ("GET", "POST", "DELETE", "HEAD")


class App:
    """An ASGI application over one log, or several by name."""

    def __init__(self, services: Mapping[str, Service], routes: Sequence[Route], front: Front | None = None) -> None:
        self.front = front or Front()
        self.services = dict(services)
        self._default = next(iter(services.values()))
        for service in services.values():
            service.neighbours = self.services
        self.routes = routes
        self._table = Table(routes)

    def new_secret(self, *, actor: str) -> str:
        """Return the secret of a token with all rights on all logs, which ends with this process."""
        secret = ""
        for service in self.services.values():
            secret = service.tokens.for_this_process(actor=actor, secret=secret)
        return secret

    def close(self) -> None:
        """End what serves the logs. The logs themselves stay open."""
        for service in self.services.values():
            service.close()

    def end_streams(self) -> None:
        """End the streams and long polls of all logs: each gets the cursor to continue from."""
        for service in self.services.values():
            service.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        request_id = headers.get("x-request-id", "")
        if not _is_usable_id(request_id):
            request_id = new_request_id()
        current = Current(request_id, read_traceparent(headers))
        CURRENT.set(current)
        metrics, began = self.front.metrics, time.perf_counter()
        metrics.in_flight.add()
        status = 0
        try:
            answer = await self._answered(scope, headers, current, receive)
            status = answer.status
            answer.headers += [("x-request-id", request_id), *current.headers]
            if self.front.phase != "serving":
                answer.headers.append(("connection", "close"))
            await _send(answer, scope, send, receive)
        finally:
            metrics.in_flight.add(by=-1)
            took_s = time.perf_counter() - began
            metrics.requests.add(current.route, str(status))
            metrics.request_s.observe(took_s, current.route)
            if self.front.log_requests:
                _log_request(scope, current, status, took_s, _client(scope, headers, self.front.behind_proxy))

    async def _answered(
        self, scope: Scope, headers: Mapping[str, str], current: Current, receive: Receive
    ) -> Response | Streamed:
        """Return the answer to a request; every error is one, too."""
        try:
            if not is_traced():
                return await self._answer(scope, headers, current, receive)
            with span(scope["method"], headers, current.traceparent) as current.traceparent:
                return await self._answer(scope, headers, current, receive)
        except EverlogError as error:
            self.front.metrics.problems.add(error.code)
            return problem_response(error, current.request_id, commands=headers.get(HINTS) == "commands")
        except Exception:
            self.front.metrics.problems.add("internal")
            _logger.exception("request %s failed: %s %s", current.request_id, scope["method"], scope["path"])
            return defect_response(current.request_id)

    async def _answer(
        self, scope: Scope, headers: Mapping[str, str], current: Current, receive: Receive
    ) -> Response | Streamed:
        method, path = scope["method"], scope["path"]
        self._require_readable(scope, headers)
        if method not in _METHODS:
            raise WrongMethod(f"{method[:20]} is not used here", why=f"it is one of {', '.join(_METHODS)}")
        service, named = self._default, ""
        if path.startswith("/v1/logs/"):
            named, _, rest = path.removeprefix("/v1/logs/").partition("/")
            service = self.services.get(named, self._default)
            path = "/v1/" + rest
        route, params = self._table.find(method, path)
        current.route, current.log = route.name, service.name
        if route.path not in ALWAYS_ANSWERED:
            self.front.require_serving()
        caller = NOBODY
        if route.policy.role != "none":
            if route.path == logs.PATH:
                service = await self._any_service(method, headers)
            elif named:
                await self._require_named(named, method, headers)
            caller = await caller_of(service, method, headers)
            self._count(f"{service.name}/{caller.name}", current, scope.get(CONNECTION))
            _require_rights(caller, route)
        body = await _body(service, route, headers, receive) if method == "POST" else b""
        request = Request(
            method=method,
            path=path,
            params=params,
            query_text=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=body,
            id=current.request_id,
            caller=caller,
            service=service,
            route=route,
        )
        if route.policy.role != "append":
            answer = await route.call(request)
        else:
            began = time.perf_counter()
            answer = await route.call(request)
            self.front.metrics.append_s.observe(time.perf_counter() - began)
        return answer

    def _count(self, token: str, current: Current, connection: Any) -> None:
        """Count a request of a token, and its connection. Raise if there are too many."""
        current.token = token
        if connection is not None:
            connection.claim(token)
        taken = self.front.take(token)
        current.headers = self.front.rate_headers(taken)
        self.front.require_rate(taken)

    def _require_readable(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Refuse a request to another host, and a target that two programs could read differently."""
        server = scope.get("server") or ("",)
        require_known_host(headers.get("host", ""), self.front.hosts, str(server[0]))
        target, query = scope.get("raw_path") or b"", scope["query_string"]
        if len(query) > self.front.limits.query_bytes_max:
            raise QueryTooLong(
                "the query string is too long",
                why=f"at most {self.front.limits.query_bytes_max:,} bytes are read",
                hint="ask for less at once",
            )
        if b"%00" in target or b"%00" in query:
            raise BadRequest("the address contains a null character", hint="leave it out")
        if b"%" not in target and target.isascii():
            return
        try:
            unquote_to_bytes(target).decode()
        except UnicodeDecodeError as error:
            raise BadRequest("the path is not UTF-8", why=str(error), hint="encode it as UTF-8, then %XX") from error

    async def _any_service(self, method: str, headers: Mapping[str, str]) -> Service:
        """Return a log that the caller may use; the first one, if there is none."""
        for service in self.services.values():
            if await _is_caller_of(service, method, headers):
                return service
        return self._default

    async def _require_named(self, name: str, method: str, headers: Mapping[str, str]) -> None:
        """Refuse a name that no log has. One that the caller has no token for is refused in the same way."""
        if name in self.services and await _is_caller_of(self.services[name], method, headers):
            return
        await caller_of(await self._any_service(method, headers), method, headers)  # without any token: 401
        raise NoSuchRoute(f"there is no log {name[:80]!r} here", hint=f"GET {logs.PATH}")


async def _is_caller_of(service: Service, method: str, headers: Mapping[str, str]) -> bool:
    try:
        await caller_of(service, method, headers)
    except NotSignedIn:
        return False
    return True


def _require_rights(caller: Caller, route: Route) -> None:
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


def _is_usable_id(text: str) -> bool:
    return 0 < len(text) <= 100 and text.isascii() and text.isprintable()


async def _body(service: Service, route: Route, headers: Mapping[str, str], receive: Receive) -> bytes:
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
    return body if encoding in ("", "identity") else await service.run(_unpacked, body, encoding, route)


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


async def _send(answer: Response | Streamed, scope: Scope, send: Send, receive: Receive) -> None:
    method, connection = scope["method"], scope.get(CONNECTION)
    if connection is not None and isinstance(answer, Response) and connection.respond(send, answer, method):
        return
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
    if isinstance(answer, Response):
        if answer.status != 304:
            headers.append((b"content-length", str(len(answer.body)).encode()))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else answer.body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    if method != "HEAD":
        if connection is not None:
            connection.streaming = True
        sending = Sending(send, receive)
        sending.begin()
        try:
            await answer.send_body(sending)
        except Gone:
            return
        finally:
            sending.end()
            if connection is not None:
                connection.streaming = False
    await send({"type": "http.response.body", "body": b""})


def _client(scope: Scope, headers: Mapping[str, str], behind_proxy: bool) -> str:
    """Return the address of the caller. What a proxy says is believed only if there is one."""
    if behind_proxy and (given := headers.get("x-forwarded-for", "")):
        return given.rpartition(",")[2].strip()[:60]  # the last one is the proxy's own; a caller can send the others
    client = scope.get("client") or ("",)
    return str(client[0])


def _log_request(scope: Scope, current: Current, status: int, took_s: float, client: str) -> None:
    facts = {
        "method": scope["method"],
        "path": scope["path"][:200],
        "route": current.route,
        "status": status,
        "ms": round(took_s * 1000, 1),
        "token": current.token,
        "client": client,
    }
    _logger.info("%s %s %d", scope["method"], current.route, status, extra={"facts": facts})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
