"""What can be done with a control plane, for whoever serves people and machines: a command line, a server, a program.

commands.create(log, "acme/shop/prod", EnvironmentCreated(region="eu"), by=By(actor="user:ada", scope="acme"))
asked = commands.deploy(log, "acme/shop/prod", DeployRequested(artifact="shop:1.4.2"), by=By(key="build-17"))
commands.start(log, asked.id, by=By(actor="service:deployer"))

`By.scope` is the fence of the caller: what lies outside of it is not there. An event's own scope is always the place
that it belongs to. A key names one request of an actor in the whole org. What can be asked stands in `asking`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from shlex import quote
from typing import Any

import msgspec

from everlog.core.event import Position, Recorded
from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.domains.controlplane import DOMAIN, parts, rules
from everlog.domains.controlplane.events import (
    DEPLOYS,
    LIFE,
    RELEASES,
    AppCreated,
    DeployRequested,
    EnvironmentCreated,
    OrgCreated,
    RouteSet,
    VolumeAttached,
)
from everlog.domains.controlplane.places import Place, names_environment, place_of, require_name, require_within
from everlog.domains.controlplane.rules import History
from everlog.domains.deciding import NOBODY, By, Done, Looks, Newest, decide, remembering
from everlog.domains.deciding import History as Seen
from everlog.errors import InvalidField, NoSuchSubject
from everlog.log.log import Log

_KINDS: dict[type, str] = {OrgCreated: "org", AppCreated: "app", EnvironmentCreated: "environment"}


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did: to what (a place, a deploy, a host …), and what became of that."""

    id: str
    becomes: str
    done: Done


class _Plan(msgspec.Struct, frozen=True):
    """What a command needs to be decided: where it belongs, what it looks at, and the rule."""

    at: Place
    subject: str
    stream: str
    looks: Sequence[Looks]
    rule: Callable[[History, str], Iterable[Any]]  # of the history and of who acts
    also: Callable[[Seen], Iterable[Recorded]] = lambda seen: ()  # what the rule needs that only the first ones tell


# ---- places


def create(log: Log, place: str, made: OrgCreated | AppCreated | EnvironmentCreated, *, by: By = NOBODY) -> Step:
    """Make an org, an app of an open org, or an environment of an open app."""
    kind = _KINDS[type(made)]

    def plan() -> _Plan:
        at = _place(place, kind, by)
        looks = [_life(at)] if at.around is None else [_life(at), _life(at.around)]
        return _Plan(
            at, str(at), at.stream, looks, lambda history, actor: rules.create(history, at, made, actor=actor)
        )

    return _do(log, by, f"control {kind} create", {"place": place, "made": msgspec.to_builtins(made)}, plan)


def close(log: Log, place: str, *, kind: str = "", reason: str, by: By = NOBODY) -> Step:
    """Give up an org, an app or an environment, once nothing inside is open."""

    def plan() -> _Plan:
        at = _place(place, kind, by)
        looks: list[Looks] = [Query(scope=at.scope, types=frozenset(LIFE))]
        if at.kind == "environment":
            looks.append(_newest(at, DEPLOYS))
        return _Plan(
            at, str(at), at.stream, looks, lambda history, actor: rules.close(history, at, actor=actor, reason=reason)
        )

    return _do(log, by, "control close", {"place": place, "reason": reason}, plan)


# ---- deploys


def deploy(log: Log, environment: str, asked: DeployRequested, *, id: str = "", by: By = NOBODY) -> Step:
    """Ask for an artifact to run in an environment. The id names the deploy from then on."""
    name = id or new_id().lower()

    def plan() -> _Plan:
        at = _place(environment, "environment", by)
        stream = f"deploy/{require_name('deploy', name)}"
        looks = [_life(at), _newest(at, DEPLOYS), Query(stream=stream)]
        return _Plan(
            at,
            name,
            stream,
            looks,
            lambda history, actor: rules.request_deploy(history, at, name, asked, actor=actor),
        )

    request = {"environment": environment, "asked": msgspec.to_builtins(asked), "id": id}
    step = _do(log, by, "control deploy request", request, plan)
    # A retry under its key is answered with the deploy that the first attempt asked for.
    return msgspec.structs.replace(step, id=step.done.events[0].stream.partition("/")[2])


def start(log: Log, deploy: str, *, note: str = "", by: By = NOBODY) -> Step:
    """A service has begun with a deploy."""
    return _report(
        log,
        deploy,
        "start",
        {"note": note},
        by,
        lambda history, actor: rules.start(history, deploy, actor=actor, note=note),
    )


