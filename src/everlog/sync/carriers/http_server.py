"""A node that listens: HTTP/1.1, one thread per connection, and limits before anything is parsed.

A connection that is slow, silent or greedy costs its own thread and nothing else:

    headers     within 10 s, at most 16 KB
    body        at most one message; in every 10 s at least 16 KB of it, or it is cut off
    answer      read by the peer at the same pace
    together    64 connections, 8 of one address, 64 MB of bodies; the next one is asked to come back later
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import h11

from everlog.errors import Busy, EverlogError, RejectedMessage
from everlog.sync.carriers.http_messages import JSON, content_type, problem_of, request_of, unpacked
from everlog.sync.carriers.http_pace import WINDOW_S, Pace
from everlog.sync.wire import MESSAGE_BYTES_MAX

CONNECTIONS_MAX = 64
CONNECTIONS_PER_ADDRESS = 8
BODIES_BYTES_MAX = 64 * 1024 * 1024
_RECEIVE = 64 * 1024

_logger = logging.getLogger("everlog")

Answer = Callable[[str, bytes, "Asker"], bytes]
"""Answers a request, by its name, its body and who asks."""


class Asker:
    """Who asks: the address of the peer, and its request as it was sent."""

    def __init__(self, address: str, method: str, path: str, headers: dict[str, str]) -> None:
        self.address = address
        self.method = method
        self.path = path
        self.headers = headers


class _Slow(Exception):
    """A peer that sends or reads nothing, or next to nothing."""


class Listener:
    """Answers requests until it is closed."""

    def __init__(self, host: str, port: int, answer: Answer, *, window_s: float = WINDOW_S) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._answer = answer
        self._window_s = window_s
        self._server = socket.create_server((host, port), family=family, backlog=128)
        self._lock = threading.Lock()
        self._by_address: Counter[str] = Counter()
        self._connections: set[socket.socket] = set()
        self._buffered = 0
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="everlog-sync-listen", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.getsockname()[1])

    @property
    def url(self) -> str:
        host = self._server.getsockname()[0]
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def close(self) -> None:
        """Stop accepting, and end all connections."""
        with self._lock:
            self._closed = True
            open_now = list(self._connections)
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=5)

    # ---- connections

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._server.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(0.1)  # too many open files: those that are open end soon
                continue
            if not self._admit(connection, str(address[0])):
                connection.close()
                continue
            serve = threading.Thread(
                target=self._serve, args=(connection, str(address[0])), name="everlog-sync-peer", daemon=True
            )
            try:
                serve.start()
            except RuntimeError:  # no more threads
                self._leave(connection, str(address[0]))

    def _admit(self, connection: socket.socket, address: str) -> bool:
        with self._lock:
            full = len(self._connections) >= CONNECTIONS_MAX or self._by_address[address] >= CONNECTIONS_PER_ADDRESS
            if self._closed or full:
                return False
            self._connections.add(connection)
            self._by_address[address] += 1
            return True

    def _leave(self, connection: socket.socket, address: str) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]
        connection.close()

    def _serve(self, connection: socket.socket, address: str) -> None:
        try:
            peer = _Peer(connection, self._window_s)
            while self._one_request(peer, address):
                peer.http.start_next_cycle()
        except (_Slow, OSError, h11.ProtocolError):
            pass  # nothing can be reported to a peer that is gone, or that does not speak HTTP
        except Exception:
            _logger.exception("a connection of a peer failed; others are not affected")
        finally:
            self._leave(connection, address)

    def _one_request(self, peer: _Peer, address: str) -> bool:
        """Answer one request. Return whether the connection can be used for another one."""
        peer.begin()
        try:
            head = peer.next_event()
        except h11.RemoteProtocolError as error:
            peer.respond(error.error_status_hint, *_problem(RejectedMessage("this is not HTTP", why=str(error))))
            return False
        if not isinstance(head, h11.Request):
            return False
        asker = Asker(
            address,
            head.method.decode(),
            head.target.decode(),
            {name.decode(): value.decode(errors="replace") for name, value in head.headers},
        )
        request = request_of(asker.method, asker.path)
        if request is None:
            peer.respond(404, *_problem(RejectedMessage(f"there is no {asker.method} {asker.path[:80]} here")))
            return False
        room = 0
        try:
            length = asker.headers.get("content-length", "")
            room = int(length) if length.isdigit() and len(length) < 12 else MESSAGE_BYTES_MAX
            if asker.method == "GET" and not length:
                room = 0
            if room > MESSAGE_BYTES_MAX:
                raise _too_large()
            room = self._reserve(room)
            body = unpacked(peer.body(), asker.headers.get("content-encoding", "").lower())
            reply = self._answer(request, body, asker)
        except EverlogError as error:
            status, report = problem_of(error)
            peer.respond(status, report, JSON)
            return peer.can_continue
        except (_Slow, OSError, h11.ProtocolError):
            raise
        except Exception:
            _logger.exception("a request of a peer failed; others are not affected")
            peer.respond(500, b'{"code":"internal"}', JSON)
            return False
        finally:
            self._release(room)
        peer.respond(200, reply, content_type(request))
        return peer.can_continue

    def _reserve(self, size: int) -> int:
        with self._lock:
            if self._buffered + size > BODIES_BYTES_MAX:
                raise Busy("too many peers are sending at once", hint="try again later")
            self._buffered += size
        return size

    def _release(self, size: int) -> None:
        with self._lock:
            self._buffered = max(0, self._buffered - size)


class _Peer:
    """One connection, with the pace that it must keep."""

    def __init__(self, connection: socket.socket, window_s: float) -> None:
        self.http = h11.Connection(h11.SERVER)
        self._socket = connection
        self._pace = Pace(window_s)

    def begin(self) -> None:
        self._pace.begin()

    @property
    def can_continue(self) -> bool:
        return bool(self.http.our_state is h11.DONE and self.http.their_state is h11.DONE)

    def next_event(self) -> object:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._socket.settimeout(self._left())
            try:
                data = self._socket.recv(_RECEIVE)
            except TimeoutError as error:
                raise _Slow from error
            self._pace.count(len(data))
            self.http.receive_data(data)

    def body(self) -> bytes:
        """Return the body of the request, which ends before it is larger than a message."""
        self.begin()
        found = bytearray()
        if self.http.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[]))
        while True:
            event = self.next_event()
            if isinstance(event, h11.Data):
                found += event.data
                if len(found) > MESSAGE_BYTES_MAX:
                    raise _too_large()
            elif isinstance(event, h11.EndOfMessage):
                return bytes(found)
            else:
                raise _Slow

    def respond(self, status: int, body: bytes, kind: str) -> None:
        self.begin()
        headers = [("content-type", kind), ("content-length", str(len(body)))]
        if self.http.their_state is not h11.DONE:  # the rest of the request is not read
            headers.append(("connection", "close"))
        self._send(h11.Response(status_code=status, headers=headers))
        self._send(h11.Data(data=body))
        self._send(h11.EndOfMessage())

    def _send(self, event: h11.Event) -> None:
        data = memoryview(self.http.send(event) or b"")
        while data:
            self._socket.settimeout(self._left())
            try:
                sent = self._socket.send(data[:_RECEIVE])
            except TimeoutError as error:
                raise _Slow from error
            self._pace.count(sent)
            data = data[sent:]

    def _left(self) -> float:
        left = self._pace.left
        if left <= 0:
            raise _Slow
        return left


def _too_large() -> RejectedMessage:
    return RejectedMessage(
        "a peer sent a message that is too large",
        why=f"{MESSAGE_BYTES_MAX:,} bytes are allowed",
        hint="everlog peers list",
    )


def _problem(error: EverlogError) -> tuple[bytes, str]:
    return problem_of(error)[1], JSON
