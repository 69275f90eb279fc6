"""The questions of the controlplane program. What is outside of `within` does not exist."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from everlog.core.event import Position, Recorded
from everlog.core.query import Query, in_scope
from everlog.programs.command import Question
from everlog.programs.controlplane import rules
from everlog.programs.controlplane.events import TYPES
from everlog.programs.controlplane.paths import no_such, path_of, require_within
from everlog.programs.controlplane.views import AuditDays, Deploys, Places
from everlog.programs.controlplane.views import Desired as DesiredView

if TYPE_CHECKING:
    from everlog.consumers.group import Group
    from everlog.log.log import Log

Row = dict[str, Any]
PAGE = 100

Environment = Annotated[str, Meta(description="The environment, such as acme/shop/prod.")]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
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


class List(Question[list[Row]], frozen=True, kw_only=True):
    """Show orgs, apps and environments: all, or those below a place."""

    verb = "list"
    examples = ("list acme",)
    example: ClassVar[dict[str, Any]] = {"place": "acme"}
    columns = ("place", "kind", "status", "title", "created_at")
    place: Annotated[str, Meta(description="An org or an app (default: all of them).")] = ""

    def answer(self, log: Log, within: str) -> list[Row]:
        if self.place:
            require_within(path_of(self.place), within)
        scope = self.place or within
        own = log.view(Places).get(scope) if scope else None
        rows = [{"place": scope, **own.state}] if own is not None and own.found else []
        below = _below(log.view(Places).items(after=f"{scope}/" if scope else ""), scope)
        return rows + [{"place": key, **state} for key, state in below]


class Desired(Question[Row], frozen=True, kw_only=True):
    """Show what should run in an environment, now or as of a moment."""

    verb = "desired"
    examples = ("desired acme/shop/prod", "desired acme/shop/prod --as-of '#6'")
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod"}
    environment: Environment
    as_of: Annotated[Any, Meta(description="Show the state as of a time, 10m ago, or #1234.")] = None

    def answer(self, log: Log, within: str) -> Row:
        at = path_of(self.environment, "environment")
        require_within(at, within)
        answer = log.view(DesiredView).get(at.scope, as_of=self.as_of)
        if not answer.found:
            why = "it was never created" if self.as_of is None else "it was not there then"
            raise no_such(f"environment {at}", why)
        return {"environment": at.scope, **answer.state}


class DeployHistory(Question[list[Row]], frozen=True, kw_only=True):
    """Show the newest deploys of an environment, the newest last."""

    verb = "deploy history"
    examples = ("deploy history acme/shop/prod",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod"}
    columns = ("id", "status", "artifact", "requested_by", "requested_at")
    environment: Environment
    limit: Annotated[int, Meta(ge=1, le=1_000_000, description="The maximum number of deploys.")] = 20

    def answer(self, log: Log, within: str) -> list[Row]:
        at = path_of(self.environment, "environment")
        require_within(at, within)
        rows = _below(log.view(Deploys).items(after=f"{at.scope}/"), at.scope)
        found = [{"id": key.rpartition("/")[2], **state} for key, state in rows]
        return sorted(found, key=lambda row: (row.get("requested_at", ""), row["id"]))[-self.limit :]


class ShowDeploy(Question[Row], frozen=True, kw_only=True):
    """Show one deploy in full."""

    verb = "deploy show"
    examples = ("deploy show d1",)
    example: ClassVar[dict[str, Any]] = {"deploy": "d1"}
    deploy: Annotated[str, Meta(description="The id of the deploy.")]

    def answer(self, log: Log, within: str) -> Row:
        query = Query(stream=f"deploy/{self.deploy}", types=frozenset(Deploys.types))
        first = next(log.read(query, limit=1), None)
        if first is None or not in_scope(first.event.scope, within):
            raise rules.no_such_deploy(self.deploy)
        answer = log.view(Deploys).get(f"{first.event.scope}/{self.deploy}")
        return {"id": self.deploy, "environment": first.event.scope, **answer.state}


class Audit(Question[list[AuditEntry]], frozen=True, kw_only=True):
    """Show who did what in an org, an app or an environment, in order of position.

    `since` and `until` compare when an event was recorded; with `occurred`, when it happened. The last entry's
    position is the `after` of the next page.
    """

    verb = "audit"
    examples = ("audit acme --since 3d --actor-type service_principal",)
    example: ClassVar[dict[str, Any]] = {
        "place": "acme",
        "since": "2026-11-15T00:00:00Z",
        "actor_type": "service_principal",
    }
    columns = ("position", "occurred_at", "actor", "actor_type", "type", "stream", "payload")
    place: Annotated[str, Meta(description="An org, an app or an environment.")]
    since: Annotated[datetime | None, Meta(description="From this time on: 3d, 2026-11-01.")] = None
    until: Annotated[datetime | None, Meta(description="Before this time.")] = None
    occurred: Annotated[bool, Meta(description="Compare when an event happened, as its writer states it.")] = False
    actor_type: Annotated[
        Literal["user", "service_principal", "system"] | None, Meta(description="Only actors of this type.")
    ] = None
    after: Annotated[int, Meta(ge=0, description="Continue after this position.")] = 0
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None, Meta(description="The maximum number of events.")
    ] = PAGE

    def answer(self, log: Log, within: str) -> list[AuditEntry]:
        require_within(path_of(self.place), within)
        since, until = self.since, self.until
        window = (None, None) if self.occurred else (since, until)
        query = Query(scope=self.place, types=frozenset(TYPES), since=window[0], until=window[1])
        found: list[AuditEntry] = []
        for recorded in log.read(query, after=self.after):
            entry = _entry(recorded)
            if self.occurred and ((since and entry.occurred_at < since) or (until and entry.occurred_at >= until)):
                continue
            if self.actor_type and entry.actor_type != self.actor_type:
                continue
            found.append(entry)
            if self.limit is not None and len(found) >= self.limit:
                break
        return found


class Days(Question[list[Row]], frozen=True, kw_only=True):
    """Show how much was done in an org, day by day."""

    verb = "days"
    examples = ("audit acme --by-day",)
    example: ClassVar[dict[str, Any]] = {"place": "acme"}
    columns = ("day", "events", "actors")
    place: Annotated[str, Meta(description="The org, such as acme.")]

    def answer(self, log: Log, within: str) -> list[Row]:
        at = path_of(self.place, "org")
        require_within(at, within)
        rows = _below(log.view(AuditDays).items(after=f"{at.scope}/"), at.scope)
        return [{"day": key.rpartition("/")[2], **state} for key, state in rows]


QUESTIONS = (List, Desired, DeployHistory, ShowDeploy, Audit, Days)


def consumer(log: Log, place: str, name: str, *, within: str = "") -> Group:
    """Return a consumer of a place's events with its own cursor, such as an agent on a machine or an edge.

    for delivery in consumer(log, "acme/shop/prod", "edge-1").member("edge-1"):
        apply(delivery.event)      # first the effect, which must be safe to repeat
        delivery.ack()             # then the cursor

    One partition keeps everything in the order of the log. A consumer with the same name continues where it was; the
    names of an org are its own.
    """
    from everlog.consumers.group import Group

    at = path_of(place)
    require_within(at, within)
    query = Query(scope=at.scope, types=frozenset(TYPES))
    return Group(log, f"control.{at.org}.{name}", query, key="scope", partitions=1)


def _entry(recorded: Recorded) -> AuditEntry:
    event = recorded.event
    return AuditEntry(
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
    """Yield the rows below a scope, out of rows in order of their keys from there on."""
    return takewhile(lambda row: in_scope(row[0], scope), items)
