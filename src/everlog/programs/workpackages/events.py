"""What happens to features and their work packages. Streams: `featurespec/SLUG` and `workpackage/ID`.

The names of types and fields are those that the seed's program writes, so that both can share a log. Its events have
version 1 and may lack any field; ours have version 2 where they have more fields.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from everlog.catalog.catalog import Catalog
from everlog.programs import leases

CATALOG = Catalog()
KIND, SPEC_KIND = "workpackage", "featurespec"

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,199}$"
Id = Annotated[str, Meta(pattern=ID_PATTERN, description="an id without spaces, such as WP03")]
Slug = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,199})?$",
        description="a slug without spaces, such as 025-event-log",
    ),
]
Title = Annotated[str, Meta(min_length=1, max_length=300)]
Text = Annotated[str, Meta(max_length=2_000)]
Lane = Literal["planned", "doing", "for_review", "done"]
Verdict = Literal["pending", "passed", "failed"]

LANES: tuple[Lane, ...] = ("planned", "doing", "for_review", "done")


@CATALOG.event("SpecCreated")
class Specified(msgspec.Struct, frozen=True, kw_only=True):
    """A feature is described, and work on it can be planned."""

    feature_slug: Id
    title: Title
    mission: Text = ""


@CATALOG.event("WPCreated", version=1)
class CreatedV1(msgspec.Struct, frozen=True, kw_only=True):
    """A work package is planned."""

    work_package_id: str = ""
    title: str = ""
    dependencies: list[str] = []


@CATALOG.event("WPCreated", version=2)
class Created(msgspec.Struct, frozen=True, kw_only=True):
    """A work package is planned: for a feature, with what it depends on and what is to be done."""

    work_package_id: Id
    title: Title
    feature_slug: Slug = ""
    dependencies: list[Id] = []
    subtasks: list[Title] = []


@CATALOG.upcaster("WPCreated", from_version=1)
def say_the_feature_and_the_subtasks(old: dict[str, Any]) -> dict[str, Any]:
    """An event of spec-kitty's own log says it in other words, and names other packages without their mission."""
    mission = _text(old.get("mission_slug"))
    needed = [f"{mission}:{one}" if mission else one for one in _texts(old.get("depends_on"))]
    package = _text(old.get("wp_id"))
    return {
        "work_package_id": _text(old.get("work_package_id")) or (f"{mission}:{package}" if mission else package),
        "title": _text(old.get("title")) or _text(old.get("wp_title")),
        "feature_slug": _text(old.get("feature_slug")) or mission,
        "dependencies": _texts(old.get("dependencies")) or needed,
        "subtasks": _texts(old.get("subtasks")),
    }


@CATALOG.event("WPDependenciesChanged")
class Depended(msgspec.Struct, frozen=True, kw_only=True):
    """What a work package depends on is another from now on."""

    work_package_id: Id
    old_dependencies: list[Id] = []
    new_dependencies: list[Id] = []
    reason: Text = ""


@CATALOG.event("WPStatusChanged", version=1)
class MovedV1(msgspec.Struct, frozen=True, kw_only=True):
    """A work package goes to another lane."""

    feature_slug: str = ""
    old_status: str = ""
    new_status: str = ""
    reason: str = ""


@CATALOG.event("WPStatusChanged", version=2)
class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A work package goes to another lane. `after` are the moves that were the last ones when it was decided: so two
    moves of which neither knew of the other can be distinguished from two that follow each other."""

    feature_slug: Slug = ""
    old_status: Literal["", "planned", "doing", "for_review", "done"] = ""
    new_status: Lane
    reason: Text = ""
    after: list[Annotated[str, Meta(max_length=36)]] = []


@CATALOG.upcaster("WPStatusChanged", from_version=1)
def name_the_lanes(old: dict[str, Any]) -> dict[str, Any]:
    return {
        "feature_slug": _text(old.get("feature_slug")),
        "old_status": _lane(old.get("old_status")),
        "new_status": _lane(old.get("new_status")),
        "reason": _text(old.get("reason")),
        "after": [],
    }


MOVES = CATALOG.transitions(
    KIND,
    type="WPStatusChanged",
    field="new_status",
    initial="planned",
    # A move to the left is for rework, and says why.
    allowed={
        "planned": ("doing",),
        "doing": ("for_review", "planned"),
        "for_review": ("done", "doing"),
        "done": ("doing",),
    },
    causal=True,
    also={"workpackage.status_changed": "to_lane"},
)


@CATALOG.event("workpackage.status_changed")
class StatusChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a spec-kitty status.events.jsonl, as it was imported: the package went to another of its lanes."""

    from_lane: str = ""
    to_lane: Annotated[str, Meta(min_length=1, max_length=100)]
    force: bool = False
    reason: str | None = None
    execution_mode: str = ""
    review_ref: Any = None
    review_result: Any = None
    evidence: Any = None
    policy_metadata: Any = None
    mission_id: str = ""


