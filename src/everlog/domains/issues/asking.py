"""What can be asked about issues: one in full, many as a list, by words, and what happened to one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

from everlog.core.event import Event, Recorded
from everlog.core.query import in_scope
from everlog.domains.issues.events import KIND
from everlog.domains.issues.references import find, name_of, names_of
from everlog.domains.issues.rules import Issue, issue_of, no_such, tombstone_of
from everlog.domains.issues.short_ids import Name
from everlog.domains.issues.views import Backlinks, Current
from everlog.log.log import Log

STATES = ("open", "closed", "deleted")
_NAMED_AT_ONCE = 100


def show(log: Log, issue: str, *, scope: str = "") -> dict[str, Any]:
    """One issue in full, with its comments and with the links from and to it; or what is left of one."""
    name = find(log, issue, scope=scope, verb="show")
    records = _records(log, name)
    found = issue_of(name.uid, (recorded.event for recorded in records))
    if found is None:
        raise no_such(issue, f"show {issue}")
    pointing = log.view(Backlinks).get(f"{KIND}/{name.uid}").state or {"links": []}
    linked_from = [_other(log, one["kind"], one["uid"], one["short_id"]) for one in pointing["links"]]
    if found.purged:
        return {**_left(log, name, found), "linked_from": linked_from}
    return {
        **_row(name, found),
        "body": found.body,
        "reason": found.reason,
        "created_by": found.created_by,
        "changed_by": found.changed_by,
        "links": [_other(log, one.kind, one.uid, one.short_id) for one in found.links],
        "linked_from": linked_from,
        "comments": [_comment(recorded.event) for recorded in records if recorded.event.type == "issue.commented"],
    }


def listed(
    log: Log,
    *,
    scope: str = "",
    states: Collection[str] = ("open",),
    labels: Collection[str] = (),
    owner: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Issues of a scope and below, the newest first; with all of these labels, if any are named."""
    rows = reversed([state for _, state in log.view(Current).items()])
    return list(islice(_wanted(log, rows, scope, states, labels, owner), limit))


def search(
    log: Log, text: str, *, scope: str = "", states: Collection[str] = ("open", "closed"), limit: int = 50
) -> list[dict[str, Any]]:
    """Issues whose title and body hold every word, the newest first."""
    found = (state for _, state in log.view(Current).search(text, within=scope, limit=limit))
    return list(_wanted(log, found, scope, states, (), None))


def history(log: Log, issue: str, *, scope: str = "") -> list[dict[str, Any]]:
    """Everything that happened to an issue, in the order that is the same on every clone."""
    name = find(log, issue, scope=scope, verb="history")
    records = sorted(_records(log, name), key=lambda recorded: recorded.event.causal_order)
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


def _records(log: Log, name: Name) -> list[Recorded]:
    return [*log.read(stream=f"{KIND}/{name.uid}"), *log.read(stream=tombstone_of(name.uid))]


def _wanted(
    log: Log,
    rows: Iterable[dict[str, Any]],
    scope: str,
    states: Collection[str],
    labels: Collection[str],
    owner: str | None,
) -> Iterator[dict[str, Any]]:
    matching = (
        issue
        for issue in (msgspec.convert(row, Issue) for row in rows)
        if issue.is_there
        and issue.state in states
        and in_scope(issue.scope, scope)
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
    """What is known of an issue that was purged."""
    return {
        "id": name.short_id,
        "uid": name.uid,
        "scope": name.scope,
        "status": "purged",
        "reason": issue.reason,
        "purged_at": issue.changed_at,
        "purged_by": issue.changed_by,
        "positions": [purge.reserved for purge in log.purges() if purge.stream == f"{KIND}/{name.uid}"],
    }


def _other(log: Log, kind: str, uid: str, short_id: str) -> dict[str, Any]:
    """The other end of a link. By its uid; the short id that the link recorded stands in for one that is unknown."""
    name = name_of(log, uid)
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
