"""Listen, and stop in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import uvicorn

from everlog.log.log import Log
from everlog.programs.operations import operations
from everlog.server.app import App
from everlog.server.service import Service
from everlog.server.table import routes


def make_app(logs: Mapping[str, Log], *, programs: str = "") -> App:
    """Return the application over logs, by name. The first one is also reached without a name."""
    known = operations(programs)
    return App({name: Service(log, known, name=name) for name, log in logs.items()}, routes(known))


def serve(app: App, *, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Answer requests until the process is asked to stop."""
    config = uvicorn.Config(
        app, host=host, port=port, http="httptools", loop="uvloop", log_config=None, access_log=False, lifespan="on"
    )
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    address = socket.getsockname()
    ready(f"http://{host}:{address[1]}")
    server.run(sockets=[socket])
