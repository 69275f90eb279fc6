"""Serve logs: make the application, listen, and stop in order."""

from __future__ import annotations

import errno
import gc
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn

from everlog.application.folder.open import Location
from everlog.application.operations.registry import operations
from everlog.application.sync.node import node_of
from everlog.errors import Busy, InvalidField, InvalidSettings, Unavailable
from everlog.log.log import Log
from everlog.os_errors import survive_closed_connections
from everlog.server.app import App
from everlog.server.listen.front import Front
from everlog.server.listen.hosts import is_loopback
from everlog.server.listen.limits import Limits
from everlog.server.listen.stopping import Server
from everlog.server.observe.log_facts import LogFacts
from everlog.server.routes.table import routes
from everlog.server.service import Service
from everlog.settings import Settings
from everlog.store_urls import without_password

if TYPE_CHECKING:
    from everlog.server.callers.oidc import Oidc
    from everlog.sync.exchange import Node

_FILES_BESIDE = 100
"""Open files that are no connections: of the log, its index, its views."""


class Listen(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, and who is in front of it."""

    host: str = "127.0.0.1"
    port: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False

    @property
    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host) and not self.behind_proxy

    def check(self) -> None:
        """Refuse to listen where tokens would cross a network in the clear."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidSettings(
                "TLS needs two files", why="a certificate and its key", hint="--tls-cert CERT.pem --tls-key KEY.pem"
            )
        for path in (self.tls_cert, self.tls_key):
            if path is not None and not path.is_file():
                raise InvalidSettings(
                    f"there is no file {path}", hint="name the files of the certificate and its key"
                )
        if not is_loopback(self.host) and self.tls_cert is None and not self.behind_proxy:
            raise InvalidSettings(
                f"{self.host} can be reached from other machines, and nothing encrypts what they send",
                why="a token that crosses a network in the clear can be used by anyone who sees it",
                hint="--tls-cert CERT.pem --tls-key KEY.pem, or --behind-proxy if a proxy does TLS",
            )


def make_app(
    logs: Mapping[str, Log],
    *,
    programs: str = "",
    oidc: Oidc | None = None,
    front: Front | None = None,
    nodes: Mapping[str, Node] | None = None,
) -> App:
    """Return the application over logs, by name. The first one is also reached without a name.

    `nodes` are the logs as nodes that sync, with their settings.
    """
    known, front = operations(programs), front or Front()
    given: dict[str, Any] = {"oidc": oidc, "front": front, "facts": LogFacts(dict(logs))}
    found = nodes or {}
    services = {name: Service(log, known, name=name, node=found.get(name), **given) for name, log in logs.items()}
    return App(services, routes(known), front)


def app_of(
    logs: Mapping[str, Log], locations: Mapping[str, Location], settings: Settings, front: Front | None = None
) -> App:
    """Return the application over logs, by name, with the settings of the first."""
    oidc = None
    if settings.oidc_issuer:
        from everlog.server.callers.oidc import Oidc, OidcSettings

        given = {field: getattr(settings, f"oidc_{field}") for field in OidcSettings.__struct_fields__}
        oidc = Oidc(OidcSettings(**given))
    nodes = {name: node_of(log, locations[name]) for name, log in logs.items()}
    return make_app(logs, programs=settings.programs, oidc=oidc, front=front, nodes=nodes)


def named_logs(given: Sequence[str], *, work_in: Path) -> dict[str, Location]:
    """Return where further logs are, from texts such as archive=sqlite:archive.db."""
    found: dict[str, Location] = {}
    for text in given:
        name, _, url = text.partition("=")
        if not url or not _NAME.fullmatch(name) or name == "log" or name in found:
            raise InvalidField(
                f"{without_password(text)[:80]!r} names no further log",
                why="it is NAME=URL, and each name is used once; log is the first log",
                hint="--also archive=sqlite:archive.db",
                field="also",
            )
        found[name] = Location(work_in=work_in, url=url)
    return found


_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")


def limits_of(settings: Settings) -> Limits:
    """Return the limits that settings choose. There are never more connections than files that may be open."""
    return Limits(
        connections_max=min(settings.connections_max, _files_max(settings.connections_max + _FILES_BESIDE)),
        connections_per_token_max=settings.connections_per_token,
        requests_per_s=settings.requests_per_second,
    )


def _files_max(wanted: int) -> int:
    """Allow this process so many open files, if the system lets it; return how many may be connections."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - _FILES_BESIDE)


def serve(app: App, listen: Listen, *, ready: Callable[[str], None]) -> None:
    """Answer requests until the process is asked to stop. `ready` gets the address as soon as it answers."""
    listen.check()
    config = uvicorn.Config(
        app,
        http="httptools",
        loop="uvloop",
        ws="none",
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # see app._client: X-Forwarded-For counts only behind a proxy
        timeout_keep_alive=app.front.limits.idle_s,
        timeout_graceful_shutdown=1,
        ssl_certfile=listen.tls_cert,
        ssl_keyfile=listen.tls_key,
    )
    survive_closed_connections()
    with _bound(listen) as bound:
        shown = f"[{listen.host}]" if ":" in listen.host else listen.host
        scheme = "https" if listen.tls_cert is not None else "http"
        url = f"{scheme}://{shown}:{bound.getsockname()[1]}"
        app.front.phase = "starting"
        # What is loaded by now stays: to look through all of it for garbage would block the event loop for 20 ms.
        gc.collect()
        gc.freeze()
        Server(config, app, ready=lambda: ready(url)).run(sockets=[bound])


def _bound(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((listen.host, listen.port))
    except OSError as error:
        made.close()
        kind = Busy if error.errno == errno.EADDRINUSE else Unavailable
        raise kind(
            f"the server cannot listen at {listen.host}, port {listen.port}",
            why=error.strerror or str(error),
            hint="--port 0 chooses a free port",
            port=listen.port,
        ) from error
    return made
