"""The views of the agents program: commands, what waits for a decision, sessions, causes, sources.

All of them use the causal order, so that two merged logs give the same rows, whichever event arrived first.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from everlog.core.event import Event
from everlog.core.ids import one_spelling
from everlog.programs.agents.events import CATALOG
from everlog.programs.agents.rules import WAITING, status_after, validation_status
from everlog.views.view import CAUSAL, View

TYPES = tuple(info.type for info in CATALOG.types())
BUCKETS = 64


def step_of(event: Event) -> dict[str, Any]:
    """Return an event's step in a session or a tree. `source_seq` is its number in the log that recorded it."""
    ours = event.type in TYPES
    step = {
        "id": event.id,
        "caused_by": event.causation_id,
        "type": event.type,
        "stream": event.stream,
        "status": status_after(event) if ours else event.type.rpartition(".")[2],
        "actor": event.actor,
        "at": _text(event),
        "source": event.origin,
        "source_seq": event.origin_seq,
    }
    return {**step, "tool_name": event.payload["tool_name"]} if event.type == "agent.command.proposed" else step


def _text(event: Event) -> str:
    return event.occurred_at.isoformat().replace("+00:00", "Z")


class Commands(View):
    """One row per command: what it is, its status, who decided."""

    name = "agents.commands"
    types = TYPES
    order = CAUSAL
    uses = (status_after, validation_status)

    def initial(self) -> dict[str, Any]:
        """Return the fields that every row has, also where the proposal has not arrived yet."""
        names = ("agent_id", "tool_name", "why", "risk", "proposed_at", "proposed_by", "session")
        return {**dict.fromkeys(names, ""), "tool_input": {}}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        payload = event.payload
        if event.type == "agent.command.proposed":
            state = {name: payload[name] for name in ("agent_id", "tool_name", "tool_input", "why", "risk")}
            state |= {"proposed_at": _text(event), "proposed_by": event.actor, "session": event.correlation_id}
        elif event.type in ("agent.command.approved", "agent.command.rejected"):
            state = {
                **state,
                "decided_by": event.actor,
                "decided_because": payload.get("reason") or payload.get("note", ""),
            }
        elif event.type == "agent.command.executed":
            state = {**state, "exit_code": payload["exit_code"], "seconds": payload["seconds"]}
        elif event.type == "agent.command.failed":
            state = {**state, "error": payload["error"], "seconds": payload["seconds"]}
        else:
            state = {**state, "findings": list(payload["findings"])}
        status = status_after(event)
        return {
            **state,
            "status": status,
            "validation_status": validation_status(status),
            "changed_at": _text(event),
        }


class Pending(View):
    """One row per bucket of 64 (by the name of the stream): the commands there that wait for a decision."""

    name = "agents.pending"
    types = TYPES
    order = CAUSAL
    uses = (status_after,)

    def key(self, event: Event) -> str | None:
        return f"{crc32(event.stream.encode()) % BUCKETS:02}"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        name, status, payload = event.stream.partition("/")[2], status_after(event), event.payload
        waiting = dict(state)
        if event.type == "agent.command.proposed":
            waiting[name] = {
                "agent_id": payload["agent_id"],
                "tool_name": payload["tool_name"],
                "risk": payload["risk"],
                "session": event.correlation_id,
                "proposed_at": _text(event),
            }
        if status in WAITING and name in waiting:
            waiting[name] = {**waiting[name], "status": status}
        else:
            waiting.pop(name, None)
        return dict(sorted(waiting.items()))


class Trace(View):
    """One row per session (correlation id): its steps on all streams, each with its cause."""

    name = "agents.trace"
    order = CAUSAL
    uses = (step_of, status_after)

    def key(self, event: Event) -> str | None:
        return event.correlation_id or None

    def initial(self) -> dict[str, Any]:
        return {"steps": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"steps": [*state["steps"], step_of(event)]}


class Causes(View):
    """One row per cause (an event's id): what it led to, on all streams."""

    name = "agents.causes"
    version = 2  # since then by the id itself, however it is spelled
    order = CAUSAL
    uses = (step_of, status_after, one_spelling)

    def key(self, event: Event) -> str | None:
        return one_spelling(event.causation_id) or None

    def initial(self) -> dict[str, Any]:
        return {"effects": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {"effects": [*state["effects"], step_of(event)]}


class Sources(View):
    """One row per source (an actor): its own count of what it did, from 1, and what that was."""

    name = "agents.sources"
    types = TYPES
    order = CAUSAL

    def key(self, event: Event) -> str | None:
        return event.actor

    def initial(self) -> dict[str, Any]:
        return {"sequence": 0, "did": {}}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        what = event.type.rpartition(".")[2]
        did = {**state["did"], what: state["did"].get(what, 0) + 1}
        return {
            "sequence": state["sequence"] + 1,
            "did": dict(sorted(did.items())),
            "last_id": event.id,
            "last_at": _text(event),
        }


VIEWS = (Commands, Pending, Trace, Causes, Sources)
