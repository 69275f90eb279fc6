"""The views of the issues program: the current state of each issue, its short id, and the links to it.

All of them are causal: clones of a log with the same events have the same rows, in whatever order they arrived.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.programs.issues.events import CLAIMS, KIND, TYPES
from everlog.programs.issues.rules import Issue, evolve, uid_of
from everlog.programs.issues.short_ids import bucket_of, is_uid
from everlog.programs.leases import Lease
from everlog.views.view import CAUSAL, Text, View


class Current(View):
    """One row per issue: its text and its state."""

    name = "issues.current"
    types = tuple(one for one in TYPES if one not in CLAIMS.types)
    kind = KIND
    order = CAUSAL
    uses = (Issue, evolve)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        before = msgspec.convert(state, Issue) if state else Issue(uid=uid_of(event))
        after: dict[str, Any] = msgspec.to_builtins(evolve(before, event))
        return after

    def text(self, state: dict[str, Any]) -> Text | None:
        if not state["created_at"] or state["deleted"]:
            return None
        return Text(title=state["title"], body=state["body"], part=state["scope"])


class ShortIds(View):
    """One row for all issues that end on the same four characters: who they are, also after a purge."""

    name = "issues.short_ids"
    types = ("issue.created", "issue.purged")
    order = CAUSAL
    uses = (bucket_of,)

    def key(self, event: Event) -> str | None:
        uid = uid_of(event)
        return bucket_of(uid) if is_uid(uid) else None

    def initial(self) -> dict[str, Any]:
        return {"issues": {}, "purged": {}}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        uid, payload = uid_of(event), event.payload
        if event.type == "issue.purged":
            gone = {"scope": event.scope, "short_id": payload["short_id"]}
            return {**state, "purged": {**state["purged"], uid: gone}}
        made = {"scope": event.scope, "short_id": payload["short_id"], "lamport": event.lamport, "event": event.id}
        return {**state, "issues": {**state["issues"], uid: made}}


class Backlinks(View):
    """One row per issue: which others point to it."""

    name = "issues.backlinks"
    types = ("issue.linked", "issue.unlinked")
    order = CAUSAL

    def key(self, event: Event) -> str | None:
        target = event.payload.get("target")
        return f"{KIND}/{target['uid']}" if isinstance(target, dict) else None

    def initial(self) -> dict[str, Any]:
        return {"links": []}

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        payload = event.payload
        mine = {"kind": payload["kind"], "uid": payload["source"]["uid"], "short_id": payload["source"]["short_id"]}
        others = [one for one in state["links"] if (one["kind"], one["uid"]) != (mine["kind"], mine["uid"])]
        links = [*others, mine] if event.type == "issue.linked" else others
        return {"links": sorted(links, key=lambda one: (one["kind"], one["uid"]))}


class Claims(View):
    """One row per issue that was claimed: who has it, and until when."""

    name = "issues.claims"
    types = CLAIMS.types
    order = CAUSAL
    uses = (Lease,)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        return Lease(**state).after(event).row()


VIEWS = (Current, ShortIds, Backlinks, Claims)
