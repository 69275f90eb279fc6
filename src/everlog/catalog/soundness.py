"""What can be wrong with a catalog itself, whatever events there are: each a sentence that names the event type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlog.catalog.schema import resolve
from everlog.catalog.transitions import Transitions
from everlog.catalog.upcasting import Upcaster


def gaps(latest: Mapping[str, int], upcasters: Mapping[str, Mapping[int, Upcaster]]) -> list[str]:
    """The steps between versions that no upcaster takes."""
    return [
        f"{event_type}: no upcaster leads from version {version} to {version + 1}"
        for event_type, last in sorted(latest.items())
        for version in range(1, last)
        if version not in upcasters.get(event_type, {})
    ]


def idle_upcasters(latest: Mapping[str, int], upcasters: Mapping[str, Mapping[int, Upcaster]]) -> list[str]:
    """The upcasters that nothing is ever brought up by: beyond the latest model, or of a type without one."""
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


def rule_problems(rule: Transitions, schema: Mapping[str, Any] | None) -> list[str]:
    """Where a rule and the payload it is about do not fit; `schema` is None when no model is registered."""
    named = f"the transitions of {rule.kind} by {rule.type}"
    if schema is None:
        return [f"{named}: no model is registered for the type"]
    field = schema.get("properties", {}).get(rule.field)
    if field is None:
        return [f"{named}: the model has no field {rule.field}"]
    choices = resolve(field, schema.get("$defs", {})).get("enum")
    unknown = sorted(rule.states().difference(choices)) if choices else []
    return [f"{named}: the field {rule.field} never says {', '.join(unknown)}"] if unknown else []
