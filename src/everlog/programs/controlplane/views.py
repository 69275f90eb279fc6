"""The views of the controlplane program: what should run, what was deployed, how much was done per day, what exists.

Their order is that of the log (positions), as seed 003 has it: a control plane has one log, and its consumers read it
in this order too. Keys begin with the org, so that a tenant's rows are those below its own name.
"""

from __future__ import annotations

from typing import Any

from everlog.core.event import Event
from everlog.programs.controlplane.events import DEPLOYS, LIFE, TYPES
from everlog.programs.controlplane.rules import actor_type
from everlog.views.view import View

_ENVIRONMENTS = tuple(name for name in TYPES if not name.startswith(("control.org.", "control.app.")))


class Desired(View):
    """One row per environment: what should run there."""

    name = "controlplane.desired"
    types = _ENVIRONMENTS

    def key(self, event: Event) -> str | None:
        return event.scope

    def initial(self) -> dict[str, Any]:
        return {
            "status": "open",
            "region": "",
            "protected": False,
            "release": None,
            "deploying": None,
            "processes": {},
            "routes": {},
            "secrets": {},
            "volumes": {},
        }

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        payload = event.payload
        _, subject, what = event.type.split(".")
        if subject == "deploy":
            return _deployed(state, what, event)
        if subject == "environment":
            if what == "closed":
                return {**state, "status": "closed"}
            return {**state, "region": payload["region"], "protected": payload["protected"]}
        part, name = _part_of(subject, event)
        rows = dict(state[part])
        if what in ("removed", "detached"):
            rows.pop(name, None)
        else:
            rows[name] = _wanted(subject, payload, rows.get(name))
        return {**state, part: dict(sorted(rows.items()))}


class Deploys(View):
    """One row per deploy, under its environment: what it brought, how it went, who asked for it."""

    name = "controlplane.deploys"
    types = DEPLOYS

    def key(self, event: Event) -> str | None:
        return f"{event.scope}/{event.stream.partition('/')[2]}"

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        payload, what = event.payload, event.type.rpartition(".")[2]
        if what == "requested":
            state = {
                "artifact": payload["artifact"],
                "note": payload["note"],
                "requested_by": event.actor,
                "requested_at": _text(event),
            }
        elif what == "started":
            state = {**state, "started_at": _text(event), "started_by": event.actor}
        elif what == "succeeded":
            state = {**state, "seconds": payload["seconds"]}
        elif what == "failed":
            state = {**state, "error": payload["error"], "seconds": payload["seconds"]}
        else:
            state = {
                **state,
                "rolled_back_to": payload["to"],
                "rolled_back_by": event.actor,
                "rolled_back_because": payload["reason"],
            }
        return {**state, "status": what, "changed_at": _text(event)}


class AuditDays(View):
    """One row per org and day (of what happened, in UTC): how much was done, of which kind, and by whom."""

    name = "controlplane.audit"
    types = TYPES
    uses = (actor_type,)

    def key(self, event: Event) -> str | None:
        return f"{event.scope.partition('/')[0]}/{event.occurred_at:%Y-%m-%d}"

    def initial(self) -> dict[str, Any]:
        return {"events": 0, "types": {}, "actors": {}, "actor_types": {}}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return {
            "events": state["events"] + 1,
            "types": _counted(state["types"], event.type),
            "actors": _counted(state["actors"], event.actor),
            "actor_types": _counted(state["actor_types"], actor_type(event.actor)),
        }


class Places(View):
    """One row per org, app or an environment: since when it is there, and whether it still is."""

    name = "controlplane.places"
    types = LIFE

    def key(self, event: Event) -> str | None:
        return event.scope

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if event.type.endswith(".closed"):
            return {
                **state,
                "status": "closed",
                "closed_at": _text(event),
                "closed_by": event.actor,
                "closed_because": event.payload["reason"],
            }
        return {
            "kind": event.kind,
            "title": event.payload.get("title") or event.payload.get("region", ""),
            "status": "open",
            "created_at": _text(event),
            "created_by": event.actor,
        }


VIEWS = (Desired, Deploys, AuditDays, Places)


def _deployed(state: dict[str, Any], what: str, event: Event) -> dict[str, Any]:
    payload, deploy = event.payload, event.stream.partition("/")[2]
    if what == "requested":
        return {**state, "deploying": {"deploy": deploy, "artifact": payload["artifact"], "status": what}}
    if what == "started":
        under_way = state["deploying"] or {"deploy": deploy, "artifact": ""}
        return {**state, "deploying": {**under_way, "status": what}}
    if what == "failed":
        return {**state, "deploying": None}
    if what == "succeeded":
        release = {"deploy": deploy, "artifact": payload["artifact"], "since": _text(event)}
        return {**state, "release": release, "deploying": None}
    back = (
        {"deploy": payload["to"], "artifact": payload["artifact"], "since": _text(event)} if payload["to"] else None
    )
    return {**state, "release": back}


def _part_of(subject: str, event: Event) -> tuple[str, str]:
    """Where in the state an event belongs, and under which name."""
    name = event.stream.partition("/")[2]
    if subject == "route":
        return "routes", name
    parts = {"secret": "secrets", "volume": "volumes", "scale": "processes"}
    return parts[subject], name.removeprefix(event.scope.replace("/", ".") + ".")


def _wanted(subject: str, payload: dict[str, Any], before: Any) -> Any:
    if subject == "secret":
        return payload["version_id"]
    if subject == "scale":
        return payload["count"]
    return {**(before or {}), **payload} if subject == "volume" else dict(payload)


def _counted(counts: dict[str, int], name: str) -> dict[str, int]:
    return dict(sorted({**counts, name: counts.get(name, 0) + 1}.items()))


def _text(event: Event) -> str:
    return event.occurred_at.isoformat().replace("+00:00", "Z")
