"""Commands about who works on an issue, claim, renew and release, and the question what is ready to be worked on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from everlog.core.event import Event
from everlog.core.query import in_scope
from everlog.errors import RuleRefused
from everlog.programs.command import By, Decision, Plan, Question
from everlog.programs.issues.acting import IssueCommand, IssueResult, Reference
from everlog.programs.issues.events import CLAIMS, KIND
from everlog.programs.issues.questions import COLUMNS, Limit, Project, Row, wanted
from everlog.programs.issues.rules import issue_of, require_there
from everlog.programs.issues.views import Backlinks, Claims, Current
from everlog.programs.leases import Attempt, Lease, Minutes, made_by, now

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History

_PRIORITY = re.compile(r"p([0-9])\Z")


class ClaimResult(IssueResult, frozen=True, kw_only=True):
    """An issue, who has claimed it, and until when."""

    claimed_by: str
    until: str

    def facts(self) -> dict[str, Any]:
        facts = {"id": self.short_id, "uid": self.uid, "becomes": "claimed"}
        return {**facts, "claimed_by": self.claimed_by, "until": self.until}


def attempt(uid: str, events: Iterable[Event], actor: str) -> Attempt:
    """Return what an actor can try with the claim of an issue, from its events."""
    known = list(events)
    issue = issue_of(uid, known)
    name = issue.short_id if issue is not None and issue.short_id else uid

    def require(verb: str) -> None:
        there = require_there(issue, name, verb)
        if verb != "release" and there.status != "open":
            raise RuleRefused(
                f"the issue {name} is {there.status}",
                rule="only an open issue is claimed",
                tried=f"{verb} {name}",
                why=there.reason or "there is nothing to do",
                hint="everlog issue ready",
            )

    return Attempt(claims=CLAIMS, name=name, actor=actor, held=CLAIMS.left_by(known), at=now(), require=require)


class _OfClaim(IssueCommand, frozen=True, kw_only=True):
    """A command of an actor who works, or wants to work, on an issue."""

    def plan(self, log: Log, by: By) -> Plan[IssueResult]:
        plan = IssueCommand.plan(self, log, by)
        uid = plan.stream.partition("/")[2]

        def decide(history: History) -> Iterable[Any]:
            return self.tries(attempt(uid, (one.event for one in history), by.actor))

        def result(decision: Decision) -> IssueResult:
            found, claim = plan.result(decision), made_by(decision)
            return found if claim is None else ClaimResult(**msgspec.structs.asdict(found), **claim)

        return msgspec.structs.replace(plan, decide=decide, result=result)

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        raise NotImplementedError


class _ForMinutes(_OfClaim, frozen=True, kw_only=True):
    issue: Reference
    minutes: Minutes = 60

    def asked(self) -> dict[str, Any]:
        return {"minutes": self.minutes}


class Claim(_ForMinutes, frozen=True, kw_only=True):
    """Take an issue to work on it, for a limited time. Of several who try at once, one gets it.

    After that time anybody may claim it. Renew the claim while the work goes on.
    """

    verb = "claim"
    examples = ("claim hrac --minutes 30 --actor agent:builder",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "minutes": 30}

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        return attempt.take(self.minutes)


class Renew(_ForMinutes, frozen=True, kw_only=True):
    """Extend your claim of an issue, before it expires."""

    verb = "renew"
    examples = ("renew hrac --minutes 30 --actor agent:builder",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "minutes": 30}

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        return attempt.renew(self.minutes)


class Release(_OfClaim, frozen=True, kw_only=True):
    """Give up your claim of an issue, so that others can take it."""

    verb = "release"
    examples = ("release hrac --actor agent:builder",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac"}
    issue: Reference

    def tries(self, attempt: Attempt) -> Iterable[Any]:
        return attempt.release()


class Ready(Question[list[Row]], frozen=True, kw_only=True):
    """Show the issues that can be worked on: open, not blocked by an open issue, and claimed by nobody.

    Those with a label p0 to p9 come first, in that order; then the oldest.
    """

    verb = "ready"
    examples = ("ready --limit 1",)
    example: ClassVar[dict[str, Any]] = {}
    columns = COLUMNS
    limit: Limit = 100
    project: Project = ""

    def answer(self, log: Log, within: str) -> list[Row]:
        at = now()
        taken = {key for key, row in log.view(Claims).items() if Lease(**row).is_live(at)}
        states = dict(log.view(Current).items())
        free = [
            state
            for key, state in states.items()
            if key not in taken and in_scope(state["scope"], within) and not _is_blocked(log, key, states)
        ]
        free.sort(key=lambda state: (_priority(state), state["created_at"], state["uid"]))
        return list(islice(wanted(log, free, self.project, within, ("open",), (), None), self.limit))


def _is_blocked(log: Log, stream: str, states: dict[str, Any]) -> bool:
    pointing = log.view(Backlinks).get(stream).state or {"links": []}
    blocking = [states.get(f"{KIND}/{one['uid']}") for one in pointing["links"] if one["kind"] == "blocks"]
    return any(state and state["status"] == "open" and not state["deleted"] for state in blocking)


def _priority(state: dict[str, Any]) -> int:
    found = [int(match[1]) for match in map(_PRIORITY.match, state["labels"]) if match]
    return min(found, default=10)
