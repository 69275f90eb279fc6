"""Events of other programs, recognized by their fields, as fields of our events.

    shape           recognised by                          stream                         id
    spec-kitty      wp_id, to_lane; or wp_id, delta        workpackage/MISSION:WP         event_id
    cli             event_id, lamport_clock, entity_id     ENTITY_TYPE/ENTITY_ID          event_id
    envelope        event_id, aggregate_type, timestamp    AGGREGATE_TYPE/AGGREGATE_ID    event_id
                    of WPCreated with a mission            workpackage/MISSION:WP         event_id
    agents          event_id, metadata, timestamp          source/SOURCE                  event_id
    community       event_id, community_id, wall_clock     community/COMMUNITY_ID         event_id
    control-plane   aggregate_seq, occurred_at             AGGREGATE_TYPE/AGGREGATE_ID    made

Exports of kata are read in `kata.py`, because a line of them may need earlier lines. `foreign.py` keeps every field
that an event of everlog does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from everlog.core.fields import (
    actor_of,
    kind_of,
    moment_of_ns,
    name_of,
)
from everlog.transfer.foreign import Context, Fields, Foreign, UnknownShape, Wrong, finish


def foreign_of(found: Mapping[str, Any], context: Context | None = None) -> tuple[str, Foreign]:
    """Return the shape of an object and its event; raise Wrong if the shape is not known."""
    for shape, (needed, read) in SHAPES.items():
        if needed <= found.keys():
            return shape.partition(" ")[0], read(Fields(found, context))
    named = ", ".join(sorted(map(str, found))[:12])
    raise UnknownShape(f"it is of no known shape; its fields are {named or 'none'}")


# ---- each shape


def _spec_kitty(fields: Fields) -> Foreign:
    """Read a line of status.events.jsonl: a move from one lane to another."""
    mission = fields.text("mission_slug", "") or fields.text("feature_slug", "")
    fields.context.mission = mission or fields.context.mission
    return _of_package(fields, "workpackage.status_changed", mission)


def _annotation(fields: Fields) -> Foreign:
    """Read a line that adds facts to a work package and does not move it. It does not name its mission."""
    if fields.text("kind", "annotation") != "annotation":
        raise Wrong("kind is not annotation, which is the one with a delta")
    mission = fields.text("mission_slug", "") or fields.context.mission_of_file()
    return _of_package(fields, "workpackage.annotated", mission)


def _of_package(fields: Fields, type: str, mission: str) -> Foreign:
    package = fields.text("wp_id")
    event_id, occurred_at = fields.id("event_id"), fields.moment("at")
    actor, described = _spec_kitty_actor(fields.take("actor"))
    payload = {name: value for name, value in fields.rest().items() if value is not None}
    if described:
        payload["_imported"] = {"actor": described}
    return Foreign(
        type=type,
        stream=package_stream(mission, package),
        scope=name_of(mission),
        actor=actor,
        payload=payload,
        tags=fields.tags,
        id=event_id,
        old_id=fields.old_id,
        occurred_at=occurred_at,
    )


def package_stream(mission: str, package: str) -> str:
    """Return the stream of a work package. Every mission counts its own from WP01."""
    return f"workpackage/{name_of(f'{mission}:{package}' if mission else package)}"


def _spec_kitty_actor(found: Any) -> tuple[str, dict[str, Any] | None]:
    """Return the actor of a line, and the object if it was one: `claude:opus:renata:reviewer` in four fields."""
    if isinstance(found, dict):
        known = {name: value for name, value in found.items() if value not in (None, "")}
        parts = [known[name] for name in ("tool", "model", "profile", "role") if isinstance(known.get(name), str)]
        return actor_of(":".join(parts) or "unknown", "agent"), known
    if found is not None and not isinstance(found, str):
        raise Wrong(f"actor is a {type(found).__name__}, neither a text nor an object")
    return actor_of(found or "unknown", "agent"), None


def _cli(fields: Fields) -> Foreign:
    kind, name = kind_of(fields.text("entity_type", "entity")), name_of(fields.text("entity_id"))
    return finish(
        fields,
        type=fields.type("event_type"),
        stream=f"{kind}/{name}",
        id=fields.id("event_id"),
        version=fields.version("event_version"),
        lamport=fields.number("lamport_clock"),
        occurred_at=fields.moment("timestamp"),
        actor=actor_of(fields.text("actor", "unknown"), "agent"),
        causation_id=fields.text("causation_id", ""),
        correlation_id=fields.text("correlation_id", ""),
        payload=fields.object("payload", {}),
    )


def _envelope(fields: Fields) -> Foreign:
    payload = fields.object("payload", {})
    kind, subject = kind_of(fields.text("aggregate_type")), fields.text("aggregate_id")
    actor, mission = payload.get("actor"), payload.get("mission_slug")
    if not isinstance(mission, str):
        mission = ""
    fields.context.mission = fields.context.mission or mission
    stream = package_stream(mission, subject) if kind == "workpackage" else f"{kind}/{name_of(subject)}"
    given = fields.number("lamport_clock", 0)
    return finish(
        fields,
        type=fields.type("event_type"),
        stream=stream,
        id=fields.id("event_id"),
        version=fields.version("schema_version"),
        lamport=given if given >= 1 else None,
        occurred_at=fields.moment("timestamp"),
        actor=actor_of(actor, "agent") if isinstance(actor, str) and actor else "system",
        causation_id=fields.text("causation_id", ""),
        correlation_id=fields.text("correlation_id", ""),
        scope=fields.scope("project_slug"),
        payload=payload,
    )


def _agents(fields: Fields) -> Foreign:
    inner = Fields(fields.object("metadata"), fields.context)
    moment = fields.number("timestamp")
    try:
        occurred_at = moment_of_ns(moment)
    except OverflowError:
        raise Wrong(f"timestamp {moment} is beyond the year 9999") from None
    fields.tags["was.timestamp"] = str(moment)
    inner.number("timestamp", 0)
    source = inner.text("source")
    tags = inner.object("tags", {})
    causes = {name: inner.text(name, "") for name in ("causation_id", "correlation_id")}
    made = finish(
        fields,
        type=fields.type("event_type"),
        stream=f"source/{name_of(source)}",
        id=fields.id("event_id"),
        version=fields.version("schema_version"),
        occurred_at=occurred_at,
        actor=actor_of(source, "agent"),
        payload=fields.object("payload", {}),
        **causes,
    )
    payload = inner.keep_rest(made.payload)
    return msgspec.structs.replace(made, payload=payload, tags={**made.tags, **inner.tags, **_texts(tags)})


def _community(fields: Fields) -> Foreign:
    community = fields.text("community_id")
    return finish(
        fields,
        type=fields.type("event_type"),
        stream=f"community/{name_of(community)}",
        scope=name_of(community),
        id=fields.id("event_id"),
        version=fields.version("schema_version"),
        lamport=fields.number("lamport"),
        occurred_at=fields.moment("wall_clock"),
        actor="node:" + name_of(fields.text("author")),
        payload=fields.object("data", {}),
    )


def _control_plane(fields: Fields) -> Foreign:
    kind, name = kind_of(fields.text("aggregate_type")), name_of(fields.text("aggregate_id"))
    acting, acted = fields.text("actor_type"), fields.text("actor_id", "")
    acting = {"service_principal": "service"}.get(acting, acting)
    return finish(
        fields,
        type=fields.type("event_type"),
        stream=f"{kind}/{name}",
        version=fields.version("event_version"),
        occurred_at=fields.moment("occurred_at"),
        actor="system" if acting == "system" or not acted else f"{kind_of(acting)}:{name_of(acted)}",
        scope=fields.scope("org_id", "app_id", "env_id"),
        request_id=fields.text("request_id", ""),
        idempotency_key=fields.text("idempotency_key", ""),
        causation_id=fields.text("causation_id", ""),
        correlation_id=fields.text("correlation_id", ""),
        payload=fields.object("payload", {}),
    )


def _texts(tags: Mapping[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in tags.values()):
        raise Wrong("a tag's value is not a text")
    return dict(tags)


# In this order: the first shape whose fields are all present applies.
SHAPES: dict[str, tuple[frozenset[str], Callable[[Fields], Foreign]]] = {
    "spec-kitty": (frozenset({"event_id", "wp_id", "to_lane"}), _spec_kitty),
    "spec-kitty annotation": (frozenset({"event_id", "wp_id", "delta"}), _annotation),
    "cli": (frozenset({"event_id", "event_type", "lamport_clock", "entity_id"}), _cli),
    "community": (frozenset({"event_id", "lamport", "wall_clock", "community_id"}), _community),
    "control-plane": (frozenset({"aggregate_type", "aggregate_id", "aggregate_seq", "occurred_at"}), _control_plane),
    "envelope": (frozenset({"event_id", "event_type", "aggregate_type", "aggregate_id", "timestamp"}), _envelope),
    "agents": (frozenset({"event_id", "event_type", "timestamp", "metadata"}), _agents),
}
