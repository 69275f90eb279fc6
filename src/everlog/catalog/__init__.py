"""The event types of a log: what their payloads hold, how old versions read today, and which moves are allowed."""

from __future__ import annotations

from everlog.catalog.catalog import Catalog, TypeInfo
from everlog.catalog.transitions import Transitions

__all__ = ["Catalog", "Transitions", "TypeInfo"]
