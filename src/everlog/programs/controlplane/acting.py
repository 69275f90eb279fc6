"""What the commands of the controlplane program share: their answer, their plan, and what their decisions look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from everlog.core.event import Event, Position, Recorded
from everlog.core.ids import new_id
from everlog.core.query import Looks, Newest, Query
from everlog.errors import NoSuchSubject
from everlog.programs.command import By, Command, Decision, Plan
from everlog.programs.controlplane import rules
from everlog.programs.controlplane.events import (
    DEPLOYS,
    LIFE,
    RELEASES,
)
from everlog.programs.controlplane.paths import (
    ResourcePath,
    path_of,
    require_name,
    require_within,
)

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History

Events = Sequence[Event]

Environment = Annotated[str, Meta(description="The environment, such as acme/shop/prod.")]
DeployId = Annotated[str, Meta(description="The id of the deploy.")]
Note = Annotated[str, Meta(description="A note for the record.")]
Why = Annotated[str, Meta(description="Why.")]
Seconds = Annotated[float, Meta(ge=0, description="How long it took.")]


class PlaneResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command was about (a place, a deploy, a host …), and what became of it."""

    id: str
    becomes: str


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """What a command needs to be decided: where it belongs, what it looks at, and the rule."""

    at: ResourcePath
    subject: str
    stream: str
    looks: Sequence[Looks]
    rule: Callable[[Events], Iterable[Any]]
    also: Callable[[History], Iterable[Recorded]] = lambda seen: ()  # what only the first events make known


class PlaneCommand(Command[PlaneResult], frozen=True, kw_only=True):
    """What all commands of this program share."""

    judged = True

    def steps(self, log: Log, by: By) -> Steps:
        raise NotImplementedError

    def plan(self, log: Log, by: By) -> Plan[PlaneResult]:
        steps = self.steps(log, by)

        def decide(seen: History) -> Iterable[Any]:
            rules.require_actor(by.actor, tried="take part in a control plane")
            records = sorted([*seen, *steps.also(seen)], key=lambda recorded: recorded.position)
            return steps.rule([recorded.event for recorded in records])

        return Plan(
            stream=steps.stream,
            looks_at=steps.looks,
            decide=decide,
            result=lambda decision: self.answer(steps.subject, decision),
            # Every event of a control plane names its request.
            by=msgspec.structs.replace(by, request_id=by.request_id or new_id().lower()),
            scope=steps.at.scope,
            key_scope=steps.at.org,
            confined=False,  # a host of another org is taken, although it cannot be seen
        )

    def answer(self, subject: str, decision: Decision) -> PlaneResult:
        becomes = decision.events[-1].type.rpartition(".")[2] if decision.records else "unchanged"
        return PlaneResult(id=subject, becomes=becomes)


# ---- what a decision looks at; the guard looks at the same


def life(at: ResourcePath) -> Looks:
    return Query(stream=at.stream, types=frozenset(LIFE))


def newest(scope: str, types: Sequence[str]) -> Looks:
    return Newest(Query(scope=scope, types=frozenset(types)))


def closing(at: ResourcePath) -> list[Looks]:
    looks: list[Looks] = [Query(scope=at.scope, types=frozenset(LIFE))]
    return [*looks, newest(at.scope, DEPLOYS)] if at.kind == "environment" else looks


def latest(kind: str, stream: str) -> Looks:
    """What a volume is follows from all of its few events; for the others the newest is enough."""
    return Query(stream=stream) if kind == "volume" else Newest(Query(stream=stream))


def before_deploy(log: Log, scope: str, deploy: str, *, upto: Position) -> str:
    """Return the deploy whose artifact ran when this one took its place; empty if none did."""
    found = False
    for recorded in log.read(Query(scope=scope, types=frozenset(RELEASES)), upto=upto, newest_first=True):
        event = recorded.event
        if found:
            return rules.runs_after(event)
        found = event.type == "control.deploy.succeeded" and event.stream == f"deploy/{deploy}"
    return ""


def place_within(text: str, kind: str, by: By) -> ResourcePath:
    at = path_of(text, kind)
    require_within(at, by.within)
    return at


def place_of_event(recorded: Recorded | None, by: By) -> ResourcePath | None:
    """Return where an event belongs; None also if the caller may not see that."""
    if recorded is None:
        return None
    at = path_of(recorded.event.scope, "environment")
    try:
        require_within(at, by.within)
    except NoSuchSubject:
        return None
    return at


def newest_of(log: Log, stream: str) -> Recorded | None:
    return next(log.read(Query(stream=stream), limit=1, newest_first=True), None)


def made_before(log: Log, stream: str, operation: str, request: Any, by: By) -> Recorded | None:
    """Return what this very request recorded, if it is a retry.

    A host may belong to another org by now, and a key counts in the org in which it was used: so a retry must not be
    taken for a request to them.
    """
    if not by.key:
        return None
    for recorded in log.read(Query(stream=stream), newest_first=True):
        if recorded.event.idempotency_key == by.key and place_of_event(recorded, by) is not None:
            org = recorded.event.scope.partition("/")[0]
            if log.writer.earlier_outcome(operation, by.key, request, actor=by.actor, scope=org) is not None:
                return recorded
    return None


def place_of_deploy(log: Log, deploy: str, by: By) -> tuple[ResourcePath, str]:
    stream = f"deploy/{require_name('deploy', deploy)}"
    at = place_of_event(next(log.read(Query(stream=stream, types=frozenset(DEPLOYS)), limit=1), None), by)
    if at is None:
        raise rules.no_such_deploy(deploy)
    return at, stream
