"""All routes of a server, in one list."""

from __future__ import annotations

from collections.abc import Sequence

from everlog.programs.operations import Operation
from everlog.server import jobs, peers
from everlog.server.callers import auth
from everlog.server.events import appending as events
from everlog.server.events import pages, streaming
from everlog.server.observe import health
from everlog.server.routes import documents, logs
from everlog.server.routes.operations import routes_of
from everlog.server.routes.route import Route
from everlog.server.routes.spellings import SPELLINGS


def routes(operations: Sequence[Operation]) -> list[Route]:
    fixed = (events, pages, streaming, auth, peers, jobs, logs, documents, health)
    return [*(route for part in fixed for route in part.ROUTES), *routes_of(operations, SPELLINGS)]
