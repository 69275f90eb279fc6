"""What may not be registered: a version that is none, and anything that contradicts what is registered already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlog.catalog.models import name_of
from everlog.catalog.transitions import Transitions
from everlog.catalog.upcasting import Upcaster
from everlog.errors import SchemaBroken


def require_version(event_type: str, version: int) -> None:
    if type(version) is not int or version < 1:
        raise SchemaBroken(
            f"{event_type} has the version {version!r}",
            why="versions are whole numbers from 1",
            hint="start with version=1",
            type=event_type,
        )


def refuse_other_model(event_type: str, version: int, model: type[Any], models: Mapping[int, type[Any]]) -> None:
    """Another model than the one that the type has for this version."""
    known = models.get(version)
    if known is not None and known is not model:
        raise SchemaBroken(
            f"{event_type} version {version} is registered twice",
            why=f"once as {name_of(known)}, once as {name_of(model)}",
            hint=f"give the new model version={max(models) + 1}, or another type name",
            type=event_type,
            version=version,
        )


def refuse_other_upcaster(
    event_type: str, from_version: int, function: Upcaster, upcasters: Mapping[int, Upcaster]
) -> None:
    """Another upcaster than the one that the type has from this version."""
    known = upcasters.get(from_version)
    if known is not None and known is not function:
        raise SchemaBroken(
            f"{event_type} has two upcasters from version {from_version}",
            why=f"{name_of(known)} and {name_of(function)}",
            hint="keep one of them",
            type=event_type,
            version=from_version,
        )


def refuse_other_rule(rule: Transitions, known: Transitions | None) -> None:
    """A rule that nothing can follow, or another one than is known for the same streams and events."""
    if rule.initial not in rule.allowed and rule.allowed:
        raise SchemaBroken(
            f"the transitions of {rule.kind} start at {rule.initial}, from where nothing is allowed",
            why=f"the states with a way out are {', '.join(rule.allowed)}",
            hint=f"add {rule.initial!r} to allowed, or name another initial state",
            type=rule.type,
        )
    if known is not None and known != rule:
        raise SchemaBroken(
            f"the transitions of {rule.kind} by {rule.type} are given twice",
            why="a stream kind has one rule per event type",
            hint="keep one of them",
            type=rule.type,
        )
