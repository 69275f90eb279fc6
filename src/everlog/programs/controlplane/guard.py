"""The guard of the controlplane program: every event meets the rules of its command. Its scope is its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from everlog.core.event import Event
from everlog.core.query import Looks, Newest, Query
from everlog.errors import InvalidField, RuleRefused
from everlog.programs.command import By
from everlog.programs.controlplane import events, resources, rules
from everlog.programs.controlplane.acting import before_deploy, closing, latest, life, newest
from everlog.programs.controlplane.events import DEPLOYS, RELEASES
from everlog.programs.controlplane.paths import ResourcePath, path_of, require_name
from everlog.programs.program import Guard

if TYPE_CHECKING:
    from everlog.programs.perform import History

History_ = Sequence[Event]
_OF_PLACES = ("org", "app", "environment")
_OF_ENVIRONMENTS = ("secret", "volume", "scale")


def _looks_at(event: Event) -> list[Looks]:
    _, subject, what = event.type.split(".")
    try:
        at = path_of(event.scope, subject if subject in _OF_PLACES else "environment")
    except InvalidField:
        return []  # it is refused for its scope
    if subject in _OF_PLACES:
        if what == "closed":
            return closing(at)
        return [life(at)] if at.around is None else [life(at), life(at.around)]
    own = Query(stream=event.stream)
    if what == "requested":
        return [life(at), newest(at.scope, DEPLOYS), own]
    if what == "rolled_back":
        return [own, newest(at.scope, DEPLOYS), newest(at.scope, RELEASES)]
    if subject == "deploy":
        return [own]
    return [life(at), Newest(own) if subject == "route" else latest(subject, event.stream)]


def _judge(history: History, event: Event, payload: Any, by: By) -> None:
    rules.require_actor(by.actor, tried="take part in a control plane")
    _, subject, _ = event.type.split(".")
    at = _place(event, subject)
    name = _name(event, subject, at)
    past = [recorded.event for recorded in history]
    match payload:
        case events.OrgCreated() | events.AppCreated() | events.EnvironmentCreated():
            rules.create(past, at, payload, actor=by.actor)
        case events.OrgClosed() | events.AppClosed() | events.EnvironmentClosed():
            rules.close(past, at, actor=by.actor, reason=payload.reason)
        case events.DeployRequested():
            rules.request_deploy(past, at, name, payload, actor=by.actor)
        case events.DeployRolledBack():
            _judge_rollback(history, past, at, name, payload)
        case events.RouteSet():
            resources.set_route(past, at, name, payload)
        case events.RouteRemoved():
            resources.remove_route(past, at, name, reason=payload.reason)
        case _:
            _JUDGES[type(payload)](past, at, name, payload, by.actor)
    if subject == "deploy" and event.type != "control.deploy.requested":
        _require_environment(past, at, name, event)


def _judge_rollback(
    history: History, past: list[Event], at: ResourcePath, name: str, payload: events.DeployRolledBack
) -> None:
    target = history.also(Query(stream=f"deploy/{payload.to}", scope=at.scope)) if payload.to else []
    (made,) = rules.roll_back([*past, *(one.event for one in target)], name, to=payload.to, reason=payload.reason)
    if made.artifact != payload.artifact:
        before = before_deploy(history.log, at.scope, name, upto=history.upto)
        raise RuleRefused(
            f"the deploy {name} cannot be rolled back to {payload.artifact or 'nothing'}",
            rule="a rollback names the artifact of the deploy that it goes back to",
            tried=f"roll {name} back",
            allowed=[made.artifact],
            why=f"{payload.to or 'no deploy'} brought {made.artifact or 'nothing'}",
            hint=f'everlog control deploy rollback {name} --to "{before}" --reason "…"',
        )


def _succeeded(past: History_, at: ResourcePath, name: str, payload: events.DeploySucceeded, actor: str) -> None:
    (made,) = rules.succeed(past, name, actor=actor, seconds=payload.seconds)
    if made.artifact != payload.artifact:
        raise RuleRefused(
            f"the deploy {name} did not bring {payload.artifact}",
            rule="a deploy succeeds with the artifact that was requested",
            tried=f"succeed {name}",
            allowed=[made.artifact],
            why=f"{made.artifact} was requested",
            hint=f"everlog control deploy succeed {name}",
        )


def _grown(past: History_, at: ResourcePath, name: str, payload: events.VolumeGrown, actor: str) -> None:
    there = resources.volume_of(past, at.of("volume", name))
    if there is None:
        raise resources.no_such_volume(at, name)
    wanted = events.VolumeAttached(process=there.process, mount=there.mount, size_gb=payload.size_gb)
    resources.attach_volume(past, at, name, wanted)


def _attached(past: History_, at: ResourcePath, name: str, payload: events.VolumeAttached, actor: str) -> None:
    if resources.attach_volume(past, at, name, payload) != [payload]:
        raise RuleRefused(
            f"the volume {name} of {at} is already attached",
            rule="a volume is attached once, and then it grows",
            tried=f"attach the volume {name} of {at}",
            allowed=["control.volume.grown"],
            why="it is attached there",
            hint=f"everlog control volume attach {at} {name} --mount {payload.mount} --size-gb {payload.size_gb}",
        )


_JUDGES: dict[type[Any], Callable[[History_, ResourcePath, str, Any, str], Any]] = {
    events.DeployStarted: lambda past, at, name, payload, actor: rules.start(past, name, actor=actor),
    events.DeploySucceeded: _succeeded,
    events.DeployFailed: lambda past, at, name, payload, actor: rules.fail(past, name, error="x", seconds=0),
    events.SecretSet: lambda past, at, name, payload, actor: resources.set_secret(
        past, at, name, version_id=payload.version_id
    ),
    events.SecretRemoved: lambda past, at, name, payload, actor: resources.remove_secret(past, at, name, reason=""),
    events.VolumeAttached: _attached,
    events.VolumeGrown: _grown,
    events.VolumeDetached: lambda past, at, name, payload, actor: resources.detach_volume(past, at, name, reason=""),
    events.ScaleSet: lambda past, at, name, payload, actor: resources.scale(past, at, name, count=payload.count),
}


def _place(event: Event, subject: str) -> ResourcePath:
    kind = subject if subject in _OF_PLACES else "environment"
    try:
        return path_of(event.scope, kind)
    except InvalidField as error:
        raise RuleRefused(
            f"{event.type} needs the scope of an {kind}",
            rule="the scope of an event is the place that it belongs to",
            tried=f"append {event.type} to {event.stream}",
            allowed=["acme", "acme/shop", "acme/shop/prod"][_OF_PLACES.index(kind) :][:1],
            why=f"its scope is {event.scope or 'empty'}",
            hint=f"everlog append {event.type} -s {event.stream} --scope ORG/APP/ENVIRONMENT",
        ) from error


def _name(event: Event, subject: str, at: ResourcePath) -> str:
    """Return what an event is about; refused if its stream is not that of its place."""
    name = event.stream.partition("/")[2]
    if subject in _OF_PLACES:
        wanted = at.stream
    elif subject in _OF_ENVIRONMENTS:
        name = name.removeprefix(f"{'.'.join(at.names)}.")
        wanted = at.of(subject, require_name(subject, name))
    else:
        wanted = f"{subject}/{require_name('host' if subject == 'route' else subject, name)}"
    if event.stream != wanted:
        raise RuleRefused(
            f"{event.type} of {at} cannot be recorded on {event.stream}",
            rule="an event is recorded on the stream of its subject",
            tried=f"append {event.type} to {event.stream}",
            allowed=[wanted],
            why=f"its scope is {at}",
            hint=f"everlog append {event.type} -s {wanted} --scope {at}",
        )
    return name


def _require_environment(past: History_, at: ResourcePath, name: str, event: Event) -> None:
    known = rules.deploy_of(past, name)
    if known is not None and known.environment != at.scope:
        raise rules.no_such_deploy(name)


GUARD = Guard(looks_at=_looks_at, judge=_judge)
