"""Work packages on a board of lanes, with dependencies, subtasks and gates (seed 000)."""

from __future__ import annotations

from everlog.domains.domain import Domain
from everlog.domains.workpackages.events import CATALOG
from everlog.domains.workpackages.views import VIEWS

DOMAIN = Domain("workpackages", CATALOG, VIEWS)
