"""A control plane (seed 003): orgs, apps, environments, and what should run in them."""

from __future__ import annotations

from everlog.domains.controlplane.events import CATALOG
from everlog.domains.controlplane.views import VIEWS
from everlog.domains.domain import Domain

DOMAIN = Domain("controlplane", CATALOG, VIEWS)
