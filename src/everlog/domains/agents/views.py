"""What people ask about agents: what waits for a decision, what a session did, what led to what."""

from __future__ import annotations

from typing import Any

from everlog.core.event import Event
from everlog.domains.agents.events import CATALOG
from everlog.domains.agents.rules import status_after
from everlog.views.view import View

TYPES = tuple(info.type for info in CATALOG.types())


class Commands(View):
    """One row a command: what it is, how it stands, who decided."""

    name = "agents.commands"
    types = TYPES
    uses = (status_after,)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        said = event.payload
        if event.type == "agent.command.proposed":
            state = {name: said[name] for name in ("agent_id", "tool_name", "tool_input", "why", "risk")}
            state |= {"proposed_at": _text(event), "proposed_by": event.actor, "session": event.correlation_id}
        elif event.type in ("agent.command.approved", "agent.command.rejected"):
            state = {
                **state,
                "decided_by": event.actor,
                "decided_because": said.get("reason") or said.get("note", ""),
            }
        elif event.type == "agent.command.executed":
            state = {**state, "exit_code": said["exit_code"], "seconds": said["seconds"]}
        elif event.type == "agent.command.failed":
            state = {**state, "error": said["error"], "seconds": said["seconds"]}
        else:
            state = {**state, "findings": list(said["findings"])}
        return {**state, "status": status_after(event), "changed_at": _text(event)}


class Trace(View):
    """One row a session (correlation id): its steps, in the order of their arrival."""

    name = "agents.trace"
    types = TYPES
    uses = (status_after,)

    def key(self, event: Event) -> str | None:
        return event.correlation_id or None

    def initial(self) -> dict[str, Any]:
        return {"steps": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        step = {
            "id": event.id,
            "caused_by": event.causation_id,
            "command": event.stream.partition("/")[2],
            "status": status_after(event),
            "actor": event.actor,
            "at": _text(event),
            "source_seq": event.origin_seq,
        }
        if event.type == "agent.command.proposed":
            step["tool_name"] = event.payload["tool_name"]
        return {"steps": [*state["steps"], step]}


VIEWS = (Commands, Trace)


def _text(event: Event) -> str:
    return event.occurred_at.isoformat().replace("+00:00", "Z")
