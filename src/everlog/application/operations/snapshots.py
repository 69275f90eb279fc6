"""`snapshot.create`, `snapshot.list` and `snapshot.verify`: the saved rows of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.operations.fields import Names
from everlog.application.views.snapshots import SnapshotInfo, create_snapshots, list_snapshots, verify_snapshots
from everlog.log.log import Log
from everlog.programs.command import Action, By, Done, Question
from everlog.programs.policy import Policy
from everlog.views.snapshots.check import Verdict

_PROBLEMS = ("not_found", "damaged", "invalid_settings", "read_only", "other_code")


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """A view that could not be saved, and why."""

    reason: str
    hint: str


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots that were created, and the views that were refused."""

    made: list[SnapshotInfo]
    refused: list[Refused]


class Create(Action[Created], frozen=True, kw_only=True):
    """Bring views up to date and save their rows."""

    verb = "create"
    policy = Policy(role="admin", scope="log", idempotent=False)
    long = True
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"views": ["streams"]}

    views: Names = ()
    full: Annotated[bool, Meta(description="Save all rows, not only those that changed.")] = False

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Created]:
        found = create_snapshots(log, self.views, full=self.full)
        refused = [Refused(reason=str(one), hint=one.hint) for one in found.refused]
        return Done(Created(made=list(found.made), refused=refused))


class List(Question[list[SnapshotInfo]], frozen=True, kw_only=True):
    """Return the snapshots of a view, or of all views, and whether each can be used."""

    verb = "list"
    columns = SnapshotInfo.columns
    policy = Policy(role="read", scope="log")

    view: Annotated[str, Meta(description="Only snapshots of this view.", max_length=100)] = ""

    def answer(self, log: Log, within: str) -> list[SnapshotInfo]:
        return list_snapshots(log, self.view)


class Verify(Action[list[Verdict]], frozen=True, kw_only=True):
    """Verify snapshots: their bytes, a sample of their rows by replay, and the state they lead to."""

    verb = "verify"
    policy = Policy(role="read", scope="log")
    long = True
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"sample": 100}

    views: Names = ()
    sample: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many keys to replay per snapshot; None: all.")
    ] = 100

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[list[Verdict]]:
        return Done(verify_snapshots(log, self.views, sample=self.sample))
