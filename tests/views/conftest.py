"""Views over notes, for the tests of everything that runs them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from everlog.core.event import Event
from everlog.views.view import CAUSAL, View


@pytest.fixture(params=["memory", "sqlite", "jsonl", "segments"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each kind of store that needs no server; PostgreSQL has tests of its own."""
    return str(request.param)


class Said(View):
    """What was said in every stream, in order of arrival."""

    name = "said"
    types = ("thing.said",)

    def initial(self) -> dict[str, Any]:
        return {"values": [], "count": 0}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if event.payload["value"] == "poison":
            state["values"].append("half of a change")
            raise ValueError("this cannot be applied")
        return {"values": [*state["values"], event.payload["value"]][-5:], "count": state["count"] + 1}


class ByActor(Said):
    """One state an actor, fed by many streams, changed in place."""

    name = "by-actor"

    def key(self, event: Event) -> str | None:
        return None if event.actor == "user:nobody" else event.actor

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        value = event.payload["value"]
        state["values"] = [*state["values"], value][-5:]
        if value == "poison":
            raise ValueError("this cannot be applied")
        state["count"] += 1
        return state


class Total(Said):
    """One state for everything."""

    name = "total"

    def key(self, event: Event) -> str:
        return "all"


class Causal(ByActor):
    name = "causal"
    order = CAUSAL


class CausalByStream(Said):
    name = "causal-by-stream"
    order = CAUSAL


class Everything(View):
    """Takes every event, and counts."""

    name = "everything"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {**state, event.type: state.get(event.type, 0) + 1}


class Picky(View):
    """Its key is in the payload: so an event that cannot be read stops all of it."""

    name = "picky"
    types: ClassVar[tuple[str, ...]] = ("thing.said",)

    def key(self, event: Event) -> str:
        return str(event.payload["value"]["key"])

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"count": state.get("count", 0) + 1}


ALL = (Said, ByActor, Total, Causal, CausalByStream, Everything)
