"""The questions of the issues program: one issue in full, many as a list, by words, and what happened to one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from everlog.core.event import Event, Recorded
from everlog.core.query import in_scope
from everlog.errors import NoSuchSubject
from everlog.programs.command import Question
from everlog.programs.issues.events import KIND
from everlog.programs.issues.references import find, name_of, names_of, reach
from everlog.programs.issues.rules import Issue, issue_of, no_such, tombstone_of
from everlog.programs.issues.short_ids import Name
from everlog.programs.issues.views import Backlinks, Current

if TYPE_CHECKING:
    from everlog.log.log import Log

Row = dict[str, Any]
STATES = ("open", "closed", "deleted")
COLUMNS = ("id", "status", "owner", "labels", "changed_at", "title")
_NAMED_AT_ONCE = 100

Project = Annotated[str, Meta(description="Only issues of this project and below.")]
Reference = Annotated[str, Meta(description="The issue: its short id, its uid, or a unique prefix of that.")]
Limit = Annotated[int, Meta(ge=1, le=1_000_000, description="The maximum number of issues.")]


class List(Question[list[Row]], frozen=True, kw_only=True):
    """Show the newest issues, the newest last."""

    verb = "list"
    examples = ("list", "list --status all --label bug --owner ada")
    example: ClassVar[dict[str, Any]] = {}
    columns = COLUMNS
    status: Annotated[Literal["open", "closed", "deleted", "all"], Meta(description="Which issues to show.")] = "open"
    labels: Annotated[list[str], Meta(description="Only issues with this label; may be repeated.")] = msgspec.field(
        default_factory=list
    )
    owner: Annotated[str | None, Meta(description="Only issues of this owner; empty for those without one.")] = None
    limit: Limit = 100
    project: Project = ""

    def answer(self, log: Log, within: str) -> list[Row]:
        found = (state for state in reversed([state for _, state in log.view(Current).items()]))
        states = STATES if self.status == "all" else (self.status,)
        labels = [label.strip().lower() for label in self.labels]
        return list(islice(wanted(log, found, self.project, within, states, labels, self.owner), self.limit))[::-1]


class Search(Question[list[Row]], frozen=True, kw_only=True):
    """Show open and closed issues with every word in their title or body, the newest last."""

    verb = "search"
    examples = ("search door night",)
    example: ClassVar[dict[str, Any]] = {"words": ["door", "night"]}
    columns = COLUMNS
    words: Annotated[list[str], Meta(description="The words.")]
    limit: Limit = 50
    project: Project = ""

    def answer(self, log: Log, within: str) -> list[Row]:
        try:
            scope = reach(self.project, within, "")
        except NoSuchSubject:
            return []
        found = (state for _, state in log.view(Current).search(" ".join(self.words), within=scope, limit=self.limit))
        return list(wanted(log, found, self.project, within, ("open", "closed"), (), None))[::-1]


class Show(Question[Row], frozen=True, kw_only=True):
    """Show one issue in full: its text, links and comments; or what is left of a purged one."""

    verb = "show"
    examples = ("show hrac",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac"}
    issue: Reference
    project: Project = ""

    def answer(self, log: Log, within: str) -> Row:
        name = find(log, self.issue, scope=reach(self.project, within, self.issue), verb="show")
        records = _records(log, name)
        found = issue_of(name.uid, (recorded.event for recorded in records))
        if found is None:
            raise no_such(self.issue, f"show {self.issue}")
        pointing = log.view(Backlinks).get(f"{KIND}/{name.uid}").state or {"links": []}
        ends = [_other(log, one["kind"], one["uid"], one["short_id"], within) for one in pointing["links"]]
        linked_from = [one for one in ends if one is not None]
        if found.purged:
            return {**_left(log, name, found), "linked_from": linked_from}
        links = [_other(log, one.kind, one.uid, one.short_id, within) for one in found.links]
        return {
            **_row(name, found),
            "body": found.body,
            "reason": found.reason,
            "created_by": found.created_by,
            "changed_by": found.changed_by,
            "links": [one for one in links if one is not None],
            "linked_from": linked_from,
            "comments": [
                _comment(one.event) for one in _visible(records, within) if one.event.type == "issue.commented"
            ],
        }


class IssueHistory(Question[list[Row]], frozen=True, kw_only=True):
    """Show everything that happened to an issue, the oldest first; an edit shows each field before and after."""

    verb = "history"
    examples = ("history hrac",)
    example: ClassVar[dict[str, Any]] = {"issue": "hrac"}
    columns = ("position", "at", "actor", "what", "detail")
    issue: Reference
    project: Project = ""

    def answer(self, log: Log, within: str) -> list[Row]:
        name = find(log, self.issue, scope=reach(self.project, within, self.issue), verb="history")
        records = sorted(_visible(_records(log, name), within), key=lambda recorded: recorded.event.causal_order)
        return [
            {
                "position": recorded.position,
                "at": _text(recorded.event),
                "actor": recorded.event.actor,
                "what": recorded.event.type.partition(".")[2],
                "said": recorded.event.payload,
                "id": recorded.event.id,
            }
            for recorded in records
        ]


QUESTIONS = (List, Search, Show, IssueHistory)


def _records(log: Log, name: Name) -> list[Recorded]:
    return [*log.read(stream=f"{KIND}/{name.uid}"), *log.read(stream=tombstone_of(name.uid))]


def _visible(records: Iterable[Recorded], within: str) -> list[Recorded]:
    """Return what a caller may see of the events of an issue. Its state follows from all of them, as in a list."""
    return [recorded for recorded in records if in_scope(recorded.event.scope, within)]


def wanted(
    log: Log,
    rows: Iterable[dict[str, Any]],
    project: str,
    within: str,
    states: Collection[str],
    labels: Collection[str],
    owner: str | None,
) -> Iterator[dict[str, Any]]:
    matching = (
        issue
        for issue in (msgspec.convert(row, Issue) for row in rows)
        if issue.is_there
        and issue.state in states
        and in_scope(issue.scope, project)
        and in_scope(issue.scope, within)
        and set(labels) <= set(issue.labels)
        and (owner is None or issue.owner == owner)
    )
    while some := list(islice(matching, _NAMED_AT_ONCE)):
        names = names_of(log, [issue.uid for issue in some])
        for issue in some:
            name = names.get(issue.uid)
            if name is not None and not name.purged:  # a clone may have purged it, and its events may still be here
                yield _row(name, issue)


def _row(name: Name, issue: Issue) -> dict[str, Any]:
    return {
        "id": name.short_id,
        "uid": name.uid,
        "scope": name.scope,
        "status": issue.state,
        "title": issue.title,
        "owner": issue.owner,
        "labels": list(issue.labels),
        "comments": issue.comments,
        "created_at": issue.created_at,
        "changed_at": issue.changed_at,
    }


def _left(log: Log, name: Name, issue: Issue) -> dict[str, Any]:
    """Return what is known of an issue that was purged."""
    return {
        "id": name.short_id,
        "uid": name.uid,
        "scope": name.scope,
        "status": "purged",
        "reason": issue.reason,
        "purged_at": issue.changed_at,
        "purged_by": issue.changed_by,
        "positions": [purge.reserved for purge in log.stored.purges() if purge.stream == f"{KIND}/{name.uid}"],
    }


def _other(log: Log, kind: str, uid: str, short_id: str, within: str) -> dict[str, Any] | None:
    """Return the other end of a link; None if this caller may not see it.

    It is found by its uid; the short id that the link recorded is used for one that is unknown here.
    """
    name = name_of(log, uid)
    if within and (name is None or not in_scope(name.scope, within)):
        return None
    row = log.view(Current).get(f"{KIND}/{uid}").state
    here = name is not None and not name.purged and row is not None
    return {
        "kind": kind,
        "id": short_id if name is None else name.short_id,
        "uid": uid,
        "status": msgspec.convert(row, Issue).state if here else "purged",
        "title": row["title"] if here else "",
    }


def _comment(event: Event) -> dict[str, Any]:
    return {"id": event.id, "at": _text(event), "actor": event.actor, "body": str(event.payload.get("body") or "")}


def _text(event: Event) -> str:
    return event.occurred_at.isoformat().replace("+00:00", "Z")
