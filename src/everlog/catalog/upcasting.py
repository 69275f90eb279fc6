"""Convert an old event to the latest version: by the upcasters of its type, one version at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from everlog.catalog.models import name_of
from everlog.core.event import Event
from everlog.errors import SchemaBroken

Upcaster = Callable[[dict[str, Any]], Mapping[str, Any]]
"""Converts the payload of one version to the payload of the next."""

_NONE: Mapping[str, Any] = {}


def brought_up(
    event: Event, latest: int, upcasters: Mapping[int, Upcaster], defaults: Mapping[str, Any] = _NONE
) -> Event:
    """Return the event in the latest version of its type. Raise SchemaBroken, with the step, if an upcaster is
    missing.

    A field that the upcasters leave out gets its default, as in an event that is appended today.
    """
    # A deep copy: an upcaster that changes its argument must not change what a store holds.
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
        payload[name] = msgspec.to_builtins(defaults[name])  # a copy, because the caller may change it
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


def refuse_other_upcaster(
    event_type: str, from_version: int, function: Upcaster, upcasters: Mapping[int, Upcaster]
) -> None:
    """Refuse a second upcaster from the same version of a type."""
    known = upcasters.get(from_version)
    if known is not None and known is not function:
        raise SchemaBroken(
            f"{event_type} has two upcasters from version {from_version}",
            why=f"{name_of(known)} and {name_of(function)}",
            hint="keep one of them",
            type=event_type,
            version=from_version,
        )


def missing_upcasters(latest: Mapping[str, int], upcasters: Mapping[str, Mapping[int, Upcaster]]) -> list[str]:
    """Return the steps between versions without an upcaster."""
    return [
        f"{event_type}: no upcaster leads from version {version} to {version + 1}"
        for event_type, last in sorted(latest.items())
        for version in range(1, last)
        if version not in upcasters.get(event_type, {})
    ]


def idle_upcasters(latest: Mapping[str, int], upcasters: Mapping[str, Mapping[int, Upcaster]]) -> list[str]:
    """Return the upcasters that are never used: beyond the latest model, or of a type without a model."""
    return [
        *(
            f"{event_type}: the upcaster from version {version} leads beyond the latest model"
            for event_type, last in sorted(latest.items())
            for version in sorted(upcasters.get(event_type, {}))
            if version >= last
        ),
        *(
            f"{event_type}: there are upcasters, but no model is registered"
            for event_type in sorted(upcasters.keys() - latest.keys())
        ),
    ]
