"""All routes of a server, in one list."""

from __future__ import annotations

from collections.abc import Sequence

from everlog.programs.operations import Operation
from everlog.server import auth, documents, events, jobs, pages, peers, streaming
from everlog.server.observe import health
from everlog.server.operations import routes_of
from everlog.server.route import Route
from everlog.server.spellings import SPELLINGS


def routes(operations: Sequence[Operation]) -> list[Route]:
    fixed = (events, pages, streaming, auth, peers, jobs, documents, health)
    return [*(route for part in fixed for route in part.ROUTES), *routes_of(operations, SPELLINGS)]
