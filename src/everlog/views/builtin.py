"""Views that every log has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from everlog.core.event import Event
from everlog.views.view import CAUSAL, View


class Streams(View):
    """One row per stream: the number of events, the first and the last."""

    name = "streams"
    columns: ClassVar[Mapping[str, Any]] = {
        "events": int,
        "first_at": datetime,
        "last_at": datetime,
        "last_type": str,
        "last_actor": str,
    }

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
    """One row per event type: the number of events, and the time of the last."""

    name = "types"
    columns: ClassVar[Mapping[str, Any]] = {"events": int, "last_at": datetime}

    def key(self, event: Event) -> str:
        return event.type

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"events": state.get("events", 0) + 1, "last_at": _text(event.occurred_at)}


class Actors(View):
    """One row per actor: the number of events, and the last one in the order that is the same on every node."""

    name = "actors"
    order = CAUSAL
    columns: ClassVar[Mapping[str, Any]] = {
        "events": int,
        "last_at": datetime,
        "last_type": str,
        "last_stream": str,
    }

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


class Fields(View):
    """One row per stream: the last value of every field. Every stream has it; see `everlog state`.

    Objects are merged, path by path; any other value, lists and null included, replaces the one before. So after

        {"lane": "doing", "owner": {"name": "ada"}}     and then     {"lane": "done", "owner": {"mail": "a@b"}}

    the state is `{"lane": "done", "owner": {"name": "ada", "mail": "a@b"}}`. Events of every type count, each in the
    latest version of its type. Nothing is ever removed: a field that is to be empty is set to null.
    """

    name = "fields"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return merged(state, event.payload)


def merged(state: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new object; neither argument is changed."""
    found = dict(state)
    for name, value in payload.items():
        there = found.get(name)
        found[name] = merged(there if isinstance(there, dict) else {}, value) if isinstance(value, dict) else value
    return found


BUILT_IN = (Streams, Types, Actors)
