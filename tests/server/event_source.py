"""A client of Server-Sent Events over a bare socket, with the rules of a browser's EventSource."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple


class Received(NamedTuple):
    """One event of a stream. `id` is the last one that the stream has given, as a browser has it."""

    type: str
    id: str
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Refused(Exception):
    """An answer that is not a stream: a browser does not try again after it."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body


class EventSource:
    """Opens a stream, and again when it has ended, with the last id that it got."""

    made: ClassVar[list[EventSource]] = []

    def __init__(
        self,
        port: int,
        path: str,
        token: str,
        *,
        receive_bytes: int = 0,
        last_id: str = "",
        timeout_s: float = 20,
        accept: str = "text/event-stream",
    ) -> None:
        self._port = port
        self._path = path
        self._token = token
        self._receive_bytes = receive_bytes
        self._timeout_s = timeout_s
        self._accept = accept
        self.last_id = last_id
        self.comments: list[str] = []
        self.socket: socket.socket | None = None
        self.made.append(self)
        self._text = b""

    def open(self, *, port: int | None = None) -> None:
        self.close()
        self._port = port or self._port
        made = socket.socket()
        if self._receive_bytes:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        self.socket = made  # from here on it is closed, whatever fails
        made.settimeout(self._timeout_s)
        made.connect(("127.0.0.1", self._port))
        lines = [
            f"GET {self._path} HTTP/1.1",
            f"Host: 127.0.0.1:{self._port}",
            f"Authorization: Bearer {self._token}",
            f"Accept: {self._accept}",
        ]
        if self.last_id:
            lines.append(f"Last-Event-ID: {self.last_id}")
        made.sendall("\r\n".join([*lines, "", ""]).encode())
        self._bytes = b""
        self._text = b""
        head = self._until(b"\r\n\r\n").decode()
        status = int(head.split()[1])
        if status != 200:
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            raise Refused(status, self._exactly(length))
        assert "content-type: text/event-stream" in head.lower(), head

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def events(self) -> Iterator[Received]:
        """Yield events until the stream ends. Each moves `last_id` when it is yielded."""
        kind, id = "", self.last_id
        data: list[str] = []
        for line in self._lines():
            if not line:
                self.last_id = id
                if data:
                    yield Received(kind or "message", id, "\n".join(data))
                kind, data = "", []
            elif line.startswith(":"):
                self.comments.append(line)
            else:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data.append(value)
                elif name == "id":
                    id = value

    def _lines(self) -> Iterator[str]:
        while True:
            while b"\n" in self._text:
                line, _, self._text = self._text.partition(b"\n")
                yield line.decode()
            size = int(self._until(b"\r\n"), 16)
            self._text += self._exactly(size)
            self._exactly(2)
            if not size:
                return

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._bytes:
            self._more()
        found, _, self._bytes = self._bytes.partition(mark)
        return found

    def _exactly(self, size: int) -> bytes:
        while len(self._bytes) < size:
            self._more()
        found, self._bytes = self._bytes[:size], self._bytes[size:]
        return found

    def _more(self) -> None:
        assert self.socket is not None
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self._bytes += data


def close_all() -> None:
    """Close what tests have left open."""
    while EventSource.made:
        EventSource.made.pop().close()


def next_of(events: Iterator[Received], count: int) -> list[Received]:
    """Return the next events of a stream."""
    return [next(events) for _ in range(count)]


def until_true(condition: Any, *, within_s: float = 10.0, what: str = "it") -> None:
    end = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {within_s} s"
        time.sleep(0.01)
