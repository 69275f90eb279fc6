"""One connection: how long its requests and its answers may take, and what is refused before there is a request.

uvicorn keeps a request that never ends, and a client that never reads, for ever. Here every connection is looked at
once per second (`look`): one pass over all of them costs less than a timer for every request.

    first byte of a request ──> its last byte          request_s, else 408 and the connection ends
    something waits for the client ──> it takes some   write_s, else the connection is cut
    the connection was closed ──> its last byte left   write_s, else the connection is cut
"""

from __future__ import annotations

import sys
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from everlog.errors import BadRequest, EverlogError, HeadersTooLarge, NotReady, RequestTimedOut
from everlog.server.app import CONNECTION
from everlog.server.events.sending import cut
from everlog.server.listen.front import Front
from everlog.server.observe.current import new_request_id
from everlog.server.routes.answers import problem_response
from everlog.server.routes.route import Response


class Connection(HttpToolsProtocol):
    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], *, front: Front) -> None:
        super().__init__(config, server_state, app_state)
        self._front = front
        self.token = ""  # of its last request
        self.streaming = False
        self._receiving_since: float | None = None  # a request, or the first byte of one
        self._got_bytes = False
        self._in_head = True
        self._head_bytes = self._chunk_bytes = 0  # of the head that has not ended, before these bytes; these bytes
        self._turned_in_chunk = False  # a request began or ended in these bytes
        self._refused: EverlogError | None = None
        self._waiting_bytes = 0  # for the client, when it was looked at last
        self._took_at = 0.0
        self._closing_since: float | None = None
        self._idle_since: float | None = None  # since its last answer

    # ---- what the application asks of it

    def claim(self, token: str) -> None:
        """Count this connection for a token. Raise if the token has too many."""
        if token != self.token:
            self._front.claim(token, self.token)
            self.token = token

    @property
    def is_receiving(self) -> bool:
        """Whether a part of a request has come."""
        return self._receiving_since is not None and self._got_bytes

    def stop_receiving(self) -> None:
        """Refuse a request whose rest has not come: the server stops."""
        if self.is_receiving:
            self._refuse(
                NotReady("the server is stopping", hint="try again: another one may answer", retry_after_s=1)
            )

    @property
    def waiting_bytes(self) -> int:
        """How much waits in this process for the client to take it."""
        return 0 if self.transport.is_closing() else self.transport.get_write_buffer_size()

    def respond(self, send: Any, answer: Response, method: str) -> bool:
        """Send a whole answer with one write. Return False if it is left to uvicorn, because the client is behind or
        a header is odd."""
        cycle = send.__self__
        if self.flow.write_paused or cycle.disconnected or cycle.response_started:
            return False
        close = not cycle.keep_alive
        given = [f"{name}: {value}\r\n" for name, value in answer.headers]
        if answer.status != 304:
            given.append(f"content-length: {len(answer.body)}\r\n")
        if close and ("connection", "close") not in answer.headers:
            given.append("connection: close\r\n")
        head = "".join(given)
        if head.count("\n") != len(given) or head.count("\r") != len(given) or "\0" in head:
            return False
        close = close or ("connection", "close") in answer.headers
        pieces = [STATUS_LINE[answer.status]]
        for name, value in cycle.default_headers:
            pieces += (name, b": ", value, b"\r\n")
        pieces += (head.encode("latin-1"), b"\r\n", b"" if method == "HEAD" else answer.body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join(pieces))
        cycle.message_event.set()
        if close:
            self.transport.close()
        cycle.on_response()
        return True

    # ---- deadlines

    def look(self, now: float) -> None:
        """Cut the connection, or refuse its request, if one of them takes too long."""
        limits = self._front.limits
        if self.transport.is_closing():
            if self._closing_since is None:
                self._closing_since = now
            elif now - self._closing_since > limits.write_s:
                self._cut("closing")
            return
        waiting = self.transport.get_write_buffer_size()
        if waiting == 0 or waiting < self._waiting_bytes or self._waiting_bytes == 0:
            self._took_at = now
        elif now - self._took_at > limits.write_s:
            self._cut("stalled")
            return
        self._waiting_bytes = waiting
        if self._idle_since is not None and now - self._idle_since > limits.idle_s:
            self.transport.close()
            return
        if self._receiving_since is not None and now - self._receiving_since > limits.request_s:
            self._front.metrics.connections_cut.add("request_too_slow")
            if self._got_bytes:
                self._refuse(
                    RequestTimedOut(
                        "the request did not arrive in time",
                        why=f"its last byte must come within {limits.request_s:g} s of its first",
                        hint="send it again, in smaller pieces if the network is slow",
                    )
                )
            else:
                self.transport.close()

    def _cut(self, reason: str) -> None:
        self._front.metrics.connections_cut.add(reason)
        cut(self.transport)

    # ---- what uvicorn calls

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._receiving_since = self._took_at = self.loop.time()
        self._front.metrics.connections_made.add()
        if len(self.connections) > self._front.limits.connections_max:
            self._front.metrics.connections_cut.add("too_many")
            self._refuse(NotReady("the server has too many connections", hint="try again later", retry_after_s=1))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._front.release(self.token)
        self.token = ""

    def data_received(self, data: bytes) -> None:
        if self._receiving_since is None:
            self._receiving_since = self.loop.time()
        self._got_bytes, self._chunk_bytes = True, len(data)
        self._idle_since = None
        self._turned_in_chunk = False
        super().data_received(data)
        if self._in_head and not self._turned_in_chunk and not self.transport.is_closing():
            # A header that has not ended is kept by the parser, and reported to nobody.
            self._head_bytes += len(data)
            if self._head_bytes > self._front.limits.head_bytes_max:
                self._refuse(self._head_too_large())

    def eof_received(self) -> None:
        if self._receiving_since is not None and self._got_bytes and not self._in_head:
            self._refuse(BadRequest("the body ends early", hint="send as many bytes as content-length says"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._receiving_since = self.loop.time()
        self._in_head = self._turned_in_chunk = True
        self._head_bytes = 0
        self.scope[CONNECTION] = self  # type: ignore[literal-required]

    def on_headers_complete(self) -> None:
        self._in_head = False
        try:
            self._require_plain_head()
        except EverlogError as error:
            self._refused = error
            raise
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._receiving_since = None
        self._in_head = self._turned_in_chunk = True
        self._head_bytes, self._got_bytes = 0, False

    def on_response_complete(self) -> None:
        """Begin with the next request. Idle connections are found by `look`: uvicorn sets a timer for each answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self._idle_since = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser, or a callback of it, could not accept."""
        error = self._refused
        if error is None:
            found = sys.exc_info()[1]
            cause = found.__context__ if found is not None and found.__context__ is not None else found
            error = BadRequest(
                "this is not a request of HTTP/1.1", why=str(cause or msg)[:200], hint="send it with an HTTP client"
            )
        self._refuse(error)

    def _unsupported_upgrade_warning(self) -> None:
        """Answer a request to change the protocol as if it did not ask for that."""

    # ---- the head of a request

    def _require_plain_head(self) -> None:
        """Refuse a head that is too large, or whose end two programs could see in different places."""
        limits = self._front.limits
        if self._chunk_bytes + self._head_bytes > limits.head_bytes_max or len(self.headers) > limits.headers_max:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > limits.head_bytes_max or len(self.headers) > limits.headers_max:
                raise self._head_too_large()
        lengths = codings = hosts = 0
        for name, value in self.headers:
            if name == b"content-length":
                lengths += 1
            elif name == b"host":
                hosts += 1
            elif name == b"transfer-encoding":
                codings += 1
                if value.strip().lower() != b"chunked":
                    raise BadRequest("the transfer coding is not known", why="chunked is the only one that is read")
        if lengths + codings > 1:
            raise BadRequest(
                "the request states its length more than once",
                why="content-length and transfer-encoding may each be there once, and not together",
                hint="send one of them",
            )
        if hosts > 1:
            raise BadRequest("the request has several hosts", hint="send the header Host once")

    def _head_too_large(self) -> HeadersTooLarge:
        limits = self._front.limits
        return HeadersTooLarge(
            "the headers are too large",
            why=f"a request may have {limits.headers_max} headers, and {limits.head_bytes_max:,} bytes of them",
            hint="send less",
        )

    # ---- refusing without the application

    def _refuse(self, error: EverlogError) -> None:
        """Answer with a problem and close. If another answer is on its way, only close."""
        if self.transport.is_closing():
            return
        self._receiving_since = None
        cycle = self.cycle
        under_way = cycle is not None and not cycle.response_complete
        if self.pipeline or (under_way and cycle.response_started):
            self.transport.abort()
        else:
            answer = problem_response(error, new_request_id())
            self._front.metrics.problems.add(error.code)
            self._front.metrics.requests.add("none", str(answer.status))
            lines = [STATUS_LINE[answer.status]]
            headers = [*answer.headers, ("content-length", str(len(answer.body))), ("connection", "close")]
            lines += [f"{name}: {value}\r\n".encode("latin-1") for name, value in headers]
            self.transport.write(b"".join((*lines, b"\r\n", answer.body)))
            self.transport.close()
        if under_way:  # the application waits for the rest of the request
            cycle.disconnected = True
            cycle.message_event.set()