def succeed(log: Log, deploy: str, *, seconds: float = 0.0, by: By = NOBODY) -> Step:
    """A deploy runs: its environment should run its artifact from now on."""
    return _report(
        log,
        deploy,
        "succeed",
        {"seconds": seconds},
        by,
        lambda history, actor: rules.succeed(history, deploy, actor=actor, seconds=seconds),
    )


def fail(log: Log, deploy: str, *, error: str, seconds: float = 0.0, by: By = NOBODY) -> Step:
    """A deploy did not come to run, or somebody called it off."""
    return _report(
        log,
        deploy,
        "fail",
        {"error": error, "seconds": seconds},
        by,
        lambda history, actor: rules.fail(history, deploy, error=error, seconds=seconds),
    )


def roll_back(log: Log, deploy: str, *, reason: str, to: str | None = None, by: By = NOBODY) -> Step:
    """Let an environment run again what the deploy `to` brought; without it, what it ran before this deploy.

    An empty `to` means that nothing should run there.
    """

    def plan() -> _Plan:
        at, stream = _place_of_deploy(log, deploy, by)
        target = require_name("deploy", to) if to else ""

        def also(seen: Seen) -> Iterable[Recorded]:
            nonlocal target
            if to is None:  # asked here, where nothing is newer than what is decided on
                target = _before(log, at, deploy, upto=seen.upto)
            return seen.also(Query(stream=f"deploy/{target}", scope=at.scope)) if target else ()

        looks = [Query(stream=stream), _newest(at, DEPLOYS), _newest(at, RELEASES)]
        return _Plan(
            at,
            deploy,
            stream,
            looks,
            lambda history, actor: rules.roll_back(history, deploy, to=target, reason=reason),
            also,
        )

    return _do(log, by, "control deploy rollback", {"id": deploy, "to": to, "reason": reason}, plan)


# ---- what an environment has


def set_route(log: Log, host: str, environment: str, wanted: RouteSet, *, by: By = NOBODY) -> Step:
    """Have a host lead to a process of an environment."""

    def plan() -> _Plan:
        try:
            at = _place(environment, "environment", by)
        except InvalidField as error:
            if names_environment(host):  # the one place where the environment does not come first
                error.hint = f"everlog control route set {quote(environment)} {host}"
            raise
        stream = f"route/{require_name('host', host)}"
        looks = [_life(at), Newest(Query(stream=stream))]
        return _Plan(at, host, stream, looks, lambda history, actor: parts.set_route(history, at, host, wanted))

    request = {"host": host, "environment": environment, "wanted": msgspec.to_builtins(wanted)}
    return _do(log, by, "control route set", request, plan)


