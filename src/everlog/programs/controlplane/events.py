"""What happens in a control plane. Every event has the place that it belongs to as its scope: `acme/shop/prod`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from everlog.catalog.catalog import Catalog

CATALOG = Catalog()

NAME = r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$"
ARTIFACT = (
    r"^[a-z0-9][a-z0-9._/-]{0,199}(:[0-9]{1,5}/[a-z0-9._/-]{1,200})?(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?$"
)
VERSION_ID = (
    r"^(v?[0-9]{1,6}"
    r"|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|[0-7][0-9A-HJKMNP-TV-Z]{25}"
    r"|[A-Za-z][A-Za-z0-9._/-]{0,160}/versions/[0-9]{1,9})$"
)

Name = Annotated[str, Meta(pattern=NAME)]
Title = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=2_000)]
Reason = Annotated[str, Meta(min_length=1, max_length=2_000)]
Artifact = Annotated[str, Meta(pattern=ARTIFACT, description="an image, such as shop:1.4.2 or shop@sha256:…")]
VersionId = Annotated[str, Meta(pattern=VERSION_ID, description="a number, a UUID, a ULID, or path/versions/N")]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Seconds = Annotated[float, Meta(ge=0)]


# ---- places


@CATALOG.event("control.org.created")
class OrgCreated(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant has come."""

    title: Title = ""


@CATALOG.event("control.org.closed")
class OrgClosed(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant has gone; its history stays."""

    reason: Reason


@CATALOG.event("control.app.created")
class AppCreated(msgspec.Struct, frozen=True, kw_only=True):
    """An org has a new app."""

    title: Title = ""


@CATALOG.event("control.app.closed")
class AppClosed(msgspec.Struct, frozen=True, kw_only=True):
    """An app is given up."""

    reason: Reason


@CATALOG.event("control.environment.created")
class EnvironmentCreated(msgspec.Struct, frozen=True, kw_only=True):
    """An app has a new place to run in. To a protected one only people deploy."""

    region: Annotated[str, Meta(max_length=40)] = ""
    protected: bool = False


@CATALOG.event("control.environment.closed")
class EnvironmentClosed(msgspec.Struct, frozen=True, kw_only=True):
    """An environment is given up: nothing should run there any more."""

    reason: Reason


# ---- deploys


@CATALOG.event("control.deploy.requested", version=1)
class DeployRequestedV1(msgspec.Struct, frozen=True, kw_only=True):
    """An actor wants an artifact to run in an environment."""

    image: Annotated[str, Meta(min_length=1, max_length=200)]
    tag: Annotated[str, Meta(min_length=1, max_length=128)] = "latest"


@CATALOG.event("control.deploy.requested", version=2)
class DeployRequested(msgspec.Struct, frozen=True, kw_only=True):
    """An actor wants an artifact to run in an environment."""

    artifact: Artifact
    note: Text = ""


@CATALOG.upcaster("control.deploy.requested", from_version=1)
def name_the_artifact(old: dict[str, Any]) -> dict[str, Any]:
    return {"artifact": f"{old['image']}:{old.get('tag', 'latest')}", "note": ""}


@CATALOG.event("control.deploy.started")
class DeployStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A service has begun with it."""

    note: Text = ""


@CATALOG.event("control.deploy.succeeded")
class DeploySucceeded(msgspec.Struct, frozen=True, kw_only=True):
    """It runs. From now on the environment should run this artifact."""

    artifact: Artifact
    seconds: Seconds = 0.0


@CATALOG.event("control.deploy.failed")
class DeployFailed(msgspec.Struct, frozen=True, kw_only=True):
    """It did not come to run; the environment should run what it ran before."""

    error: Reason
    seconds: Seconds = 0.0


@CATALOG.event("control.deploy.rolled_back")
class DeployRolledBack(msgspec.Struct, frozen=True, kw_only=True):
    """It ran, and the environment should run what an earlier deploy brought; nothing, if there was none."""

    to: Annotated[str, Meta(max_length=64)]
    artifact: Annotated[str, Meta(max_length=600)]
    reason: Reason


# ---- what an environment has


@CATALOG.event("control.route.set")
class RouteSet(msgspec.Struct, frozen=True, kw_only=True):
    """Requests for a host go to a process of the environment."""

    process: Name
    port: Port


@CATALOG.event("control.route.removed")
class RouteRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """The host is free again."""

    reason: Text = ""


@CATALOG.event("control.secret.set")
class SecretSet(msgspec.Struct, frozen=True, kw_only=True):
    """The environment should get this version of a secret. The value stays in the secret manager."""

    version_id: VersionId


@CATALOG.event("control.secret.removed")
class SecretRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """The environment should get the secret no more."""

    reason: Text = ""


@CATALOG.event("control.volume.attached")
class VolumeAttached(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the environment has a disk."""

    process: Name
    mount: Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._/-]{0,200}$")]
    size_gb: Annotated[int, Meta(ge=1, le=65_536)]


@CATALOG.event("control.volume.grown")
class VolumeGrown(msgspec.Struct, frozen=True, kw_only=True):
    """The disk is larger than it was."""

    size_gb: Annotated[int, Meta(ge=1, le=65_536)]


@CATALOG.event("control.volume.detached")
class VolumeDetached(msgspec.Struct, frozen=True, kw_only=True):
    """The process has the disk no more."""

    reason: Text = ""


@CATALOG.event("control.scale.set")
class ScaleSet(msgspec.Struct, frozen=True, kw_only=True):
    """So many of a process should run."""

    count: Annotated[int, Meta(ge=0, le=1_000)]


TYPES = tuple(info.type for info in CATALOG.types())
LIFE = tuple(name for name in TYPES if name.endswith((".created", ".closed")))
DEPLOYS = tuple(name for name in TYPES if name.startswith("control.deploy."))
RELEASES = ("control.deploy.succeeded", "control.deploy.rolled_back")
