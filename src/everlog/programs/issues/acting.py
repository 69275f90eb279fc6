"""What the commands of the issues program share: their project, their result, and a command about one issue."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from everlog.core.query import Query
from everlog.programs.command import By, Command, Decision, Plan
from everlog.programs.issues.events import KIND
from everlog.programs.issues.references import find, reach
from everlog.programs.issues.rules import Issue, issue_of, tombstone_of
from everlog.programs.issues.short_ids import Name

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History

CREATED = frozenset({"issue.created"})

Reference = Annotated[str, Meta(description="The issue: its short id, its uid, or a unique beginning of that.")]
Reason = Annotated[str, Meta(description="Why.")]


class IssueResult(msgspec.Struct, frozen=True, kw_only=True):
    """An issue, and its state after the command."""

    short_id: str
    uid: str
    state: str
    title: str

    def facts(self) -> dict[str, Any]:
        return {"id": self.short_id, "uid": self.uid, "becomes": self.state}


class InProject(Command[IssueResult], frozen=True, kw_only=True):
    """What all commands of this program share."""

    shared = ("project",)
    judged = True
    project: Annotated[str, Meta(description="The project that it belongs to, such as acme/shop.")] = ""

    def label(self) -> str:
        return self.project


class IssueCommand(InProject, frozen=True, kw_only=True):
    """A command about one issue: it decides from the events of the issue, and of what a purge left of it."""

    def reference(self) -> str:
        return str(getattr(self, "issue"))  # noqa: B009 - every command has an issue

    def subject(self) -> str:
        return f"{KIND}/{self.reference().strip()}"

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        """Return the payloads to record, from the issue as its events leave it."""
        raise NotImplementedError

    def asked(self) -> dict[str, Any]:
        """Return what is asked of the issue: a part of the fingerprint."""
        return {}

    def plan(self, log: Log, by: By) -> Plan[IssueResult]:
        name = find(log, self.reference(), scope=reach(self.project, by.within, self.reference()), verb=self.verb)
        stream, left = f"{KIND}/{name.uid}", tombstone_of(name.uid)

        def decide(history: History) -> Iterable[Any]:
            return self.rule(issue_of(name.uid, (one.event for one in history)), name, history)

        def result(decision: Decision) -> IssueResult:
            issue = _now(log, name, decision)
            return IssueResult(short_id=name.short_id, uid=name.uid, state=issue.state, title=issue.title)

        return Plan(
            stream=stream,
            looks_at=[Query(stream=stream), Query(stream=left)],
            decide=decide,
            result=result,
            by=by,
            scope=name.scope,
            request={"issue": name.uid, **self.asked()},
        )


def _now(log: Log, name: Name, decision: Decision) -> Issue:
    """Return the issue as the command left it, or would leave it; as it is now, if there was nothing to record."""
    upto = None if decision.dry_run or not decision.records else decision.records[-1].position
    events = [
        recorded.event
        for stream in (f"{KIND}/{name.uid}", tombstone_of(name.uid))
        for recorded in log.read(stream=stream, upto=upto)
    ]
    new = decision.events if decision.dry_run else ()
    return issue_of(name.uid, [*events, *new]) or Issue(uid=name.uid, purged=True)


def also(history: History, uid: str) -> Issue | None:
    """Return another issue, which must not change either before the decision is on record."""
    events = [
        recorded.event
        for stream in (f"{KIND}/{uid}", tombstone_of(uid))
        for recorded in history.also(Query(stream=stream))
    ]
    return issue_of(uid, events)


# ---- texts in one form


def one_line(text: str) -> str:
    """Return a text as one line, without superfluous blanks."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def prose(text: str) -> str:
    """Return lines as they are, but for line ends and the blanks around all of them."""
    return unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").strip()
