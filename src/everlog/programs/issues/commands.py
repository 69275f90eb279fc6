"""The commands of the issues program: create, edit, comment, label, unlabel, link, unlink, close, reopen, delete,
restore, purge.

made = perform(log, Create(title="The door squeaks", project="house"), By(actor="user:ada")).result
perform(log, Comment(issue=made.short_id, text="Oil it."), By(actor="user:bob"))
perform(log, Close(issue=made.short_id, reason="oiled"))

A new issue belongs to a project, which is the scope of its events. A reference is looked up in the project and below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args

import msgspec
from msgspec import Meta

from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.errors import EverlogError, LookAlike, RuleRefused
from everlog.programs.command import By, Decision, Plan
from everlog.programs.issues import rules
from everlog.programs.issues.acting import (
    CREATED,
    InProject,
    IssueCommand,
    IssueResult,
    Reference,
    also,
    one_line,
    prose,
)
from everlog.programs.issues.claiming import Claim, Release, Renew
from everlog.programs.issues.events import KIND, Created, Endpoint, Linked, LinkKind, Unlinked
from everlog.programs.issues.life_cycle import Close, Delete, Purge, Reopen, Restore
from everlog.programs.issues.likeness import TITLES_ALIKE_MIN, likeness
from everlog.programs.issues.references import find, name_of, names_of, reach, taken_ends
from everlog.programs.issues.rules import Candidate, Issue, issue_of
from everlog.programs.issues.short_ids import Name, short_id_of
from everlog.programs.issues.views import Current

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History

_CANDIDATES_MAX = 200


def new_uid() -> str:
    """Return a uid that nothing has."""
    return new_id()


class Create(InProject, frozen=True, kw_only=True):
    """Open an issue, unless a very similar one exists."""

    verb = "create"
    examples = (
        'create "The door squeaks" --body "Every night." --label bug --owner ada',
        'create "Buy oil" --link blocks:hrac --key oil-1',
    )
    example: ClassVar[dict[str, Any]] = {
        "title": "The door squeaks",
        "body": "Every night.",
        "owner": "ada",
        "labels": ["bug"],
    }
    title: Annotated[str, Meta(description="The title, in one line.")]
    body: Annotated[str, Meta(description="The description.")] = ""
    owner: Annotated[str, Meta(description="Who takes care of it.")] = ""
    labels: Annotated[list[str], Meta(description="A label; may be repeated.")] = msgspec.field(default_factory=list)
    links: Annotated[list[str], Meta(description="A link, such as blocks:hrac; may be repeated.")] = msgspec.field(
        default_factory=list
    )
    force_new: Annotated[bool, Meta(description="Open it even if a very similar one exists.")] = False

    def subject(self) -> str:
        return f"{KIND}/new"

    def plan(self, log: Log, by: By) -> Plan[IssueResult]:
        scope, within = self.project or by.within, by.within
        parted = [link.partition(":") for link in self.links]
        targets = [
            (_kind(kind), find(log, text, scope=reach(self.project, within, text), verb="link to"))
            for kind, _, text in parted
        ]
        uid = new_uid()
        title, body = one_line(self.title), prose(self.body)
        labels = sorted({_label(label) for label in self.labels})

        def decide(history: History) -> Iterable[Any]:
            # Short ids and look-alikes concern all issues of the project; the views know them.
            history.relies_on(Query(types=CREATED, scope=scope))
            short_id = short_id_of(uid, taken_ends(log, uid, scope))
            source = Endpoint(uid=uid, short_id=short_id)
            made = Created(short_id=short_id, title=title, body=body, owner=one_line(self.owner), labels=labels)
            links = [
                one
                for kind, name in targets
                for one in rules.link(
                    Issue(uid=uid, created_at="now"),
                    short_id,
                    also(history, name.uid),
                    Linked(kind=kind, source=source, target=_end(name)),
                )
            ]
            alike = [] if self.force_new else _alike(log, title, body, scope)
            return rules.create(alike, made, links, force_new=self.force_new)

        request = {
            "title": one_line(title),
            "body": one_line(body),
            "owner": one_line(self.owner),
            "labels": labels,
            "links": sorted([kind, name.uid] for kind, name in targets),
        }
        stream = f"{KIND}/{uid}"
        return Plan(
            stream=stream,
            looks_at=Query(stream=stream),
            decide=decide,
            result=lambda decision: _created(log, decision),
            by=by,
            scope=self.project,
            request=request,
        )

    def refused(self, log: Log, error: EverlogError) -> EverlogError:
        """Return the refusal with the titles of look-alikes. The recorded one has none: they may be purged later."""
        if not isinstance(error, LookAlike):
            return error
        candidates = error.details["candidates"]
        for one in candidates:
            row = log.view(Current).get(f"{KIND}/{one['uid']}").state
            one["title"] = "" if row is None else row["title"]  # it may have been purged since
        error.why = ", ".join(
            f"{one['short_id']} ({one['status']}) by {one['score']:.0%}: {one['title']}" for one in candidates
        )
        return error


def _created(log: Log, decision: Decision) -> IssueResult:
    uid = rules.uid_of(decision.events[0])
    issue = issue_of(uid, decision.events)
    assert issue is not None, "what was created is there"
    name = None if decision.dry_run else name_of(log, uid)
    short_id = issue.short_id if name is None else name.short_id
    return IssueResult(short_id=short_id, uid=uid, state=issue.state, title=issue.title)


def _alike(log: Log, title: str, body: str, scope: str) -> list[Candidate]:
    """Return the issues of a scope that come close, the closest first: found by title, measured by all words."""
    near = log.view(Current).alike(title, part=scope, least=TITLES_ALIKE_MIN, limit=_CANDIDATES_MAX)
    names = names_of(log, [state["uid"] for _, state in near])
    found = [
        Candidate(
            uid=state["uid"],
            short_id=names[state["uid"]].short_id,
            status=state["status"],
            score=likeness(title, body, state["title"], state["body"]),
        )
        for _, state in near
        if state["uid"] in names and not names[state["uid"]].purged
    ]
    return sorted(found, key=lambda one: (-one.score, one.uid))


# ---- changing one


class Edit(IssueCommand, frozen=True, kw_only=True):
    """Change the title, the body or the owner. The previous values stay on record."""

    verb = "edit"
    examples = ('edit hrac --title "The gate squeaks" --owner bob',)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "title": "The gate squeaks", "owner": "bob"}
    issue: Reference
    title: Annotated[str | None, Meta(description="A new title.")] = None
    body: Annotated[str | None, Meta(description="A new body.")] = None
    owner: Annotated[str | None, Meta(description="A new owner; an empty value removes the owner.")] = None

    def asked(self) -> dict[str, Any]:
        given = {
            "title": None if self.title is None else one_line(self.title),
            "body": None if self.body is None else prose(self.body),
            "owner": None if self.owner is None else one_line(self.owner),
        }
        return {field: to for field, to in given.items() if to is not None}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.edit(issue, name.short_id, self.asked())


class Comment(IssueCommand, frozen=True, kw_only=True):
    """Add a comment to an issue. A comment cannot be edited or deleted."""

    verb = "comment"
    examples = ('comment hrac "Oil helps."',)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "text": "Oil helps."}
    issue: Reference
    text: Annotated[str, Meta(description="The comment.")]

    def asked(self) -> dict[str, Any]:
        return {"body": prose(self.text)}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.comment(issue, name.short_id, prose(self.text))


class Label(IssueCommand, frozen=True, kw_only=True):
    """Add labels to an issue."""

    verb = "label"
    examples = ("label hrac bug p1",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "labels": ["bug", "p1"]}
    issue: Reference
    labels: Annotated[list[str], Meta(description="The labels.")]

    def asked(self) -> dict[str, Any]:
        return {"labels": sorted({_label(one) for one in self.labels})}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.label(issue, name.short_id, self.asked()["labels"])


class Unlabel(IssueCommand, frozen=True, kw_only=True):
    """Remove labels from an issue."""

    verb = "unlabel"
    examples = ("unlabel hrac p1",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac", "labels": ["p1"]}
    issue: Reference
    labels: Annotated[list[str], Meta(description="The labels.")]

    def asked(self) -> dict[str, Any]:
        return {"labels": sorted({_label(one) for one in self.labels})}

    def rule(self, issue: Issue | None, name: Name, history: History) -> Iterable[Any]:
        return rules.unlabel(issue, name.short_id, self.asked()["labels"])


class BetweenIssues(IssueCommand, frozen=True, kw_only=True):
    """A command about a link. A caller that gives a uid as well is refused if it is not that of the named issue."""

    issue: Reference
    kind: Annotated[str, Meta(description="The kind of link: blocks, duplicates or relates.")]
    other: Annotated[str, Meta(description="The issue that it points to.")]
    uid: Annotated[str, Meta(description="Refuse if the first issue does not have this uid.")] = ""
    other_uid: Annotated[str, Meta(description="Refuse if the other issue does not have this uid.")] = ""

    def ends(self, log: Log, within: str) -> tuple[Name, Name, LinkKind]:
        source = find(log, self.issue, scope=reach(self.project, within, self.issue), verb=self.verb)
        target = find(log, self.other, scope=reach(self.project, within, self.other), verb=f"{self.verb} to")
        rules.require_no_drift(_end(source), self.uid, option="--uid")
        rules.require_no_drift(_end(target), self.other_uid, option="--to-uid")
        return source, target, _kind(self.kind)

    def plan(self, log: Log, by: By) -> Plan[IssueResult]:
        source, target, kind = self.ends(log, by.within)
        plan = IssueCommand.plan(self, log, by)

        def decide(history: History) -> Iterable[Any]:
            issue = issue_of(source.uid, (one.event for one in history))
            return self.link_rule(issue, source, target, kind, history)

        request = {"issue": source.uid, "kind": self.kind, "to": target.uid}
        return msgspec.structs.replace(plan, decide=decide, request=request)

    def link_rule(
        self, issue: Issue | None, source: Name, target: Name, kind: LinkKind, history: History
    ) -> Iterable[Any]:
        raise NotImplementedError


class Link(BetweenIssues, frozen=True, kw_only=True):
    """Link an issue to another one, which it blocks, duplicates or relates to."""

    verb = "link"
    examples = ("link 8qz1 blocks hrac",)
    example: ClassVar[dict[str, Any]] = {"issue": "8qz1", "kind": "blocks", "other": "hrac"}

    def link_rule(
        self, issue: Issue | None, source: Name, target: Name, kind: LinkKind, history: History
    ) -> Iterable[Any]:
        made = Linked(kind=kind, source=_end(source), target=_end(target))
        return rules.link(issue, source.short_id, also(history, target.uid), made)


class Unlink(BetweenIssues, frozen=True, kw_only=True):
    """Remove a link from an issue to another one, even if that one was deleted or purged."""

    verb = "unlink"
    examples = ("unlink 8qz1 blocks hrac",)
    example: ClassVar[dict[str, Any]] = {"issue": "8qz1", "kind": "blocks", "other": "hrac"}

    def link_rule(
        self, issue: Issue | None, source: Name, target: Name, kind: LinkKind, history: History
    ) -> Iterable[Any]:
        made = Unlinked(kind=kind, source=_end(source), target=_end(target))
        return rules.remove_link(issue, source.short_id, made)


COMMANDS = (
    Create,
    Edit,
    Comment,
    Label,
    Unlabel,
    Link,
    Unlink,
    Close,
    Reopen,
    Delete,
    Restore,
    Purge,
    Claim,
    Renew,
    Release,
)

__all__ = [
    "COMMANDS",
    "Claim",
    "Close",
    "Comment",
    "Create",
    "Delete",
    "Edit",
    "Label",
    "Link",
    "Purge",
    "Release",
    "Renew",
    "Reopen",
    "Restore",
    "Unlabel",
    "Unlink",
]


def _end(name: Name) -> Endpoint:
    return Endpoint(uid=name.uid, short_id=name.short_id)


def _kind(text: str) -> LinkKind:
    kinds = get_args(LinkKind)
    if text not in kinds:
        raise RuleRefused(
            f"{text!r} is no kind of link",
            rule="a link has a kind that says what it means",
            tried=f"link {text}",
            allowed=list(kinds),
            hint=f"use one of {', '.join(kinds)}",
        )
    found: LinkKind = text  # type: ignore[assignment]
    return found


def _label(text: str) -> str:
    return text.strip().lower()
