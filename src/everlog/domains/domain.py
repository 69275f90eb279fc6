"""What a domain hands to a log: its event types and its views."""

from __future__ import annotations

from typing import Any

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.views.view import View


class Domain(msgspec.Struct, frozen=True):
    """A program on the log."""

    name: str
    catalog: Catalog
    views: tuple[type[View], ...]

    def type_of(self, payload: Any) -> str:
        """The event type that a payload belongs to: that of its class, which is of the latest version."""
        return self.catalog.type_of_model(type(payload))

    def view(self, name: str) -> type[View] | None:
        return next((view for view in self.views if view.name == name), None)
