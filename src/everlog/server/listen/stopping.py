"""The server: it starts, looks after its connections, and stops in order.

uvicorn waits for the last connection before it tells the application to stop, and a stream never ends by itself. So
the signal itself starts this, and all of it takes at most `stop_s` seconds:

    draining    not ready; streams get `bye`, long polls are answered; requests are still answered, and each ends its
                connection. It lasts until the requests that were there at the signal are answered. One whose rest
                does not come is refused after a fifth of the time.
    refusing    every request gets 503
    closed      the socket, then every connection

A thread that cannot be ended does not keep the process: after `stop_s` it exits. What was
acknowledged is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import uvicorn

from everlog.server.app import App
from everlog.server.listen.connection import Connection
from everlog.server.observe.loop_lag import LoopLag

LOOK_S = 1.0
GRACE_S = 0.3
"""For requests that the system has received at the signal, and that nobody has read yet."""

_EXIT_UNFINISHED = 1

_logger = logging.getLogger("everlog.server")


class Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: App, *, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._front = app.front
        self._ready = ready
        self._asked_at = 0.0
        app.front.metrics.watch(self.connections)

    def connections(self) -> Collection[Connection]:
        """Return the open connections."""
        return self.server_state.connections  # type: ignore[return-value]

    # ---- starting

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        made = partial(Connection, self.config, self.server_state, self.lifespan.state, front=self._front)
        tls: dict[str, Any] = {}
        if self.config.ssl is not None:
            tls = {"ssl": self.config.ssl, "ssl_handshake_timeout": self._front.limits.request_s}
        self.servers = [
            await loop.create_server(made, sock=one, backlog=self.config.backlog, **tls) for one in sockets or ()
        ]
        self._lag = LoopLag(loop, self._front.metrics)
        self._lag.start()
        self._looking = loop.create_task(self._look_at_connections())
        self.started = True
        self._front.phase = "serving"
        self._ready()

    async def _look_at_connections(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            now = asyncio.get_running_loop().time()
            for connection in list(self.connections()):
                connection.look(now)

    # ---- stopping

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Remember the signal; the loop notices it within a tenth of a second."""
        if not self._asked_at:
            self._asked_at = time.monotonic()
            guard = threading.Timer(self._front.limits.stop_s - 0.2, _exit_now)
            guard.daemon = True
            guard.start()
        super().handle_exit(sig, frame)
        self._captured_signals.clear()  # uvicorn would raise it again at the end, before the log is closed

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._asked_at = self._asked_at or time.monotonic()
        self._front.phase = "draining"
        self._app.end_streams()
        await asyncio.sleep(GRACE_S)
        while any(one.is_receiving for one in self.connections()) and self._left_s(0.2) > 0:
            await asyncio.sleep(0.02)
        there = set(self.server_state.tasks)
        for connection in list(self.connections()):
            connection.stop_receiving()
        await self._wait_for(there, part=0.6)
        self._front.phase = "refusing"
        for server in self.servers:
            server.close()
        for connection in list(self.connections()):
            connection.shutdown()
        await self._wait_for(set(self.server_state.tasks), part=0.75)
        if self.server_state.tasks:
            _logger.warning("%d requests did not end in time", len(self.server_state.tasks))
        for connection in list(self.connections()):  # of clients that do not read, or requests that do not end
            connection.transport.abort()
        self._looking.cancel()
        self._lag.stop()
        await super().shutdown(sockets)

    async def _wait_for(self, tasks: Collection[asyncio.Task[None]], *, part: float) -> None:
        """Wait until tasks have ended, at most up to this part of the time that stopping may take."""
        left_s = self._left_s(part)
        if tasks and left_s > 0:
            await asyncio.wait(tasks, timeout=left_s)

    def _left_s(self, part: float) -> float:
        return self._asked_at + self._front.limits.stop_s * part - time.monotonic()


def _exit_now() -> None:
    _logger.critical("the server did not stop in time, and exits; what was acknowledged is on the disk")
    os._exit(_EXIT_UNFINISHED)
