"""What somebody said: an event as the rules of a community look at it, and why it does not count if it does not.

An event from a peer was never checked against a model here, and it may claim any clock. So whatever is wrong with it
is found now and told with it (`bad`): nothing that a peer can send stops a view.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.domains.community.events import CATALOG, community_of
from everlog.errors import InvalidPayload, SchemaBroken

Place = tuple[int, str]
NEXT: Place = (2**53 - 1, "~")
"""Where what is said now will stand: after everything that is known."""
NEXT_SEQ = 2**53 - 1

_LATEST = {event_type: latest for event_type, latest, _ in CATALOG.readings()}


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Who said what, from which node, and where that stands in the node's chain and in the causal order."""

    id: str
    type: str
    by: str
    origin: str
    seq: int
    lamport: int
    at: str
    payload: dict[str, Any]
    bad: str = ""

    @property
    def place(self) -> Place:
        return (self.lamport, self.id)


class No(msgspec.Struct, frozen=True, kw_only=True):
    """Why something that was said does not count; or why it cannot be said now."""

    rule: str
    why: str
    allowed: tuple[str, ...] = ()
    hint: str = ""
    missing: bool = False  # what it is about is not there


def said_of(event: Event) -> Said:
    payload, bad = _readable(event)
    return Said(
        id=event.id,
        type=event.type,
        by=event.actor,
        origin=event.origin,
        seq=event.origin_seq,
        lamport=event.lamport,
        at=event.occurred_at.isoformat().replace("+00:00", "Z"),
        payload=payload,
        bad=bad,
    )


def saying(payload: Any, *, by: str, origin: str, at: str) -> Said:
    """What would be said now, here and after everything else; InvalidPayload if it makes no sense."""
    lamport, id = NEXT
    event_type = CATALOG.type_of_model(type(payload))
    _, checked = CATALOG.validate(event_type, payload)
    return Said(
        id=id,
        type=event_type,
        by=by,
        origin=origin,
        seq=NEXT_SEQ,
        lamport=lamport,
        at=at,
        payload=checked,
    )


def in_order(events: list[Event]) -> list[Said]:
    """What events say, in causal order."""
    return [said_of(event) for event in sorted(events, key=lambda event: event.causal_order)]


def ignored(said: Said, no: No) -> dict[str, Any]:
    """The record of something that does not count."""
    return {"id": said.id, "type": said.type, "by": said.by, "at": said.at, "why": no.why}


def _readable(event: Event) -> tuple[dict[str, Any], str]:
    community = community_of(event.stream)
    if event.scope != community:
        return {}, f"its scope is {event.scope or 'empty'}, and its stream belongs to {community or 'no community'}"
    if event.version > _LATEST[event.type]:
        return {}, f"version {event.version} of it is not known here"
    try:
        return msgspec.to_builtins(CATALOG.typed(event)), ""
    except (
        SchemaBroken,
        InvalidPayload,
    ):  # in words of our own: what the library says of it may differ from node to node
        return {}, f"its payload is not that of {event.type}"
