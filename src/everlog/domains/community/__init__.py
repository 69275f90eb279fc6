"""A community that shares a log (seed 002): members and their rights, nodes, a market, chats, files, documents."""

from __future__ import annotations

from everlog.domains.community.events import CATALOG
from everlog.domains.community.views import VIEWS
from everlog.domains.domain import Domain

DOMAIN = Domain("community", CATALOG, VIEWS)
