"""Commands about places: orgs, apps and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.programs.command import By
from everlog.programs.controlplane import rules
from everlog.programs.controlplane.acting import (
    Environment,
    PlaneCommand,
    Steps,
    Why,
    closing,
    life,
    place_within,
)
from everlog.programs.controlplane.events import (
    AppCreated,
    EnvironmentCreated,
    OrgCreated,
)

if TYPE_CHECKING:
    from everlog.log.log import Log


class CreatePlace(PlaneCommand, frozen=True, kw_only=True):
    """Create an org, an app of an open org, or an environment of an open app."""

    def made(self) -> tuple[str, str, OrgCreated | AppCreated | EnvironmentCreated]:
        """Return the place, its kind and the payload."""
        raise NotImplementedError

    def steps(self, log: Log, by: By) -> Steps:
        place, kind, made = self.made()
        at = place_within(place, kind, by)
        looks = [life(at)] if at.around is None else [life(at), life(at.around)]
        return Steps(
            at=at,
            subject=str(at),
            stream=at.stream,
            looks=looks,
            rule=lambda events: rules.create(events, at, made, actor=by.actor),
        )

    def fingerprint(self) -> Any:
        place, _, made = self.made()
        return {"place": place, "made": msgspec.to_builtins(made)}


class CreateOrg(CreatePlace, frozen=True, kw_only=True):
    """Create an org."""

    verb = "org create"
    examples = ('org create acme --title "Acme Ltd"',)
    example: ClassVar[dict[str, Any]] = {"org": "acme", "title": "Acme Ltd"}
    org: Annotated[str, Meta(description="The name of the org, such as acme.")]
    title: Annotated[str, Meta(description="A name for people.")] = ""

    def made(self) -> tuple[str, str, OrgCreated]:
        return self.org, "org", OrgCreated(title=self.title)


class CreateApp(CreatePlace, frozen=True, kw_only=True):
    """Create an app of an org."""

    verb = "app create"
    examples = ('app create acme/shop --title "The shop"',)
    example: ClassVar[dict[str, Any]] = {"app": "acme/shop", "title": "The shop"}
    app: Annotated[str, Meta(description="The app, such as acme/shop.")]
    title: Annotated[str, Meta(description="A name for people.")] = ""

    def made(self) -> tuple[str, str, AppCreated]:
        return self.app, "app", AppCreated(title=self.title)


class CreateEnvironment(CreatePlace, frozen=True, kw_only=True):
    """Create an environment of an app."""

    verb = "environment create"
    examples = ("environment create acme/shop/prod --region eu-1 --protected",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod", "region": "eu-1", "protected": True}
    environment: Environment
    region: Annotated[str, Meta(description="Where it runs.")] = ""
    protected: Annotated[bool, Meta(description="Only people may deploy to it, not services.")] = False

    def made(self) -> tuple[str, str, EnvironmentCreated]:
        return self.environment, "environment", EnvironmentCreated(region=self.region, protected=self.protected)


class ClosePlace(PlaneCommand, frozen=True, kw_only=True):
    """Close an org, an app or an environment, once nothing inside is open."""

    operation = "control close"

    def place(self) -> tuple[str, str, str]:
        """Return the place, its kind and the reason."""
        raise NotImplementedError

    def steps(self, log: Log, by: By) -> Steps:
        place, kind, reason = self.place()
        at = place_within(place, kind, by)
        return Steps(
            at=at,
            subject=str(at),
            stream=at.stream,
            looks=closing(at),
            rule=lambda events: rules.close(events, at, actor=by.actor, reason=reason),
        )

    def fingerprint(self) -> Any:
        place, _, reason = self.place()
        return {"place": place, "reason": reason}


class CloseOrg(ClosePlace, frozen=True, kw_only=True):
    """Close an org whose apps are closed. Its history stays."""

    verb = "org close"
    examples = ('org close umbra --reason "moved away"',)
    example: ClassVar[dict[str, Any]] = {"org": "umbra", "reason": "moved away"}
    org: Annotated[str, Meta(description="The name of the org, such as acme.")]
    reason: Why

    def place(self) -> tuple[str, str, str]:
        return self.org, "org", self.reason


class CloseApp(ClosePlace, frozen=True, kw_only=True):
    """Close an app whose environments are closed."""

    verb = "app close"
    examples = ('app close acme/old --reason "replaced by acme/store"',)
    example: ClassVar[dict[str, Any]] = {"app": "acme/old", "reason": "replaced by acme/store"}
    app: Annotated[str, Meta(description="The app, such as acme/shop.")]
    reason: Why

    def place(self) -> tuple[str, str, str]:
        return self.app, "app", self.reason


class CloseEnvironment(ClosePlace, frozen=True, kw_only=True):
    """Close an environment: nothing should run there any more."""

    verb = "environment close"
    examples = ('environment close acme/shop/test --reason "not needed"',)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/test", "reason": "not needed"}
    environment: Environment
    reason: Why

    def place(self) -> tuple[str, str, str]:
        return self.environment, "environment", self.reason
