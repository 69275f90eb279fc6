"""Commands that end an issue or bring it back: close, reopen, delete, restore, purge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.core.fields import require_text
from everlog.programs.command import By, Decision, Plan
from everlog.programs.issues import rules
from everlog.programs.issues.acting import IssueCommand, IssueResult, Reason, Reference, one_line
from everlog.programs.issues.events import KIND
from everlog.programs.issues.references import name_of
from everlog.programs.issues.rules import Issue, issue_of, tombstone_of
from everlog.programs.issues.short_ids import Name
from everlog.programs.policy import Policy

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.log.write.draft import Draft, Receipt
    from everlog.programs.perform import History


class Close(IssueCommand, frozen=True, kw_only=True):
    """Close an issue. It stays visible."""

    verb = "close"
    examples = ('close hrac --reason "oiled"',)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "reason": "oiled"}
    issue: Reference
    reason: Annotated[str, Meta(description="How it was resolved.")] = ""

    def asked(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.close(issue, name.short_id, one_line(self.reason))


class Reopen(IssueCommand, frozen=True, kw_only=True):
    """Open a closed issue again."""

    verb = "reopen"
    examples = ('reopen hrac --reason "it squeaks again"',)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "reason": "it squeaks again"}
    issue: Reference
    reason: Annotated[str, Meta(description="Why it is not resolved.")] = ""

    def asked(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.reopen(issue, name.short_id, one_line(self.reason))


# ---- taking one away


class Delete(IssueCommand, frozen=True, kw_only=True):
    """Hide an issue. It can be restored."""

    verb = "delete"
    examples = ('delete hrac --force --confirm "delete hrac"',)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "force": True, "confirm": "delete hrac"}
    issue: Reference
    force: Annotated[bool, Meta(description="Required: without it, nothing is deleted.")] = False
    confirm: Annotated[str | None, Meta(description="The exact words: delete SHORT_ID.")] = None
    reason: Reason = ""

    def asked(self) -> dict[str, Any]:
        return {"reason": self.reason}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        words, reason = self.confirm or "", one_line(self.reason)
        return rules.delete(issue, name.short_id, force=self.force, confirm=words, reason=reason)


class Restore(IssueCommand, frozen=True, kw_only=True):
    """Restore a deleted issue."""

    verb = "restore"
    examples = ("restore hrac",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac"}
    issue: Reference

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.restore(issue, name.short_id)


class Purge(IssueCommand, frozen=True, kw_only=True):
    """Remove an issue permanently, with its comments, labels and links. This cannot be undone.

    Its name stays reserved: no other issue gets it, and anyone who asks for it learns that it was purged.
    """

    policy = Policy(role="append", scope="within", destructive=True, idempotent=False)
    verb = "purge"
    examples = ('purge hrac --reason "erasure request 17" --force --confirm "purge hrac"',)
    example: ClassVar[dict[str, Any]] = {
        "issue": "hrac",
        "reason": "erasure request 17",
        "force": True,
        "confirm": "purge hrac",
    }
    issue: Reference
    reason: Annotated[str, Meta(description="Why; it stays on record.")]
    force: Annotated[bool, Meta(description="Required: without it, nothing is purged.")] = False
    confirm: Annotated[str | None, Meta(description="The exact words: purge SHORT_ID.")] = None

    def asked(self) -> dict[str, Any]:
        return {"reason": one_line(self.reason)}

    def plan(self, log: Log, by: By) -> Plan[IssueResult]:
        plan, why = IssueCommand.plan(self, log, by), one_line(self.reason)
        uid = plan.stream.partition("/")[2]
        name = name_of(log, uid)
        assert name is not None, "the plan has found it"
        stream = ""

        def decide(history: History) -> Iterable[Any]:
            nonlocal stream
            own = [one.event.stream for one in history if one.event.stream.startswith(f"{KIND}/")]
            stream = own[0] if own else ""
            issue = issue_of(uid, (one.event for one in history))
            words = self.confirm or ""
            made = rules.purge(issue, name.short_id, force=self.force, confirm=words, reason=why, events=len(own))
            require_text("reason", why)  # as the purge itself requires, so that a dry run is refused alike
            return made

        def carry_out(drafts: Sequence[Draft], **asked: Any) -> Receipt:
            from everlog.log.write.draft import Receipt

            return Receipt(log.purge(stream, record=drafts, actor=by.actor, reason=why, **asked)[1])

        def result(decision: Decision) -> IssueResult:
            if not decision.records and stream and not by.dry_run:
                # A clone purged it and its record arrived here, but its events stayed.
                log.purge(stream, actor=by.actor, reason=why)
            return plan.result(decision)

        return msgspec.structs.replace(
            plan, stream=tombstone_of(uid), decide=decide, carry_out=carry_out, result=result
        )
