"""Moves the bytes of requests and answers, for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx2 as httpx

from everlog.errors import EverlogError
from everlog.remote import calls
from everlog.remote.address import Address
from everlog.remote.calls import SSE, Call
from everlog.remote.http import (
    client_settings,
    failure,
    reply_of,
    request_of,
    require_no_stream,
    stream_timeout,
    with_retry_after,
)
from everlog.remote.retry import pause_before_next

T = TypeVar("T")


class AsyncHttp:
    """A connection to a server, for the tasks of one event loop."""

    def __init__(self, address: Address, token: str, *, timeout_s: float, tls: ssl.SSLContext | None = None) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(**client_settings(address, token, timeout_s, tls))
        self._closed = self._answered = False

    def is_closed(self) -> bool:
        return self._closed

    async def send(self, call: Call[T]) -> T:
        """Send a request and return what it answers. One that may be sent twice is tried again if it fails."""
        attempt = 1
        while True:
            try:
                return await self._sent(call)
            except EverlogError as error:
                pause = pause_before_next(call, error, attempt, answered=self._answered)
                if pause is None:
                    raise
                attempt += 1
            await asyncio.sleep(pause)

    async def _sent(self, call: Call[T]) -> T:
        if self._closed:
            raise calls.closed()
        try:
            response = await self._client.request(**request_of(call, self.address, self._timeout_s))
        except httpx.HTTPError as error:
            raise failure(self.address, error) from None
        reply, self._answered = reply_of(response), True
        try:
            return call.read(reply, self.address.url)
        except EverlogError as error:
            with_retry_after(error, reply)
            raise

    @asynccontextmanager
    async def open_stream(self, call: Call[Any]) -> AsyncIterator[AsyncIterator[bytes] | None]:
        """Start to read a stream; None if the server has none at this address."""
        if self._closed:
            raise calls.closed()
        asked = request_of(call, self.address, self._timeout_s) | {"timeout": stream_timeout(self._timeout_s)}
        try:
            response = await self._client.send(self._client.build_request(**asked), stream=True)
        except httpx.HTTPError as error:
            raise failure(self.address, error) from None
        try:
            if response.status_code == 200 and response.headers.get("content-type", "").startswith(SSE):
                yield self._pieces(response)
                return
            try:
                await response.aread()
            except httpx.HTTPError as error:
                raise failure(self.address, error) from None
            require_no_stream(call, reply_of(response), self.address)
            yield None
        finally:
            await response.aclose()

    async def _pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for piece in response.aiter_bytes():
                yield piece
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise failure(self.address, error) from None

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        await self._client.aclose()
