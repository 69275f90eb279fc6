"""What an environment has: hosts, versions of secrets, disks, and how many of a process should run. Pure rules."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused, SecretFound
from everlog.programs.controlplane.events import (
    VERSION_ID,
    RouteRemoved,
    RouteSet,
    ScaleSet,
    SecretRemoved,
    SecretSet,
    VolumeAttached,
    VolumeDetached,
    VolumeGrown,
)
from everlog.programs.controlplane.paths import ResourcePath, no_such
from everlog.programs.controlplane.rules import History, require_open

_VERSION_ID = re.compile(VERSION_ID)


def set_route(history: History, place: ResourcePath, host: str, wanted: RouteSet) -> list[Any]:
    tried = f"route {host} to {place}"
    require_open(history, place, tried=tried)
    last = _last(history, f"route/{host}")
    if last is None or last.type == "control.route.removed":
        return [wanted]
    if last.scope != place.scope:
        ours = last.scope.partition("/")[0] == place.org
        raise RuleRefused(
            f"the host {host} is taken",
            rule="a host leads to one environment",
            tried=tried,
            # Whose it is is nobody's business in another org.
            why=f"it leads to {last.scope}" if ours else "it belongs to somebody else",
            hint=f"everlog control route remove {host}" if ours else f"everlog control list {place.org}",
        )
    return [] if last.payload == msgspec.to_builtins(wanted) else [wanted]


def remove_route(history: History, place: ResourcePath, host: str, *, reason: str) -> list[Any]:
    last = _last(history, f"route/{host}")
    if last is None or last.type == "control.route.removed" or last.scope != place.scope:
        raise no_such_route(host)
    return [RouteRemoved(reason=reason)]


def no_such_route(host: str) -> NoSuchSubject:
    """Return the same refusal for a host that nobody has and for one of another org."""
    hint = "everlog control list for the environments; everlog control desired ENVIRONMENT for its hosts"
    return no_such(f"route for {host}", "no environment has this host", hint=hint)


def set_secret(history: History, place: ResourcePath, name: str, *, version_id: str) -> list[Any]:
    tried = f"set the secret {name} of {place}"
    require_open(history, place, tried=tried)
    if _VERSION_ID.fullmatch(version_id) is None:
        # What was given may be the secret itself: no word of it is repeated or kept.
        raise SecretFound(
            f"the secret {name} of {place} was not set",
            why="what was given is not the id of a version, and may be the value itself",
            hint=f"everlog control secret set {place} {name} --version 3",
            rule="a secret is recorded by the id of its version, never by its value",
            tried=tried,
            allowed=["a number such as 3 or v3", "a UUID", "a ULID", "a path that ends in /versions/N"],
        )
    last = _last(history, place.of("secret", name))
    wanted = SecretSet(version_id=version_id)
    return [] if last is not None and last.payload == msgspec.to_builtins(wanted) else [wanted]


def remove_secret(history: History, place: ResourcePath, name: str, *, reason: str) -> list[Any]:
    last = _last(history, place.of("secret", name))
    if last is None or last.type == "control.secret.removed":
        raise no_such(f"secret {name} of {place}", "it was never set, or it is removed", hint=_shown(place))
    return [SecretRemoved(reason=reason)]


def attach_volume(history: History, place: ResourcePath, name: str, wanted: VolumeAttached) -> list[Any]:
    """The history holds all of the volume's events: what it is, and how large it has become."""
    tried = f"attach the volume {name} of {place}"
    require_open(history, place, tried=tried)
    there = volume_of(history, place.of("volume", name))
    if there is None:
        return [wanted]
    if (there.process, there.mount) != (wanted.process, wanted.mount):
        raise RuleRefused(
            f"the volume {name} of {place} is attached elsewhere",
            rule="a volume is in one place",
            tried=tried,
            why=f"{there.process} has it at {there.mount}",
            hint=f"everlog control volume detach {place} {name}",
        )
    if wanted.size_gb < there.size_gb:
        raise RuleRefused(
            f"the volume {name} of {place} cannot shrink to {wanted.size_gb} GB",
            rule="a volume only grows, because shrinking one loses what is on it",
            tried=tried,
            allowed=[f"{there.size_gb} GB or more"],
            why=f"it has {there.size_gb} GB",
            hint=f"everlog control volume attach {place} {name} --process {there.process} --mount {there.mount}"
            f" --size-gb {there.size_gb}",
        )
    return [] if wanted == there else [VolumeGrown(size_gb=wanted.size_gb)]


def detach_volume(history: History, place: ResourcePath, name: str, *, reason: str) -> list[Any]:
    if volume_of(history, place.of("volume", name)) is None:
        raise no_such_volume(place, name)
    return [VolumeDetached(reason=reason)]


def no_such_volume(place: ResourcePath, name: str) -> NoSuchSubject:
    return no_such(f"volume {name} of {place}", "it is not attached", hint=_shown(place))


def volume_of(history: History, stream: str) -> VolumeAttached | None:
    """A volume as its events leave it; None when it is not attached."""
    found: VolumeAttached | None = None
    for event in history:
        if event.stream != stream:
            continue
        if event.type == "control.volume.attached":
            found = VolumeAttached(**event.payload)
        elif event.type == "control.volume.detached":
            found = None
        elif found is not None:
            found = msgspec.structs.replace(found, size_gb=event.payload["size_gb"])
    return found


def scale(history: History, place: ResourcePath, process: str, *, count: int) -> list[Any]:
    require_open(history, place, tried=f"scale {process} of {place} to {count}")
    last = _last(history, place.of("scale", process))
    return [] if last is not None and last.payload["count"] == count else [ScaleSet(count=count)]


def _last(history: History, stream: str) -> Event | None:
    return next((event for event in reversed(history) if event.stream == stream), None)


def _shown(place: ResourcePath) -> str:
    return f"everlog control desired {place}"
