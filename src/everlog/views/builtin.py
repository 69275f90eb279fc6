"""Views that every log has: useful by themselves, and a model for those to come."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from everlog.core.event import Event
from everlog.views.view import CAUSAL, View


class Streams(View):
    """One row a stream: how many events, of which types, the first and the last."""

    name = "streams"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        moment = _text(event.occurred_at)
        return {
            "events": state.get("events", 0) + 1,
            "first_at": state.get("first_at", moment),
            "last_at": moment,
            "last_type": event.type,
            "last_actor": event.actor,
        }


class Types(View):
    """One row an event type: how many, and the last time."""

    name = "types"

    def key(self, event: Event) -> str:
        return event.type

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"events": state.get("events", 0) + 1, "last_at": _text(event.occurred_at)}


class Actors(View):
    """One row an actor: how many events, and the last, in the order that is the same on every node."""

    name = "actors"
    order = CAUSAL

    def key(self, event: Event) -> str:
        return event.actor

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {
            "events": state.get("events", 0) + 1,
            "last_at": _text(event.occurred_at),
            "last_type": event.type,
            "last_stream": event.stream,
        }


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


BUILT_IN = (Streams, Types, Actors)
