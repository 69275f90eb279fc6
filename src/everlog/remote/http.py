"""Moves the bytes of requests and answers, for threads."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import httpx2 as httpx

from everlog._version import __version__
from everlog.errors import EverlogError, PeerUnavailable
from everlog.remote import calls
from everlog.remote.address import Address
from everlog.remote.calls import SSE, Call, Reply, not_everlog
from everlog.remote.following import SILENCE_S
from everlog.remote.retry import gone, pause_before_next, retry_after

T = TypeVar("T")

CONNECT_S = 5.0
_PIECES_MAX = 64  # of a stream that wait for their reader; then the server has to


def client_settings(address: Address, token: str, timeout_s: float, tls: ssl.SSLContext | None) -> dict[str, Any]:
    """Return the settings that both clients have."""
    return {
        "headers": {"authorization": f"Bearer {token}", "user-agent": f"everlog/{__version__}"},
        "timeout": httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
        "follow_redirects": False,  # the token would go elsewhere
        "verify": True if tls is None else tls,
        "trust_env": address.is_tls,  # a proxy must not see a token without TLS
    }


def request_of(call: Call[Any], address: Address, timeout_s: float) -> dict[str, Any]:
    """Return a call as the libraries take it."""
    return {
        "method": call.method,
        "url": address.of(call.target),
        "headers": call.headers,
        "content": call.body or None,
        "timeout": httpx.Timeout(timeout_s + call.wait_s, connect=min(CONNECT_S, timeout_s)),
    }


def reply_of(response: httpx.Response) -> Reply:
    return Reply(response.status_code, dict(response.headers.items()), response.content)


def failure(address: Address, error: httpx.HTTPError | httpx.StreamError) -> PeerUnavailable:
    """Return the error for a request that got no answer."""
    unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    return gone(address.url, str(error) or type(error).__name__, sent=not unsent)


def with_retry_after(error: EverlogError, reply: Reply) -> EverlogError:
    """Let an error carry the seconds that the server asks for."""
    if wanted := retry_after(reply):
        error.details.setdefault("retry_after_s", wanted)
    return error


def stream_timeout(timeout_s: float) -> httpx.Timeout:
    """Return the timeouts of a stream, which is silent between two heartbeats."""
    return httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s), read=SILENCE_S)


def require_no_stream(call: Call[Any], reply: Reply, address: Address) -> None:
    """Raise what a server reports, unless it is that it has no stream at this address.

    What is wrong with the request itself, a page reports as well.
    """
    if reply.status in (400, 404):
        return
    try:
        call.read(reply, address.url)
    except EverlogError as error:
        with_retry_after(error, reply)
        raise
    raise not_everlog(address.url, "its stream is of another kind")


class Http:
    """A connection to a server. Threads may share it."""

    def __init__(self, address: Address, token: str, *, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._client = httpx.Client(**client_settings(address, token, timeout_s, tls))
        self._answered = False
        self._closing = threading.Event()
        self._streams: set[Pieces] = set()

    def is_closed(self) -> bool:
        return self._closing.is_set()

    def send(self, call: Call[T]) -> T:
        """Send a request and return what it answers. One that may be sent twice is tried again if it fails."""
        attempt = 1
        while True:
            try:
                return self._sent(call)
            except EverlogError as error:
                pause = pause_before_next(call, error, attempt, answered=self._answered)
                if pause is None:
                    raise
                attempt += 1
                self._closing.wait(pause)

    def _sent(self, call: Call[T]) -> T:
        if self.is_closed():
            raise calls.closed()
        try:
            reply = reply_of(self._client.request(**request_of(call, self.address, self._timeout_s)))
        except httpx.HTTPError as error:
            raise failure(self.address, error) from None
        self._answered = True
        try:
            return call.read(reply, self.address.url)
        except EverlogError as error:
            with_retry_after(error, reply)
            raise

    def open_stream(self, call: Call[Any]) -> Pieces | None:
        """Start to read a stream; None if the server has none at this address."""
        if self.is_closed():
            raise calls.closed()
        asked = request_of(call, self.address, self._timeout_s) | {"timeout": stream_timeout(self._timeout_s)}
        try:
            response = self._client.send(self._client.build_request(**asked), stream=True)
        except httpx.HTTPError as error:
            raise failure(self.address, error) from None
        if response.status_code == 200 and response.headers.get("content-type", "").startswith(SSE):
            pieces = Pieces(response, self.address, self._streams.discard)
            self._streams.add(pieces)
            return pieces
        try:
            response.read()
            reply = reply_of(response)
        except httpx.HTTPError as error:
            raise failure(self.address, error) from None
        finally:
            response.close()
        require_no_stream(call, reply, self.address)
        return None

    def wait(self, seconds: float) -> None:
        """Sleep, or until the connection is closed."""
        self._closing.wait(seconds)

    def close(self) -> None:
        self._closing.set()
        for pieces in list(self._streams):
            pieces.close()
        self._client.close()


class Pieces:
    """The body of a stream, read by another thread: its reader can stop waiting at any time."""

    def __init__(self, response: httpx.Response, address: Address, forget: Callable[[Pieces], None]) -> None:
        self._response = response
        self._forget = forget
        self._address = address
        self._found: queue.Queue[bytes | EverlogError] = queue.Queue(_PIECES_MAX)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._read, name="everlog-stream", daemon=True)
        self._thread.start()

    def take(self, timeout_s: float) -> bytes | None:
        """Return the next piece; empty at the end, None if there is none yet."""
        try:
            found = self._found.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if isinstance(found, EverlogError):
            raise found
        return found

    def close(self) -> None:
        """End the stream, also while its thread waits for bytes."""
        self._left.set()
        self._forget(self)
        stream = self._response.extensions.get("network_stream")
        found = None if stream is None else stream.get_extra_info("socket")
        if found is not None:
            with suppress(OSError):  # the server was faster
                # Of the socket below TLS: a read that waits in another thread must end.
                socket.socket.shutdown(found, socket.SHUT_RDWR)
        self._thread.join(timeout=5.0)

    def _read(self) -> None:
        end: bytes | EverlogError = b""
        try:
            for piece in self._response.iter_bytes():
                if not self._put(piece):
                    return
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            end = gone(self._address.url, str(error) or type(error).__name__, sent=True)
        finally:
            with suppress(httpx.HTTPError, OSError, RuntimeError):
                self._response.close()
            self._put(end)

    def _put(self, item: bytes | EverlogError) -> bool:
        while not self._left.is_set():
            try:
                self._found.put(item, timeout=0.5)
                return True
            except queue.Full:
                continue
        return False
