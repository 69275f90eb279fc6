"""Listen, and stop in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import uvicorn

from everlog.log.log import Log
from everlog.programs.operations import operations
from everlog.server.app import App
from everlog.server.service import Service
from everlog.server.table import routes
from everlog.settings import Settings

if TYPE_CHECKING:
    from everlog.server.oidc import Oidc


def make_app(logs: Mapping[str, Log], *, programs: str = "", oidc: Oidc | None = None) -> App:
    """Return the application over logs, by name. The first one is also reached without a name."""
    known = operations(programs)
    return App({name: Service(log, known, name=name, oidc=oidc) for name, log in logs.items()}, routes(known))


def app_of(log: Log, settings: Settings) -> App:
    """Return the application over one log, with its settings."""
    oidc = None
    if settings.oidc_issuer:
        from everlog.server.oidc import Oidc, OidcSettings

        given = {field: getattr(settings, f"oidc_{field}") for field in OidcSettings.__struct_fields__}
        oidc = Oidc(OidcSettings(**given))
    return make_app({"log": log}, programs=settings.programs, oidc=oidc)


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
