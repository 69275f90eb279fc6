"""Whether the server lives, whether it can take requests, and its metrics.

GET /healthz    200 while the process answers: restart it if this fails
GET /readyz     200, or 503 and the reason: send it no requests
GET /metrics    text for Prometheus
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from everlog.application.checks.doctor import FREE_BYTES_FAIL
from everlog.errors import EverlogError, NotReady
from everlog.log.log import Log
from everlog.server.observe.metrics import CONTENT_TYPE
from everlog.server.routes.route import Answer, Policy, Request, Response, Route


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The process answers."""

    alive: bool = True


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The server takes requests, and what was checked."""

    ready: bool
    checks: dict[str, str]


async def _healthz(request: Request) -> Response:
    return Response(msgspec.json.encode(Alive()), headers=_NOT_KEPT)


async def _readyz(request: Request) -> Response:
    front = request.service.front
    checks: dict[str, str] = {"server": "ok" if front.phase == "serving" else front.phase}
    checks |= await request.service.run(checks_of, request.service.log)
    failed = {name: found for name, found in checks.items() if found != "ok"}
    if failed:
        raise NotReady(
            "the server is not ready",
            why="; ".join(f"{name}: {found}" for name, found in failed.items()),
            hint="send requests to another one, or wait",
            checks=checks,
        )
    return Response(msgspec.json.encode(Ready(ready=True, checks=checks)), headers=_NOT_KEPT)


def checks_of(log: Log) -> dict[str, str]:
    """Return what a log needs in order to take requests, each with `ok` or what is wrong.

    Anybody may ask, so an error is shown by its code: its text may name paths.
    """
    try:
        log.head()
        found = {"log": "ok"}
    except EverlogError as error:
        return {"log": error.code}
    path = getattr(log.stored, "path", None)
    if isinstance(path, Path):
        system = os.statvfs(path.parent)
        found["disk"] = "ok" if system.f_bavail * system.f_frsize >= FREE_BYTES_FAIL else "almost full"
    return found


async def _metrics(request: Request) -> Response:
    service = request.service
    gauges = await service.run(service.facts.gauges)
    text = service.front.metrics.text(gauges)
    return Response(text.encode(), content_type=CONTENT_TYPE, headers=_NOT_KEPT)


_NOT_KEPT = (("cache-control", "no-store"),)

ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        name="server.healthz",
        about="Return 200 while the process answers.",
        policy=Policy(role="none", scope="none"),
        call=_healthz,
        answers=(Answer(status=200, about="It answers.", type=Alive),),
        example="/healthz",
    ),
    Route(
        method="GET",
        path="/readyz",
        name="server.readyz",
        about="Return whether the server takes requests, and if not, why.",
        policy=Policy(role="none", scope="none"),
        call=_readyz,
        answers=(Answer(status=200, about="It takes requests.", type=Ready),),
        problems=("not_ready",),
        example="/readyz",
    ),
    Route(
        method="GET",
        path="/metrics",
        name="server.metrics",
        about="Return the metrics of the server and its logs as text for Prometheus.",
        policy=Policy(role="read", scope="log"),
        call=_metrics,
        answers=(Answer(status=200, about="The metrics.", content_type=CONTENT_TYPE),),
        example="/metrics",
    ),
)
