"""Events of other programs, told apart by their fields, as the fields of ours.

    shape           recognised by                          stream                         id
    spec-kitty      wp_id, to_lane; or wp_id, delta        workpackage/MISSION:WP         event_id
    cli             event_id, lamport_clock, entity_id     ENTITY_TYPE/ENTITY_ID          event_id
    envelope        event_id, aggregate_type, timestamp    AGGREGATE_TYPE/AGGREGATE_ID    event_id
                    of WPCreated with a mission            workpackage/MISSION:WP         event_id
    agents          event_id, metadata, timestamp          source/SOURCE                  event_id
    community       event_id, community_id, wall_clock     community/COMMUNITY_ID         event_id
    control-plane   aggregate_seq, occurred_at             AGGREGATE_TYPE/AGGREGATE_ID    made

Exports of kata are read in `kata.py`, because a line of theirs may need what stood above it.

What has no place in an event of ours becomes a tag `was.NAME`, or if it is no short text, a field of `_imported` in
the payload: nothing is left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from everlog.core.canonical import parse_json
from everlog.core.fields import TEXT_CHARS_MAX
from everlog.core.ids import EventId, parse_id
from everlog.core.names import (
    actor_of,
    finer_than_ours,
    kind_of,
    moment_of,
    moment_of_ns,
    name_of,
    type_of,
)
from everlog.errors import InvalidField, NotCanonical


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """An event of another program, before what it lacks is filled in."""

    type: str
    stream: str
    payload: dict[str, Any]
    actor: str
    id: EventId | None = None
    version: int = 1
    lamport: int | None = None
    occurred_at: datetime | None = None
    scope: str = ""
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    idempotency_key: str = ""
    tags: dict[str, str] = {}
    id_field: str = "event_id"  # what the id is called in the file
    old_id: str = ""  # the id as it stands in the file


@dataclass
class Context:
    """What a line needs besides itself. One per file."""

    new_ids: bool = False  # an id that is no ULID is left out: the event gets a new one
    mission: str = ""  # the mission that the file is about, as far as its lines above say it
    find_mission: Callable[[], str] = lambda: ""  # looks for it in the lines below
    searched: bool = False
    kata: dict[str, Any] = field(default_factory=dict)  # see kata.py

    def mission_of_file(self) -> str:
        if not self.mission and not self.searched:
            self.searched = True  # once: a file that never says it is read to its end
            self.mission = self.find_mission()
        return self.mission


_TAGS_MAX = 24
"""Tags that an import adds, at most; an event has room for a few of its own."""


class NotAnEvent(Exception):
    """A line that is well made and tells of something else: it is counted, by this name, and told."""


class Wrong(Exception):
    """What is wrong with a value, in words for its line."""


class Fields:
    """The fields of a foreign object. Whoever takes one says what it must be; what nobody took is kept too."""

    def __init__(self, found: Mapping[str, Any], context: Context | None = None) -> None:
        self._left = dict(found)
        self.context = context or Context()
        self.id_field, self.old_id = "event_id", ""
        self.tags: dict[str, str] = {}

    def text(self, name: str, default: str | None = None) -> str:
        value = self._left.pop(name, None)
        if value is None or value == "":
            if default is None:
                raise Wrong(f"it has no {name}")
            return default
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise Wrong(f"{name} is a {type(value).__name__}, not a text")
        return str(value)

    def number(self, name: str, default: int | None = None) -> int:
        value = self._left.pop(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Wrong(f"{name} is not a whole number")
        return value

    def object(self, name: str, default: dict[str, Any] | None = None) -> dict[str, Any]:
        value = self._left.pop(name, default)
        if not isinstance(value, dict):
            raise Wrong(f"{name} is not an object")
        return dict(value)

    def has(self, name: str) -> bool:
        return self._left.get(name) is not None

    def take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def json_object(self, name: str) -> dict[str, Any]:
        """An object, or the text of one."""
        value = self._left.pop(name, None) or {}
        try:
            found = parse_json(value) if isinstance(value, str) else value
        except NotCanonical as error:
            raise Wrong(f"{name}: {error.reason}") from None
        if not isinstance(found, dict):
            raise Wrong(f"{name} is not an object")
        return dict(found)

    def type(self, name: str) -> str:
        text = self.text(name)
        if type_of(text) != text:
            self.tags["was." + name] = text
        return type_of(text)

    def id(self, name: str) -> EventId | None:
        """Return the id, or None if it is not an id and a new one is wanted; then a tag keeps it."""
        self.old_id = text = self.text(name)
        self.id_field = name
        try:
            return parse_id(text)
        except InvalidField:
            if not self.context.new_ids:
                raise Wrong(f"{name} {text[:60]!r} is neither a ULID nor a UUID; --new-ids replaces it") from None
        self.tags["was." + name] = short_text(text)
        return None

    def moment(self, name: str) -> datetime:
        text = self.text(name)
        try:
            found = moment_of(text)
        except ValueError:
            raise Wrong(f"{name} {text[:60]!r} is not a time in ISO 8601") from None
        if finer_than_ours(text):
            self.tags["was." + name] = text
        return found

    def version(self, name: str) -> int:
        """A version of ours counts from 1; another spelling, such as 5.0.0, is kept as it was."""
        value = self._left.get(name, 1)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            self._left.pop(name, None)
            return value
        return 1

    def scope(self, *names: str) -> str:
        """A path of the fields that are there; one that is missing ends it."""
        parts: list[str] = []
        for name in names:
            if not self._left.get(name):
                break
            parts.append(name_of(self.text(name)))
        return "/".join(parts)

    def rest(self) -> dict[str, Any]:
        """Everything that nobody took."""
        found, self._left = self._left, {}
        return found

    def keep_rest(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The payload, with what nobody took beside it: as tags if it is short, else under `_imported`."""
        odd = {}
        for name, value in self.rest().items():
            if value is None:
                continue
            tag = "was." + name.lower()
            text = value if isinstance(value, str) else str(value) if type(value) is int else ""
            fits = len(text) <= TEXT_CHARS_MAX and text.isprintable() and _is_tag(tag) and len(self.tags) < _TAGS_MAX
            if text and fits and tag not in self.tags:
                self.tags[tag] = text
            else:
                odd[name] = value
        if not odd:
            return payload
        if "_imported" in payload:
            raise Wrong("the payload has a field _imported already")
        return {**payload, "_imported": odd}


