"""The event types of a log: their payloads, how old versions are read, and which transitions are allowed."""

from __future__ import annotations

from everlog.catalog.catalog import Catalog, TypeInfo
from everlog.catalog.transitions import Transitions

__all__ = ["Catalog", "Transitions", "TypeInfo"]
