"""Agents that ask before they act (seed 001): commands are proposed, validated, approved or rejected, run."""

from __future__ import annotations

from everlog.domains.agents.events import CATALOG
from everlog.domains.agents.views import VIEWS
from everlog.domains.domain import Domain

DOMAIN = Domain("agents", CATALOG, VIEWS)
