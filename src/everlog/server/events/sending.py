"""The body of an answer while it is sent: notices a caller that has gone, or that reads nothing.

A write that is not taken within `WRITE_S` ends the connection at once. A transport that is closed in the usual way
would keep the socket, and what waits for it, until the caller reads.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from typing import Any

Message = MutableMapping[str, Any]

WRITE_S = 10.0
"""How long one write may wait for the caller."""

SEND_BUFFER_BYTES = 128 * 1024
"""Of the kernel, for each stream. Its own choice grows to megabytes, in which a stalled caller is not noticed."""


class Gone(Exception):
    """The caller does not read any more: it has closed the connection, or it took too long."""


class Chunk:
    """A piece of many bodies. Its framing in HTTP/1.1 is made once, and every connection is given the same bytes."""

    __slots__ = ("data", "framed")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.framed = b"%x\r\n%b\r\n" % (len(data), data)

    def __len__(self) -> int:
        return len(self.data)


class Sending:
    """Sends the pieces of a body: `await sending(data)`. Raises Gone when nobody reads them."""

    def __init__(
        self, send: Callable[[Message], Awaitable[None]], receive: Callable[[], Awaitable[Message]] | None = None
    ) -> None:
        self._send = send
        self._receive = receive
        self._cycle: Any = getattr(send, "__self__", None)  # of uvicorn
        self._transport: Any = getattr(self._cycle, "transport", None)
        self._watch: asyncio.Task[None] | None = None
        self.gone = False
        self.on_gone: Callable[[], None] = lambda: None

    async def __call__(self, data: bytes) -> None:
        if self.gone:
            raise Gone
        message = {"type": "http.response.body", "body": data, "more_body": True}
        if self._transport is not None and not self._transport.get_write_buffer_size():
            await self._send(message)  # it does not wait
            return
        await self._in_time(self._send(message))

    def at_once(self, chunk: Chunk) -> bool:
        """Send a chunk without a copy and without waiting. Return False if something else waits for the caller."""
        transport = self._transport
        if transport is None or self.gone or transport.is_closing() or transport.get_write_buffer_size():
            return False
        transport.write(chunk.framed if self._cycle.chunked_encoding else chunk.data)
        return True

    async def send_all(self, chunks: Sequence[Chunk]) -> None:
        """Send chunks without a copy, as soon as the caller has taken most of what waits for it."""
        if self._transport is None:
            await self(b"".join([chunk.data for chunk in chunks]))
            return
        await self.until_taken()
        if self._cycle.disconnected:
            raise Gone
        chunked = self._cycle.chunked_encoding
        self._transport.writelines([chunk.framed if chunked else chunk.data for chunk in chunks])

    async def until_taken(self) -> None:
        """Wait until the caller has taken most of what was sent."""
        if self._transport is not None and self._cycle.flow.write_paused:
            await self._in_time(self._cycle.flow.drain())

    async def _in_time(self, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(WRITE_S):
                await work
        except TimeoutError:
            self.abort()
            await asyncio.sleep(0)  # the server notices that the connection is lost
            raise Gone from None
        if self.gone:
            raise Gone

    def abort(self) -> None:
        """End the connection without waiting for what was not read."""
        self._left()
        if self._transport is not None:
            cut(self._transport)

    def begin(self) -> None:
        """Notice from now on when the caller closes the connection."""
        if self._receive is not None:
            self._watch = asyncio.create_task(self._until_gone(self._receive))
        if self._transport is not None:
            held = _socket_of(self._transport)
            if held is not None:
                with suppress(OSError):
                    held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def end(self) -> None:
        if self._watch is not None:
            self._watch.cancel()

    async def _until_gone(self, receive: Callable[[], Awaitable[Message]]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left()

    def _left(self) -> None:
        if not self.gone:
            self.gone = True
            self.on_gone()


def cut(transport: Any) -> None:
    """End a connection at once. Without SO_LINGER 0 the kernel keeps what it has, and a caller that does not read
    learns nothing."""
    held = _socket_of(transport)
    if held is not None:
        with suppress(OSError):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _socket_of(transport: Any) -> Any:
    held = transport.get_extra_info("socket")
    return held if held is not None and held.family in (socket.AF_INET, socket.AF_INET6) else None
