"""What can be asked of a control plane, within the fence of who asks: what lies beyond it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from typing import Any

import msgspec

from everlog.consumers.group import Group
from everlog.core.event import Position, Recorded
from everlog.core.query import Query, in_scope
from everlog.domains.controlplane import rules
from everlog.domains.controlplane.events import TYPES
from everlog.domains.controlplane.places import no_such, place_of, require_within
from everlog.domains.controlplane.views import Audit, Deploys, Desired, Places
from everlog.log.log import Log
from everlog.views.as_of import Moment

PAGE = 100


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an audit."""

    position: Position
    id: str
    occurred_at: datetime
    received_at: datetime
    actor: str
    actor_type: str
    type: str
    stream: str
    scope: str
    request_id: str
    idempotency_key: str
    payload: dict[str, Any]


def listed(log: Log, place: str = "", *, within: str = "") -> list[dict[str, Any]]:
    """The orgs, apps and environments below a place (all of them without one), by name."""
    if place:
        require_within(place_of(place), within)
    scope = place or within
    own = log.view(Places).get(scope) if scope else None
    rows = [{"place": scope, **own.state}] if own is not None and own.found else []
    below = _below(log.view(Places).items(after=f"{scope}/" if scope else ""), scope)
    return rows + [{"place": key, **state} for key, state in below]


def desired(log: Log, environment: str, *, as_of: Moment | None = None, within: str = "") -> dict[str, Any]:
    """What should run in an environment, now or as of a moment."""
    at = place_of(environment, "environment")
    require_within(at, within)
    answer = log.view(Desired).get(at.scope, as_of=as_of)
    if not answer.found:
        raise no_such(f"environment {at}", "it was never created" if as_of is None else "it was not there then")
    return {"environment": at.scope, **answer.state}


def history(log: Log, environment: str, *, limit: int = PAGE, within: str = "") -> list[dict[str, Any]]:
    """The deploys of an environment, the newest first."""
    at = place_of(environment, "environment")
    require_within(at, within)
    rows = _below(log.view(Deploys).items(after=f"{at.scope}/"), at.scope)
    found = [{"id": key.rpartition("/")[2], **state} for key, state in rows]
    return sorted(found, key=lambda row: (row.get("requested_at", ""), row["id"]), reverse=True)[:limit]


def show(log: Log, deploy: str, *, within: str = "") -> dict[str, Any]:
    """One deploy as it stands."""
    first = next(log.read(Query(stream=f"deploy/{deploy}", types=frozenset(Deploys.types)), limit=1), None)
    if first is None or not in_scope(first.event.scope, within):
        raise rules.no_such_deploy(deploy)
    answer = log.view(Deploys).get(f"{first.event.scope}/{deploy}")
    return {"id": deploy, "environment": first.event.scope, **answer.state}


def audit(
    log: Log,
    place: str,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    occurred: bool = False,
    actor_type: str = "",
    after: int = 0,
    limit: int | None = PAGE,
    within: str = "",
) -> list[Entry]:
    """Who did what in an org (or an app, or an environment) in a window of time, in order of position.

    The window is of the times at which the log learned of it, which nobody but the log says; with `occurred` it is of
    the times at which it is said to have happened. The last entry's position is the `after` of the next page.
    """
    require_within(place_of(place), within)
    window = (None, None) if occurred else (since, until)
    query = Query(scope=place, types=frozenset(TYPES), since=window[0], until=window[1])
    found: list[Entry] = []
    for recorded in log.read(query, after=after):
        entry = _entry(recorded)
        if occurred and ((since and entry.occurred_at < since) or (until and entry.occurred_at >= until)):
            continue
        if actor_type and entry.actor_type != actor_type:
            continue
        found.append(entry)
        if limit is not None and len(found) >= limit:
            break
    return found


def days(log: Log, org: str, *, within: str = "") -> list[dict[str, Any]]:
    """How much was done in an org, day by day."""
    at = place_of(org, "org")
    require_within(at, within)
    rows = _below(log.view(Audit).items(after=f"{at.scope}/"), at.scope)
    return [{"day": key.rpartition("/")[2], **state} for key, state in rows]


def consumer(log: Log, place: str, name: str, *, within: str = "") -> Group:
    """A consumer of a place's events with a cursor of its own, such as an agent on a machine or an edge.

    for delivery in consumer(log, "acme/shop/prod", "edge-1").member("edge-1"):
        apply(delivery.event)      # first the effect, which must bear to be repeated
        delivery.ack()             # then the cursor

    One partition keeps everything in the order of the log. Who asks again under the name goes on where it was; the
    names of an org are its own.
    """
    at = place_of(place)
    require_within(at, within)
    query = Query(scope=at.scope, types=frozenset(TYPES))
    return Group(log, f"control.{at.org}.{name}", query, key="scope", partitions=1)


def _entry(recorded: Recorded) -> Entry:
    event = recorded.event
    return Entry(
        position=recorded.position,
        id=event.id,
        occurred_at=event.occurred_at,
        received_at=recorded.received_at,
        actor=event.actor,
        actor_type=rules.actor_type(event.actor),
        type=event.type,
        stream=event.stream,
        scope=event.scope,
        request_id=event.request_id,
        idempotency_key=event.idempotency_key,
        payload=event.payload,
    )


def _below(items: Iterator[tuple[str, Any]], scope: str) -> Iterator[tuple[str, Any]]:
    """The rows below a scope, out of rows in order of their keys from there on."""
    return takewhile(lambda row: in_scope(row[0], scope), items)