def short_text(text: str) -> str:
    """Return a text that fits into a tag: the whole if it does, else its beginning and its SHA-256."""
    if len(text) <= TEXT_CHARS_MAX and text.isprintable():
        return text
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
    start = "".join(character for character in text[:100] if character.isprintable())
    return f"{start}… sha256:{digest}"


def _is_tag(name: str) -> bool:
    return len(name) <= 64 and name.isascii() and all(c.isalnum() or c in "_.-" for c in name)


def foreign_of(found: Mapping[str, Any], context: Context | None = None) -> tuple[str, Foreign]:
    """The shape of an object and its event; Wrong if it is of no known shape."""
    for shape, (needed, read) in SHAPES.items():
        if needed <= found.keys():
            return shape.partition(" ")[0], read(Fields(found, context))
    named = ", ".join(sorted(map(str, found))[:12])
    raise Wrong(f"it is of no known shape; its fields are {named or 'none'}")


# ---- each shape


def _spec_kitty(fields: Fields) -> Foreign:
    """A line of status.events.jsonl; the lane it came from and went to are what it says."""
    mission = fields.text("mission_slug", "") or fields.text("feature_slug", "")
    fields.context.mission = mission or fields.context.mission
    return _of_package(fields, "workpackage.status_changed", mission)


def _annotation(fields: Fields) -> Foreign:
    """A line that adds to what is known of a work package, and moves it nowhere. It does not say its mission."""
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


def finish(fields: Fields, *, payload: dict[str, Any], **known: Any) -> Foreign:
    payload = fields.keep_rest(payload)
    return Foreign(payload=payload, tags=fields.tags, id_field=fields.id_field, old_id=fields.old_id, **known)


def renamed(foreign: Foreign, new_of: Callable[[str], str]) -> Foreign:
    """Return the event with its references to other events replaced where those got new ids."""
    changed: dict[str, Any] = {}
    for name in ("causation_id", "correlation_id"):
        old = getattr(foreign, name)
        if old and (new := new_of(old)) != old:
            changed[name] = new
    after = foreign.payload.get("after") if foreign.type == "WPStatusChanged" else None
    if isinstance(after, list):
        known = [new_of(one) if isinstance(one, str) else one for one in after]
        if known != after:
            changed["payload"] = {**foreign.payload, "after": known}
    return msgspec.structs.replace(foreign, **changed) if changed else foreign


def _texts(tags: Mapping[str, Any]) -> dict[str, str]:
    if not all(isinstance(value, str) for value in tags.values()):
        raise Wrong("a tag's value is not a text")
    return dict(tags)


# In this order: the first whose fields are all there.
SHAPES: dict[str, tuple[frozenset[str], Callable[[Fields], Foreign]]] = {
    "spec-kitty": (frozenset({"event_id", "wp_id", "to_lane"}), _spec_kitty),
    "spec-kitty annotation": (frozenset({"event_id", "wp_id", "delta"}), _annotation),
    "cli": (frozenset({"event_id", "event_type", "lamport_clock", "entity_id"}), _cli),
    "community": (frozenset({"event_id", "lamport", "wall_clock", "community_id"}), _community),
    "control-plane": (frozenset({"aggregate_type", "aggregate_id", "aggregate_seq", "occurred_at"}), _control_plane),
    "envelope": (frozenset({"event_id", "event_type", "aggregate_type", "aggregate_id", "timestamp"}), _envelope),
    "agents": (frozenset({"event_id", "event_type", "timestamp", "metadata"}), _agents),
}