def remove_route(log: Log, host: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """Let a host go."""
    operation, request = "control route remove", {"host": host, "reason": reason}

    def plan() -> _Plan:
        stream = f"route/{require_name('host', host)}"
        at = _place_of(_made_before(log, stream, operation, request, by) or _newest_of(log, stream), by)
        if at is None:
            raise parts.no_such_route(host)
        looks = [Newest(Query(stream=stream))]
        return _Plan(
            at, host, stream, looks, lambda history, actor: parts.remove_route(history, at, host, reason=reason)
        )

    return _do(log, by, operation, request, plan)


def set_secret(log: Log, environment: str, name: str, *, version_id: str, by: By = NOBODY) -> Step:
    """Give an environment a version of a secret: the version's id, never the value."""
    return _part(
        log,
        environment,
        ("secret", name),
        "control secret set",
        {"version_id": version_id},
        by,
        lambda history, at: parts.set_secret(history, at, name, version_id=version_id),
    )


def remove_secret(log: Log, environment: str, name: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """Take a secret from an environment."""
    return _part(
        log,
        environment,
        ("secret", name),
        "control secret remove",
        {"reason": reason},
        by,
        lambda history, at: parts.remove_secret(history, at, name, reason=reason),
    )


def attach_volume(log: Log, environment: str, name: str, wanted: VolumeAttached, *, by: By = NOBODY) -> Step:
    """Give a process a disk, or a larger one."""
    return _part(
        log,
        environment,
        ("volume", name),
        "control volume attach",
        msgspec.to_builtins(wanted),
        by,
        lambda history, at: parts.attach_volume(history, at, name, wanted),
    )


def detach_volume(log: Log, environment: str, name: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """Take a disk from a process."""
    return _part(
        log,
        environment,
        ("volume", name),
        "control volume detach",
        {"reason": reason},
        by,
        lambda history, at: parts.detach_volume(history, at, name, reason=reason),
    )


def scale(log: Log, environment: str, process: str, *, count: int, by: By = NOBODY) -> Step:
    """Say how many of a process should run."""
    return _part(
        log,
        environment,
        ("scale", process),
        "control scale",
        {"count": count},
        by,
        lambda history, at: parts.scale(history, at, process, count=count),
    )


# ---- inside


def _do(log: Log, by: By, operation: str, request: Any, plan: Callable[[], _Plan]) -> Step:
    actor = by.actor or log.actor
    with remembering(log, by, operation):  # a name of the wrong shape, a place beyond the fence
        planned = plan()

    def decision(seen: Seen) -> Iterable[Any]:
        rules.require_actor(actor, tried="take part in a control plane")
        records = sorted([*seen, *planned.also(seen)], key=lambda recorded: recorded.position)
        return planned.rule([recorded.event for recorded in records], actor)

    request_id = by.request_id or new_id().lower()  # every event of a control plane names its request
    done = decide(
        log,
        DOMAIN,
        looks_at=planned.looks,
        stream=planned.stream,
        by=msgspec.structs.replace(by, scope=planned.at.scope, key_scope=planned.at.org, request_id=request_id),
        operation=operation,
        request=request,
        rule=decision,
    )
    becomes = done.events[-1].type.rpartition(".")[2] if done.records else "unchanged"
    return Step(id=planned.subject, becomes=becomes, done=done)


def _report(
    log: Log, deploy: str, verb: str, said: dict[str, Any], by: By, rule: Callable[[History, str], Iterable[Any]]
) -> Step:
    """What became of a deploy. Only its own events decide."""

    def plan() -> _Plan:
        at, stream = _place_of_deploy(log, deploy, by)
        return _Plan(at, deploy, stream, [Query(stream=stream)], rule)

    return _do(log, by, f"control deploy {verb}", {"id": deploy, **said}, plan)


def _part(
    log: Log,
    environment: str,
    part: tuple[str, str],
    operation: str,
    said: dict[str, Any],
    by: By,
    rule: Callable[[History, Place], Iterable[Any]],
) -> Step:
    """Something that an environment has, on a stream of its own."""
    kind, name = part

    def plan() -> _Plan:
        at = _place(environment, "environment", by)
        stream = at.of(kind, require_name(kind, name))
        # What a volume is follows from all of its few events; of the others the newest says everything.
        own: Looks = Query(stream=stream) if kind == "volume" else Newest(Query(stream=stream))
        return _Plan(at, name, stream, [_life(at), own], lambda history, actor: rule(history, at))

    return _do(log, by, operation, {"environment": environment, kind: name, **said}, plan)


def _place(text: str, kind: str, by: By) -> Place:
    at = place_of(text, kind)
    require_within(at, by.scope)
    return at


def _place_of(recorded: Recorded | None, by: By) -> Place | None:
    """Where an event belongs; None also if that is beyond the fence."""
    if recorded is None:
        return None
    at = place_of(recorded.event.scope, "environment")
    try:
        require_within(at, by.scope)
    except NoSuchSubject:
        return None
    return at


def _newest_of(log: Log, stream: str) -> Recorded | None:
    return next(log.read(Query(stream=stream), limit=1, newest_first=True), None)


def _made_before(log: Log, stream: str, operation: str, request: Any, by: By) -> Recorded | None:
    """What this very request recorded, if it is a retry. A host may belong to another org by now, and a key counts in
    the org in which it was used: so a retry must not be taken for a request to them."""
    if not by.key:
        return None
    for recorded in log.read(Query(stream=stream), newest_first=True):
        if recorded.event.idempotency_key == by.key and _place_of(recorded, by) is not None:
            org = recorded.event.scope.partition("/")[0]
            if log.answered(operation, by.key, request, actor=by.actor, scope=org) is not None:
                return recorded
    return None


def _place_of_deploy(log: Log, deploy: str, by: By) -> tuple[Place, str]:
    stream = f"deploy/{require_name('deploy', deploy)}"
    at = _place_of(next(log.read(Query(stream=stream, types=frozenset(DEPLOYS)), limit=1), None), by)
    if at is None:
        raise rules.no_such_deploy(deploy)
    return at, stream


def _life(at: Place) -> Looks:
    return Query(stream=at.stream, types=frozenset(LIFE))


def _newest(at: Place, types: Sequence[str]) -> Looks:
    return Newest(Query(scope=at.scope, types=frozenset(types)))


def _before(log: Log, at: Place, deploy: str, *, upto: Position) -> str:
    """The deploy whose artifact ran when this one took its place; empty if none did."""
    query, found = Query(scope=at.scope, types=frozenset(RELEASES)), False
    for recorded in log.read(query, upto=upto, newest_first=True):
        event = recorded.event
        if found:
            return rules.runs_after(event)
        found = event.type == "control.deploy.succeeded" and event.stream == f"deploy/{deploy}"
    return ""
