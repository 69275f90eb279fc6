"""Commands about deploys: what is asked for, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.core.event import Recorded
from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.programs.command import By, Decision
from everlog.programs.controlplane import rules
from everlog.programs.controlplane.acting import (
    DeployId,
    Environment,
    Events,
    Note,
    PlaneCommand,
    PlaneResult,
    Seconds,
    Steps,
    Why,
    before_deploy,
    life,
    newest,
    place_of_deploy,
    place_within,
)
from everlog.programs.controlplane.events import (
    DEPLOYS,
    RELEASES,
    DeployRequested,
)
from everlog.programs.controlplane.paths import (
    require_name,
)

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History


class RequestDeploy(PlaneCommand, frozen=True, kw_only=True):
    """Request that an environment runs an image. With --key, a retry is safe."""

    verb = "deploy request"
    examples = ("deploy request acme/shop/prod shop:1.4.2 --key build-17",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod", "artifact": "shop:1.4.2"}
    environment: Environment
    artifact: Annotated[str, Meta(description="The image, such as shop:1.4.2.")]
    note: Note = ""
    id: Annotated[str, Meta(description="The deploy's id (default: a new one).")] = ""

    def requested(self) -> DeployRequested:
        return DeployRequested(artifact=self.artifact, note=self.note)

    def steps(self, log: Log, by: By) -> Steps:
        name, asked = self.id or new_id().lower(), self.requested()
        at = place_within(self.environment, "environment", by)
        stream = f"deploy/{require_name('deploy', name)}"
        return Steps(
            at=at,
            subject=name,
            stream=stream,
            looks=[life(at), newest(at.scope, DEPLOYS), Query(stream=stream)],
            rule=lambda events: rules.request_deploy(events, at, name, asked, actor=by.actor),
        )

    def fingerprint(self) -> Any:
        return {"environment": self.environment, "asked": msgspec.to_builtins(self.requested()), "id": self.id}

    def answer(self, subject: str, decision: Decision) -> PlaneResult:
        # A retry under its key is answered with the deploy that the first attempt asked for.
        return PlaneCommand.answer(self, decision.events[0].stream.partition("/")[2], decision)


class DeployReport(PlaneCommand, frozen=True, kw_only=True):
    """A report on a deploy. Only the events of the deploy decide."""

    deploy: DeployId

    def rule(self, events: Events, actor: str) -> Iterable[Any]:
        raise NotImplementedError

    def request_fields(self) -> dict[str, Any]:
        """Return what the fingerprint of the request has besides the deploy."""
        raise NotImplementedError

    def steps(self, log: Log, by: By) -> Steps:
        at, stream = place_of_deploy(log, self.deploy, by)
        looks = [Query(stream=stream)]
        rule: Callable[[Events], Iterable[Any]] = lambda events: self.rule(events, by.actor)  # noqa: E731
        return Steps(at=at, subject=self.deploy, stream=stream, looks=looks, rule=rule)

    def fingerprint(self) -> Any:
        return {"id": self.deploy, **self.request_fields()}


class StartDeploy(DeployReport, frozen=True, kw_only=True):
    """Report that a service has started a deploy."""

    verb = "deploy start"
    examples = ("deploy start d1 --actor service:deployer",)
    example: ClassVar[dict[str, Any]] = {"deploy": "d1"}
    note: Note = ""

    def request_fields(self) -> dict[str, Any]:
        return {"note": self.note}

    def rule(self, events: Events, actor: str) -> Iterable[Any]:
        return rules.start(events, self.deploy, actor=actor, note=self.note)


class SucceedDeploy(DeployReport, frozen=True, kw_only=True):
    """Report that a deploy succeeded: from now on, its environment should run its image."""

    verb = "deploy succeed"
    examples = ("deploy succeed d1 --seconds 48 --actor service:deployer",)
    example: ClassVar[dict[str, Any]] = {"deploy": "d1", "seconds": 48.0}
    seconds: Seconds = 0.0

    def request_fields(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def rule(self, events: Events, actor: str) -> Iterable[Any]:
        return rules.succeed(events, self.deploy, actor=actor, seconds=self.seconds)


class FailDeploy(DeployReport, frozen=True, kw_only=True):
    """Report that a deploy failed, or cancel it."""

    verb = "deploy fail"
    examples = ('deploy fail d2 --error "the health check timed out" --actor service:deployer',)
    example: ClassVar[dict[str, Any]] = {"deploy": "d2", "error": "the health check timed out"}
    error: Annotated[str, Meta(description="What went wrong.")]
    seconds: Seconds = 0.0

    def request_fields(self) -> dict[str, Any]:
        return {"error": self.error, "seconds": self.seconds}

    def rule(self, events: Events, actor: str) -> Iterable[Any]:
        return rules.fail(events, self.deploy, error=self.error, seconds=self.seconds)


class RollBackDeploy(PlaneCommand, frozen=True, kw_only=True):
    """Return an environment to what it ran before."""

    verb = "deploy rollback"
    examples = ('deploy rollback d1 --reason "orders fail"',)
    example: ClassVar[dict[str, Any]] = {"deploy": "d1", "reason": "orders fail"}
    deploy: DeployId
    to: Annotated[
        str | None, Meta(description="The deploy to return to (default: the one before); empty for nothing.")
    ] = None
    reason: Why

    def steps(self, log: Log, by: By) -> Steps:
        at, stream = place_of_deploy(log, self.deploy, by)
        target = require_name("deploy", self.to) if self.to else ""

        def also(seen: History) -> Iterable[Recorded]:
            nonlocal target
            if self.to is None:  # looked up here, where nothing is newer than what is decided on
                target = before_deploy(log, at.scope, self.deploy, upto=seen.upto)
            return seen.also(Query(stream=f"deploy/{target}", scope=at.scope)) if target else ()

        return Steps(
            at=at,
            subject=self.deploy,
            stream=stream,
            looks=[Query(stream=stream), newest(at.scope, DEPLOYS), newest(at.scope, RELEASES)],
            rule=lambda events: rules.roll_back(events, self.deploy, to=target, reason=self.reason),
            also=also,
        )

    def fingerprint(self) -> Any:
        return {"id": self.deploy, "to": self.to, "reason": self.reason}