@CATALOG.event("workpackage.annotated")
class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the same file that moves nothing: what else is known of the package, such as its subtasks."""

    delta: dict[str, Any]


@CATALOG.event("WorkspaceCreated")
class Housed(msgspec.Struct, frozen=True, kw_only=True):
    """There is a working tree for a work package."""

    work_package_id: Id
    worktree_path: Annotated[str, Meta(min_length=1, max_length=4_096)]
    branch_name: Text = ""


@CATALOG.event("SubtaskCompleted")
class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """A subtask is checked off. They are counted from 1."""

    work_package_id: Id
    subtask_index: Annotated[int, Meta(ge=0, le=10_000)]
    subtask_text: Text = ""


@CATALOG.event("GateCreated")
class Gated(msgspec.Struct, frozen=True, kw_only=True):
    """A work package must pass this gate before it is done."""

    work_package_id: Id
    gate_type: Annotated[str, Meta(min_length=1, max_length=100)]
    gate_id: Id


@CATALOG.event("GateResultChanged", version=1)
class JudgedV1(msgspec.Struct, frozen=True, kw_only=True):
    """A gate says something else than before."""

    gate_id: str = ""
    old_status: str = ""
    new_status: str = ""
    result_data: Any = None


@CATALOG.event("GateResultChanged", version=2)
class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A gate says something else than before."""

    gate_id: Id
    old_status: Verdict = "pending"
    new_status: Verdict
    result_data: dict[str, Any] = {}


@CATALOG.upcaster("GateResultChanged", from_version=1)
def name_the_verdicts(old: dict[str, Any]) -> dict[str, Any]:
    data = old.get("result_data")
    return {
        "gate_id": _text(old.get("gate_id")),
        "old_status": _verdict(old.get("old_status")),
        "new_status": _verdict(old.get("new_status")),
        "result_data": data if isinstance(data, dict) else {} if data is None else {"data": data},
    }


@CATALOG.event("WPClaimed")
class Claimed(leases.Claimed, frozen=True, kw_only=True):
    """Its actor works on a work package until this moment. A later claim of the same actor extends it."""


@CATALOG.event("WPReleased")
class Released(leases.Released, frozen=True, kw_only=True):
    """A claim of a work package ended: its holder gave it up, or its time had passed and another actor took it."""


CLAIMS = leases.Claims(
    claimed="WPClaimed",
    released="WPReleased",
    made=Claimed,
    ended=Released,
    group="wp",
    free="next",
    shows="status",
)


# ---- other people's words


_LANE_WORDS = {
    "todo": "planned",
    "backlog": "planned",
    "claimed": "doing",
    "in_progress": "doing",
    "review": "for_review",
    "in_review": "for_review",
    "complete": "done",
    "completed": "done",
}
_VERDICT_WORDS = {
    "": "pending",
    "running": "pending",
    "pass": "passed",
    "ok": "passed",
    "success": "passed",
    "succeeded": "passed",
    "fail": "failed",
    "failure": "failed",
    "error": "failed",
}


def _lane(value: Any) -> str:
    """A lane by our name; one that is unknown stays as it is, and is shown."""
    word = _text(value).strip().lower().replace("-", "_").replace(" ", "_")
    return _LANE_WORDS.get(word, word)


def _verdict(value: Any) -> str:
    word = _text(value).strip().lower()
    return _VERDICT_WORDS.get(word, word)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _texts(value: Any) -> list[str]:
    """A list of texts, whatever it was: one may have been left out, or written as `WP01, WP02`."""
    found = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [text for text in (_text(one).strip() for one in found) if text]
