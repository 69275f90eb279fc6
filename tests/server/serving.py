"""A real server of an open log, in a thread of this process, so that a test can change the log beside it."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import uvicorn

from everlog.log.log import Log
from everlog.server.app import App
from everlog.server.routes.route import Role
from everlog.server.serve import make_app

READY_S = 10.0


class Serving:
    """Serves a log until it is closed."""

    def __init__(self, log: Log, *, port: int = 0) -> None:
        self.app: App = make_app({"log": log})
        self.hub = self.app.services["log"].hub
        config = uvicorn.Config(
            self.app, port=port, http="httptools", loop="uvloop", log_config=None, access_log=False, lifespan="on"
        )
        self._server = uvicorn.Server(config)
        self._socket = config.bind_socket()
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]})
        self._thread.start()
        until = time.monotonic() + READY_S
        while not self._server.started:
            assert time.monotonic() < until, "the server did not start"
            time.sleep(0.005)

    def token(self, name: str, *, role: Role = "append", within: str = "", actor: str = "user:ada") -> str:
        return self.app.services["log"].tokens.new(name, actor=actor, role=role, within=within)

    def close(self) -> None:
        """Say bye to streams, then stop."""
        self.hub.close("shutdown")
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server did not stop"
        self._socket.close()
        self.app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
