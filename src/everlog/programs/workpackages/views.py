"""The views of the workpackages program: the board, and the features that the packages belong to."""

from __future__ import annotations

from typing import Any

from everlog.core.event import Event
from everlog.programs.leases import Lease
from everlog.programs.workpackages import package
from everlog.programs.workpackages.events import CATALOG, CLAIMS, KIND, SPEC_KIND
from everlog.views.view import CAUSAL, View

_TYPES = tuple(info.type for info in CATALOG.types() if info.type not in CLAIMS.types)


class Board(View):
    """One row per work package: its lane, what it waits for, its subtasks and gates, moves in conflict."""

    name = "workpackages.board"
    types = tuple(name for name in _TYPES if name != "SpecCreated")
    kind = KIND
    order = CAUSAL
    uses = (package,)

    def initial(self) -> dict[str, Any]:
        return package.nothing()

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return package.after(state, event)


class Specs(View):
    """One row per feature: its title and its mission."""

    name = "workpackages.specs"
    types = ("SpecCreated",)
    kind = SPEC_KIND
    order = CAUSAL
    uses = (package.migrated, package.moment)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        if package.migrated(event) and state.get("real"):
            return state
        return {
            "title": str(event.payload.get("title") or ""),
            "mission": str(event.payload.get("mission") or ""),
            "created_at": package.moment(event),
            "created_by": event.actor,
            "real": not package.migrated(event),
        }


class Claims(View):
    """One row per work package that was claimed: who has it, and until when."""

    name = "workpackages.claims"
    types = CLAIMS.types
    order = CAUSAL
    uses = (Lease,)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return Lease(**state).after(event).row()


VIEWS = (Board, Specs, Claims)
