"""What may be done with places and deploys, decided from events alone. Pure: nothing here reads a clock or a log.

A rule gets as `history` only the events that its command looks at; events of another org are never among them. The
rules about what an environment has (hosts, disks and so on) are in `resources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused
from everlog.programs.controlplane.events import (
    DEPLOYS,
    RELEASES,
    AppClosed,
    AppCreated,
    DeployFailed,
    DeployRequested,
    DeployRolledBack,
    DeployStarted,
    DeploySucceeded,
    EnvironmentClosed,
    EnvironmentCreated,
    OrgClosed,
    OrgCreated,
)
from everlog.programs.controlplane.paths import WHERE_DEPLOYS_ARE, ResourcePath, no_such, path_of

History = Sequence[Event]

ACTORS = {"user": "user", "service": "service_principal", "system": "system"}
"""The kinds of actors (`user:ada`, `service:deployer`, `system`), and what seed 003 calls them."""

NEXT = {"requested": ("started", "failed"), "started": ("succeeded", "failed"), "succeeded": ("rolled_back",)}
"""What may follow which status of a deploy. What is not named here is an end."""

_VERBS = {"started": "start", "succeeded": "succeed", "failed": "fail", "rolled_back": "rollback"}


class Deploy(msgspec.Struct, frozen=True, kw_only=True):
    """A deploy as its events leave it."""

    id: str
    environment: str
    status: str
    artifact: str


# ---- who


def actor_type(actor: str) -> str:
    """What an actor is in the words of seed 003; "other" for one that has no business here."""
    return ACTORS.get(actor.partition(":")[0], "other")


def require_actor(actor: str, *, tried: str, allowed: Sequence[str] = tuple(ACTORS)) -> None:
    if actor.partition(":")[0] in allowed:
        return
    forms = ["system" if kind == "system" else f"{kind}:NAME" for kind in allowed]
    raise RuleRefused(
        f"{actor} may not {tried}",
        rule="people ask, services report what became of it, and nobody else takes part",
        tried=f"{tried} as {actor}",
        allowed=forms,
        why=f"it needs one of {', '.join(forms)}",
        hint=f"add --actor {forms[0]}",
    )


# ---- places


def create(
    history: History, place: ResourcePath, made: OrgCreated | AppCreated | EnvironmentCreated, *, actor: str
) -> list[Any]:
    if place.kind == "org":
        require_actor(actor, tried="create an org", allowed=("user", "system"))
    around = place.around
    if around is not None:
        require_open(history, around, tried=f"create {place}")
    status = status_of(history, place)
    if status:
        raise RuleRefused(
            f"the {place.kind} {place} cannot be created",
            rule="a name is given once, so that its history has one meaning",
            tried=f"create {place}",
            why="it is there already" if status == "open" else "there was one, and it is closed",
            hint=f"everlog control list {place}",
            current=status,
        )
    return [made]


def close(history: History, place: ResourcePath, *, actor: str, reason: str) -> list[Any]:
    """The history holds the lives of what is inside, too."""
    require_actor(actor, tried=f"close {place}", allowed=("user", "system"))
    require_open(history, place, tried=f"close {place}")
    inside = sorted(
        {event.scope for event in history if event.scope.startswith(f"{place.scope}/")}
        - {event.scope for event in history if event.type.endswith(".closed")}
    )
    if inside:
        first = max(inside, key=lambda name: name.count("/"))  # which has nothing inside that would be in the way
        raise RuleRefused(
            f"the {place.kind} {place} cannot be closed",
            rule="what is inside is closed first",
            tried=f"close {place}",
            allowed=[f"close {name}" for name in inside],
            why=f"{', '.join(inside)} {'is' if len(inside) == 1 else 'are'} open",
            hint=f'everlog control {path_of(first).kind} close {first} --reason "…"',
        )
    if place.kind == "environment":
        _require_idle(history, place.scope, tried=f"close {place}", way_out=-1)
    closed: dict[str, Any] = {"org": OrgClosed, "app": AppClosed, "environment": EnvironmentClosed}
    return [closed[place.kind](reason=reason)]


def status_of(history: History, place: ResourcePath) -> str:
    """`open`, `closed`, or nothing if there never was such a place."""
    status = ""
    for event in history:
        if event.stream == place.stream:
            status = "closed" if event.type.endswith(".closed") else "open"
    return status


def require_open(history: History, place: ResourcePath, *, tried: str) -> None:
    status = status_of(history, place)
    if not status:
        around = place.around
        error = no_such(f"{place.kind} {place}", "it was never created")
        error.details["tried"] = tried
        error.hint = f"everlog control {place.kind} create {place}"
        error.details["allowed"] = [error.hint, f"everlog control list {around or ''}".rstrip()]
        raise error
    if status == "closed":
        raise RuleRefused(
            f"the {place.kind} {place} is closed",
            rule="in what is closed nothing happens any more",
            tried=tried,
            hint=f"everlog control list {place.org}",
            current=status,
        )


# ---- deploys


def deploy_of(history: History, deploy: str) -> Deploy | None:
    """Return the deploy that a history describes; None if there is none."""
    found: Deploy | None = None
    for event in history:
        if event.stream != f"deploy/{deploy}" or event.type not in DEPLOYS:
            continue
        artifact = event.payload["artifact"] if event.type == "control.deploy.requested" else ""
        found = Deploy(
            id=deploy,
            environment=event.scope,
            status=event.type.rpartition(".")[2],
            artifact=artifact or (found.artifact if found else ""),
        )
    return found


def request_deploy(
    history: History, place: ResourcePath, deploy: str, asked: DeployRequested, *, actor: str
) -> list[Any]:
    tried = f"deploy to {place}"
    require_open(history, place, tried=tried)
    if _is_protected(history, place):
        require_actor(actor, tried=f"deploy to {place}, which is protected", allowed=("user", "system"))
    if deploy_of(history, deploy) is not None:
        raise RuleRefused(
            f"the deploy {deploy} was requested already",
            rule="a deploy is requested once",
            tried=tried,
            hint="leave --id out to get a new one",
        )
    _require_idle(history, place.scope, tried=tried)
    return [asked]


def start(history: History, deploy: str, *, actor: str, note: str = "") -> list[Any]:
    require_actor(actor, tried=f"report on the deploy {deploy}", allowed=("service", "system"))
    _require_next(history, deploy, "started")
    return [DeployStarted(note=note)]


def succeed(history: History, deploy: str, *, actor: str, seconds: float) -> list[Any]:
    require_actor(actor, tried=f"report on the deploy {deploy}", allowed=("service", "system"))
    known = _require_next(history, deploy, "succeeded")
    return [DeploySucceeded(artifact=known.artifact, seconds=seconds)]


def fail(history: History, deploy: str, *, error: str, seconds: float) -> list[Any]:
    _require_next(history, deploy, "failed")
    return [DeployFailed(error=error, seconds=seconds)]


def roll_back(history: History, deploy: str, *, to: str, reason: str) -> list[Any]:
    """The history holds the environment's newest release, its newest deploy, and the one to go back to."""
    known = _require_next(history, deploy, "rolled_back")
    _require_idle(history, known.environment, tried=f"roll {deploy} back")
    running = _running(history, known.environment)
    if running != deploy:
        raise RuleRefused(
            f"the deploy {deploy} cannot be rolled back",
            rule="only what should run now is rolled back",
            tried=f"roll {deploy} back",
            allowed=[f"roll {running} back"] if running else [],
            why=f"{known.environment} should run what {running or 'no deploy'} brought",
            hint=f"everlog control deploy history {known.environment}",
        )
    target = deploy_of(history, to) if to else None
    if to and (target is None or target.environment != known.environment or target.status != "succeeded"):
        raise RuleRefused(
            f"the deploy {deploy} cannot be rolled back to {to}",
            rule="an environment goes back to a deploy that succeeded in it",
            tried=f"roll {deploy} back to {to}",
            why="there is no such one" if target is None else f"{to} is {target.status} in {target.environment}",
            hint=f"everlog control deploy history {known.environment}",
        )
    return [DeployRolledBack(to=to, artifact=target.artifact if target else "", reason=reason)]


