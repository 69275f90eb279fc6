"""All routes of a server, in one list."""

from __future__ import annotations

from collections.abc import Sequence

from everlog.programs.operations import Operation
from everlog.server import auth, events, peers
from everlog.server.observe import health
from everlog.server.operations import routes_of
from everlog.server.route import Route


def routes(operations: Sequence[Operation]) -> list[Route]:
    return [*events.ROUTES, *auth.ROUTES, *peers.ROUTES, *health.ROUTES, *routes_of(operations)]
