"""Commands about what an environment has: routes, secrets, volumes, and the scale of processes."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.core.query import Newest, Query
from everlog.errors import InvalidField
from everlog.programs.command import By
from everlog.programs.controlplane import resources
from everlog.programs.controlplane.acting import (
    Environment,
    Events,
    PlaneCommand,
    Steps,
    Why,
    latest,
    life,
    made_before,
    newest_of,
    place_of_event,
    place_within,
)
from everlog.programs.controlplane.events import (
    RouteSet,
    VolumeAttached,
)
from everlog.programs.controlplane.paths import (
    ResourcePath,
    names_environment,
    require_name,
)

if TYPE_CHECKING:
    from everlog.log.log import Log


class SetRoute(PlaneCommand, frozen=True, kw_only=True):
    """Route a host to a process of an environment."""

    verb = "route set"
    examples = ("route set shop.example.org acme/shop/prod --process web --port 8080",)
    example: ClassVar[dict[str, Any]] = {
        "host": "shop.example.org",
        "environment": "acme/shop/prod",
        "process": "web",
        "port": 8080,
    }
    host: Annotated[str, Meta(description="The host, such as shop.example.org.")]
    environment: Environment
    process: Annotated[str, Meta(description="The process that answers.")] = "web"
    port: Annotated[int, Meta(ge=1, le=65_535, description="The port that it listens on.")] = 8080

    def wanted(self) -> RouteSet:
        return RouteSet(process=self.process, port=self.port)

    def steps(self, log: Log, by: By) -> Steps:
        try:
            at = place_within(self.environment, "environment", by)
        except InvalidField as error:
            if names_environment(self.host):  # the one place where the environment does not come first
                error.hint = f"everlog control route set {quote(self.environment)} {self.host}"
            raise
        stream = f"route/{require_name('host', self.host)}"
        return Steps(
            at=at,
            subject=self.host,
            stream=stream,
            looks=[life(at), Newest(Query(stream=stream))],
            rule=lambda events: resources.set_route(events, at, self.host, self.wanted()),
        )

    def fingerprint(self) -> Any:
        return {"host": self.host, "environment": self.environment, "wanted": msgspec.to_builtins(self.wanted())}


class RemoveRoute(PlaneCommand, frozen=True, kw_only=True):
    """Remove the route of a host."""

    verb = "route remove"
    examples = ("route remove shop.example.org",)
    example: ClassVar[dict[str, Any]] = {"host": "shop.example.org"}
    host: Annotated[str, Meta(description="The host, such as shop.example.org.")]
    reason: Why = ""

    def steps(self, log: Log, by: By) -> Steps:
        stream = f"route/{require_name('host', self.host)}"
        found = made_before(log, stream, "control route remove", self.fingerprint(), by) or newest_of(log, stream)
        at = place_of_event(found, by)
        if at is None:
            raise resources.no_such_route(self.host)
        return Steps(
            at=at,
            subject=self.host,
            stream=stream,
            looks=[Newest(Query(stream=stream))],
            rule=lambda events: resources.remove_route(events, at, self.host, reason=self.reason),
        )

    def fingerprint(self) -> Any:
        return {"host": self.host, "reason": self.reason}


class ResourceCommand(PlaneCommand, frozen=True, kw_only=True):
    """A command about something that an environment has and that has its own stream."""

    environment: Environment

    def resource(self) -> tuple[str, str]:
        """Return the kind and the name."""
        raise NotImplementedError

    def rule(self, events: Events, at: ResourcePath) -> Iterable[Any]:
        raise NotImplementedError

    def request_fields(self) -> dict[str, Any]:
        """Return what the fingerprint of the request has besides the environment and the name."""
        raise NotImplementedError

    def steps(self, log: Log, by: By) -> Steps:
        kind, name = self.resource()
        at = place_within(self.environment, "environment", by)
        stream = at.of(kind, require_name(kind, name))
        looks, rule = [life(at), latest(kind, stream)], lambda events: self.rule(events, at)
        return Steps(at=at, subject=name, stream=stream, looks=looks, rule=rule)

    def fingerprint(self) -> Any:
        kind, name = self.resource()
        return {"environment": self.environment, kind: name, **self.request_fields()}


class SetSecret(ResourceCommand, frozen=True, kw_only=True):
    """Set the version of a secret that an environment gets. What may be a value is refused and not stored."""

    verb = "secret set"
    examples = ("secret set acme/shop/prod DATABASE_URL --version 3",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod", "name": "DATABASE_URL", "version_id": "3"}
    name: Annotated[str, Meta(description="The name of the secret, such as DATABASE_URL.")]
    version_id: Annotated[str, Meta(description="A number, a UUID, a ULID, or …/versions/N.")]

    def resource(self) -> tuple[str, str]:
        return "secret", self.name

    def request_fields(self) -> dict[str, Any]:
        return {"version_id": self.version_id}

    def rule(self, events: Events, at: ResourcePath) -> Iterable[Any]:
        return resources.set_secret(events, at, self.name, version_id=self.version_id)


class RemoveSecret(ResourceCommand, frozen=True, kw_only=True):
    """Remove a secret from an environment."""

    verb = "secret remove"
    examples = ("secret remove acme/shop/prod DATABASE_URL",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod", "name": "DATABASE_URL"}
    name: Annotated[str, Meta(description="The name of the secret, such as DATABASE_URL.")]
    reason: Why = ""

    def resource(self) -> tuple[str, str]:
        return "secret", self.name

    def request_fields(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def rule(self, events: Events, at: ResourcePath) -> Iterable[Any]:
        return resources.remove_secret(events, at, self.name, reason=self.reason)


class AttachVolume(ResourceCommand, frozen=True, kw_only=True):
    """Attach a disk to a process, or enlarge it."""

    verb = "volume attach"
    examples = ("volume attach acme/shop/prod data --process db --mount /data --size-gb 20",)
    example: ClassVar[dict[str, Any]] = {
        "environment": "acme/shop/prod",
        "name": "data",
        "process": "db",
        "mount": "/data",
        "size_gb": 20,
    }
    name: Annotated[str, Meta(description="The name of the disk, such as data.")]
    process: Annotated[str, Meta(description="The process that has it.")] = "web"
    mount: Annotated[str, Meta(description="Where the process finds it.")]
    size_gb: Annotated[int, Meta(ge=1, le=65_536, description="Its size in GB; it can only grow.")]

    def resource(self) -> tuple[str, str]:
        return "volume", self.name

    def wanted(self) -> VolumeAttached:
        return VolumeAttached(process=self.process, mount=self.mount, size_gb=self.size_gb)

    def request_fields(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self.wanted())
        return found

    def rule(self, events: Events, at: ResourcePath) -> Iterable[Any]:
        return resources.attach_volume(events, at, self.name, self.wanted())


class DetachVolume(ResourceCommand, frozen=True, kw_only=True):
    """Detach a disk from a process."""

    verb = "volume detach"
    examples = ("volume detach acme/shop/prod data",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod", "name": "data"}
    name: Annotated[str, Meta(description="The name of the disk, such as data.")]
    reason: Why = ""

    def resource(self) -> tuple[str, str]:
        return "volume", self.name

    def request_fields(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def rule(self, events: Events, at: ResourcePath) -> Iterable[Any]:
        return resources.detach_volume(events, at, self.name, reason=self.reason)


class Scale(ResourceCommand, frozen=True, kw_only=True):
    """Set how many instances of a process should run."""

    verb = "scale"
    examples = ("scale acme/shop/prod web 3",)
    example: ClassVar[dict[str, Any]] = {"environment": "acme/shop/prod", "process": "web", "count": 3}
    process: Annotated[str, Meta(description="The process, such as web.")]
    count: Annotated[int, Meta(ge=0, le=1_000, description="How many should run.")]

    def resource(self) -> tuple[str, str]:
        return "scale", self.process

    def request_fields(self) -> dict[str, Any]:
        return {"count": self.count}

    def rule(self, events: Events, at: ResourcePath) -> Iterable[Any]:
        return resources.scale(events, at, self.process, count=self.count)