def _require_next(history: History, deploy: str, becomes: str) -> Deploy:
    known = deploy_of(history, deploy)
    if known is None:
        raise no_such_deploy(deploy)
    allowed = NEXT.get(known.status, ())
    if becomes not in allowed:
        verbs = [_VERBS[status] for status in allowed]
        raise RuleRefused(
            f"the deploy {deploy} cannot be {becomes}",
            rule="requested, then started, then succeeded or failed; and what succeeded may be rolled back",
            tried=f"{_VERBS[becomes]} {deploy}",
            allowed=verbs,
            why=f"it is {known.status}" + ("" if allowed else ", and nothing follows that"),
            hint=_to_type(verbs[0], deploy) if verbs else f"everlog control deploy show {deploy}",
            current=known.status,
            requested=becomes,
        )
    return known


def _to_type(verb: str, deploy: str) -> str:
    needs = {"fail": ' --error "…"', "rollback": ' --reason "…"'}.get(verb, " --actor service:NAME")
    return f"everlog control deploy {verb} {deploy}{needs}"


def no_such_deploy(deploy: str) -> NoSuchSubject:
    """Return the same refusal for a deploy that never was and for one of another org."""
    return no_such(f"deploy {deploy}", "nothing was requested under this id", hint=WHERE_DEPLOYS_ARE)


def _require_idle(history: History, environment: str, *, tried: str, way_out: int = 0) -> None:
    """The history holds the newest event of the environment's deploys: only one is under way at a time.

    The hint takes the deploy on; with a `way_out` of -1 it calls the deploy off."""
    newest = next((event for event in reversed(history) if _deploys_to(event, environment)), None)
    if newest is None:
        return
    status, deploy = newest.type.rpartition(".")[2], newest.stream.partition("/")[2]
    if status in ("requested", "started"):
        verb = _VERBS[NEXT[status][way_out]]
        raise RuleRefused(
            f"the deploy {deploy} of {environment} is under way",
            rule="an environment has one deploy at a time",
            tried=tried,
            allowed=[f"{_VERBS[after]} {deploy}" for after in NEXT[status]],
            why=f"it is {status}",
            hint=_to_type(verb, deploy),
            current=status,
        )


def _deploys_to(event: Event, scope: str) -> bool:
    return event.type in DEPLOYS and event.scope == scope


def _running(history: History, scope: str) -> str:
    """Return the deploy whose artifact the environment should run."""
    for event in reversed(history):
        if event.type in RELEASES and event.scope == scope:
            return runs_after(event)
    return ""


def runs_after(event: Event) -> str:
    """The deploy that an environment should run what it brought, after one of RELEASES."""
    went_back = event.type == "control.deploy.rolled_back"
    return str(event.payload["to"]) if went_back else event.stream.partition("/")[2]


def _is_protected(history: History, place: ResourcePath) -> bool:
    return any(
        event.stream == place.stream
        and event.type == "control.environment.created"
        and event.payload["protected"] is True
        for event in history
    )
