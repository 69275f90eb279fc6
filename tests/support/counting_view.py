"""A view in causal order that counts how many events it has applied in this process: what a snapshot saves."""

from __future__ import annotations

from typing import Any, ClassVar

from everlog.core.event import Event
from everlog.views.view import CAUSAL, View


class Counting(View):
    """One row per stream: its texts in the order that is the same on every node."""

    name = "test.counting"
    types = ("note.added",)
    order = CAUSAL
    applied: ClassVar[list[str]] = []

    def initial(self) -> dict[str, Any]:
        return {"texts": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        Counting.applied.append(event.id)
        return {"texts": [*state["texts"], event.payload["text"]]}
