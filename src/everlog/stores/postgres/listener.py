"""Notice commits of other processes by LISTEN: a hint to read, without content.

A subscriber checks the head of the log periodically anyway. A listener that cannot connect retries later.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable

import psycopg
from psycopg import sql

from everlog.errors import EverlogError
from everlog.stores.postgres.address import Address
from everlog.stores.postgres.connection import Connection, connect, keep_for_ever

_RETRY_S = 2.0

_logger = logging.getLogger("everlog")


class Listener:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._callbacks: list[Callable[[], None]] = []
        self._stop = threading.Event()
        self._wake, self._woken = socket.socketpair()  # `close` ends the wait for the server
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._listen, name="everlog-listener", daemon=True)

    def call(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if not self._thread.is_alive():
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._wake.send(b"\0")
        if self._thread.is_alive():
            self._thread.join()
        self._close_sockets()

    def abandon(self) -> None:
        """Stop in a forked child, where the thread does not exist."""
        self._stop.set()
        self._close_sockets()
        keep_for_ever(self._connection)

    def _close_sockets(self) -> None:
        self._wake.close()
        self._woken.close()

    def _listen(self) -> None:
        while not self._stop.is_set():
            try:
                with connect(self._address) as self._connection:
                    channel = sql.Identifier(f"everlog {self._address.schema}")
                    self._connection.execute(sql.SQL("LISTEN {}").format(channel), prepare=False)
                    self._wait_for_commits(self._connection)
            except (psycopg.Error, EverlogError) as error:
                _logger.info("commits in %s are not notified for now: %s", self._address, error)
                self._stop.wait(_RETRY_S)

    def _wait_for_commits(self, connection: Connection) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(connection, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while not self._stop.is_set():
                if not list(connection.notifies(timeout=0)):
                    ready.select()
                    continue
                for callback in self._callbacks:
                    callback()
