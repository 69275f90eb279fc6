"""Events of work packages for tests, as a log would hold them."""

from __future__ import annotations

from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.testing import builders


def happened(type: str, *, lamport: int, package: str = "WP03", migrated: bool = False, **payload: Any) -> Event:
    """An event of a work package; each clone of a log is an origin, named by its first letter in `origin`."""
    origin = payload.pop("origin", "a")
    made = builders.event(
        type,
        stream=f"workpackage/{package}",
        payload=payload,
        lamport=lamport,
        actor=payload.pop("actor", "user:ada"),
        tags={"migrated": "true"} if migrated else {},
    )
    return msgspec.structs.replace(made, version=2, origin=f"origin-{origin}")


def created(lamport: int = 1, **payload: Any) -> Event:
    said: dict[str, Any] = {"title": "Index", "feature_slug": "025-log", "dependencies": [], "subtasks": []}
    package = payload.pop("package", "WP03")
    said |= {"work_package_id": package, **payload}
    migrated = said.pop("migrated", False)
    return happened("WPCreated", lamport=lamport, package=package, migrated=migrated, **said)


def moved(before: str, to: str, lamport: int, *, after: list[Event] | None = None, **fields: Any) -> Event:
    known = [event.id for event in after or []]
    return happened("WPStatusChanged", lamport=lamport, old_status=before, new_status=to, after=known, **fields)
