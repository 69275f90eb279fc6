"""The pace that the other side of a connection must keep, whatever it sends: at least 16 KB in every window of time.

A timeout of a library begins again with every byte. So a peer that sends one byte after the other, in headers or
between them, would never be given up.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2

from everlog.errors import RejectedMessage
from everlog.sync.wire import MESSAGE_BYTES_MAX

WINDOW_S = 10.0
WINDOW_BYTES = 16 * 1024
_PIECE = 64 * 1024
_READ_MAX = 2 * MESSAGE_BYTES_MAX
"""What one answer may have with everything around it."""


class Pace:
    """How much time the other side has left."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self.begin()

    def begin(self) -> None:
        """Give a whole window."""
        self._until: float = time.monotonic() + self._window_s
        self._moved = 0

    @property
    def left(self) -> float:
        """The seconds that are left; at most 0 if the time is over."""
        return self._until - time.monotonic()

    def count(self, size: int) -> None:
        """Count bytes that moved; enough of them give another window."""
        self._moved += size
        if self._moved >= WINDOW_BYTES:
            self.begin()


class PacedTransport(httpx2.HTTPTransport):
    """What a client sends and reads, as long as the other side keeps the pace. `begin` starts a request."""

    def __init__(self, window_s: float) -> None:
        super().__init__(trust_env=False)
        self._pace = Pace(window_s)
        self.begin()
        self._pool = httpcore2.ConnectionPool(
            ssl_context=httpx2.create_ssl_context(trust_env=False), network_backend=_Backend(self)
        )

    def begin(self) -> None:
        """Begin another request."""
        self.wait()
        self._read = 0

    def wait(self) -> None:
        """Give the other side a whole window for what it does next."""
        self._pace.begin()

    def window(self) -> float:
        """Return the seconds that are left."""
        left = self._pace.left
        if left <= 0:
            raise httpcore2.ReadTimeout("it is too slow")
        return left

    def moved(self, size: int, *, read: bool = False) -> None:
        self._pace.count(size)
        self._read += size if read else 0
        if self._read > _READ_MAX:
            raise RejectedMessage(
                "a peer sent an answer that is too large",
                why=f"{_READ_MAX:,} bytes are allowed, with headers and everything else",
                hint="everlog peers list",
            )


class _Backend(httpcore2.SyncBackend):
    def __init__(self, paced: PacedTransport) -> None:
        self._paced = paced

    def connect_tcp(self, *args: Any, **named: Any) -> httpcore2.NetworkStream:
        found = _Stream(super().connect_tcp(*args, **named), self._paced)
        self._paced.wait()
        return found


class _Stream(httpcore2.NetworkStream):
    def __init__(self, inner: httpcore2.NetworkStream, paced: PacedTransport) -> None:
        self._inner = inner
        self._paced = paced

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, self._paced.window())
        self._paced.moved(len(data), read=True)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for piece in _pieces(buffer):
            self._inner.write(piece, self._paced.window())
            self._paced.moved(len(piece))
        self._paced.wait()

    def close(self) -> None:
        self._inner.close()

    def start_tls(self, *args: Any, **named: Any) -> httpcore2.NetworkStream:
        return _Stream(self._inner.start_tls(*args, **named), self._paced)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _pieces(data: bytes) -> Iterable[bytes]:
    return (data[start : start + _PIECE] for start in range(0, len(data), _PIECE))
