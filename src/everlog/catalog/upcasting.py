"""Bringing an old event up to date: the upcasters of its type, one version at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from everlog.catalog.models import name_of
from everlog.core.event import Event
from everlog.errors import SchemaBroken

Upcaster = Callable[[dict[str, Any]], Mapping[str, Any]]
"""From the payload of one version to the payload of the next."""

_NONE: Mapping[str, Any] = {}


def brought_up(
    event: Event, latest: int, upcasters: Mapping[int, Upcaster], defaults: Mapping[str, Any] = _NONE
) -> Event:
    """The event at the latest version of its type. SchemaBroken, with the step, where no upcaster leads on.

    A field that the upcasters leave out gets its default, as in an event that is appended today.
    """
    # A copy through and through: an upcaster that changes its argument must not change what a store holds.
    payload: dict[str, Any] = msgspec.to_builtins(event.payload)
    for version in range(event.version, latest):
        upcaster = upcasters.get(version)
        if upcaster is None:
            why, hint = "there is no upcaster for this step", "register one with @catalog.upcaster"
            raise _cannot(event, version, latest, why, hint)
        try:
            payload = dict(upcaster(payload))
        except Exception as error:
            why = f"{name_of(upcaster)} raised {type(error).__name__}: {error}"
            hint = "make the upcaster accept every payload of its version"
            raise _cannot(event, version, latest, why, hint) from error
    for name in defaults.keys() - payload.keys():
        payload[name] = msgspec.to_builtins(defaults[name])  # a copy: whoever gets it may change it
    return msgspec.structs.replace(event, version=latest, payload=payload)


def _cannot(event: Event, version: int, latest: int, why: str, hint: str) -> SchemaBroken:
    return SchemaBroken(
        f"event {event.id} cannot be read: {event.type} version {version} does not lead to version {version + 1}",
        why=why,
        hint=hint,
        type=event.type,
        id=event.id,
        from_version=version,
        to_version=version + 1,
        event_version=event.version,
        latest_version=latest,
    )
