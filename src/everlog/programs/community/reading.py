"""An act: what the rules of a community see of an event, and the reason if it does not count.

An event from a peer was not checked against a model here, and it may claim any clock. So it is checked now, and what
is wrong with it becomes part of the act (`bad`): nothing that a peer can send stops a view.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.errors import InvalidPayload, SchemaBroken
from everlog.programs.community.events import CATALOG, community_of

Place = tuple[int, str]
NEXT: Place = (2**53 - 1, "~")
"""The place of an act that happens now: after everything that is known."""
NEXT_SEQ = 2**53 - 1

ACTS = "said"  # the name in the rows of existing logs
"""The field of a view's state that holds its acts."""

_LATEST = {event_type: latest for event_type, latest, _ in CATALOG.readings()}


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what, from which node, and its place in the node's chain and in the causal order."""

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
    """Why an act does not count, or cannot be recorded now."""

    rule: str
    why: str
    allowed: tuple[str, ...] = ()
    hint: str = ""
    missing: bool = False  # what it is about is not there


def act_of(event: Event) -> Act:
    payload, bad = _readable(event)
    return msgspec.structs.replace(act_by(event), payload=payload, bad=bad)


def act_by(event: Event) -> Act:
    """Return who did something, and from where; for events of any type."""
    return Act(
        id=event.id,
        type=event.type,
        by=event.actor,
        origin=event.origin,
        seq=event.origin_seq,
        lamport=event.lamport,
        at=event.occurred_at.isoformat().replace("+00:00", "Z"),
        payload={},
    )


def act_to_be(payload: Any, *, by: str, origin: str, at: str) -> Act:
    """Return an act that would happen now, here and after everything else; InvalidPayload if it does not fit."""
    lamport, id = NEXT
    event_type = CATALOG.type_of_model(type(payload))
    _, checked = CATALOG.validate(event_type, payload)
    return Act(
        id=id,
        type=event_type,
        by=by,
        origin=origin,
        seq=NEXT_SEQ,
        lamport=lamport,
        at=at,
        payload=checked,
    )


def in_order(events: list[Event]) -> list[Act]:
    """Return the acts of events, in causal order."""
    return [act_of(event) for event in sorted(events, key=lambda event: event.causal_order)]


def ignored(act: Act, no: No) -> dict[str, Any]:
    """Return the record of something that does not count."""
    return {"id": act.id, "type": act.type, "by": act.by, "at": act.at, "why": no.why}


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
    ):  # in our own words: the library's message may differ from node to node
        return {}, f"its payload is not that of {event.type}"
