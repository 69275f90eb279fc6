"""An issue tracker (seed 004): two identities, a diff in every edit, and a ladder from closing to purging."""

from __future__ import annotations

from everlog.domains.domain import Domain
from everlog.domains.issues.events import CATALOG
from everlog.domains.issues.views import VIEWS

DOMAIN = Domain("issues", CATALOG, VIEWS)
