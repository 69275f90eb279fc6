"""What may happen to an issue, decided from its history. Pure: nothing here reads a clock or a log.

An issue can be removed in three steps: closed (settled, still listed), deleted (not listed, can be restored), purged
(removed permanently). For the last two, the caller must repeat what they will do (`confirm`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.core.text import counted
from everlog.errors import ConfirmationNeeded, InvalidPayload, LookAlike, NoSuchSubject, RuleRefused
from everlog.programs.issues.events import (
    CLAIMS,
    TOMBSTONE,
    Body,
    Change,
    Closed,
    Commented,
    Created,
    Edited,
    Endpoint,
    Labeled,
    Linked,
    Owner,
    Purged,
    Reopened,
    Restored,
    SoftDeleted,
    Title,
    Unlabeled,
    Unlinked,
)
from everlog.programs.issues.likeness import BLOCKED_AT


class IssueLink(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Where an issue points to."""

    kind: str
    uid: str
    short_id: str


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue as its events leave it."""

    uid: str
    short_id: str = ""  # as it was recorded
    scope: str = ""
    title: str = ""
    body: str = ""
    owner: str = ""
    labels: tuple[str, ...] = ()
    links: tuple[IssueLink, ...] = ()
    status: str = "open"
    reason: str = ""  # why it was closed, or deleted
    deleted: bool = False
    purged: bool = False
    comments: int = 0
    created_at: str = ""  # empty: whatever is known of it, not that it was ever made
    created_by: str = ""
    changed_at: str = ""
    changed_by: str = ""

    @property
    def is_there(self) -> bool:
        return bool(self.created_at)

    @property
    def state(self) -> str:
        """One word for where it is on the ladder."""
        return "purged" if self.purged else "deleted" if self.deleted else self.status


def uid_of(event: Event) -> str:
    """Return the uid of the issue that an event is about."""
    return event.stream.partition("/")[2]


def evolve(issue: Issue, event: Event) -> Issue:
    """An issue after an event. What an imported history expresses in another way is passed over."""
    payload, at = event.payload, event.occurred_at.isoformat().replace("+00:00", "Z")
    changed = msgspec.structs.replace(issue, changed_at=at, changed_by=event.actor)
    match event.type:
        case "issue.created":
            return msgspec.structs.replace(
                changed,
                scope=event.scope,
                short_id=payload["short_id"],
                title=payload["title"],
                body=payload["body"],
                owner=payload["owner"],
                labels=tuple(sorted({*issue.labels, *payload["labels"]})),
                created_at=at,
                created_by=event.actor,
            )
        case "issue.edited":
            fields = {name: change["to"] for name, change in payload["changes"].items()}
            return msgspec.structs.replace(changed, **fields)
        case "issue.commented":
            return msgspec.structs.replace(changed, comments=issue.comments + 1)
        case "issue.labeled" | "issue.unlabeled" if isinstance(payload.get("label"), str):
            labels = {*issue.labels} - {payload["label"]}
            kept = labels | {payload["label"]} if event.type == "issue.labeled" else labels
            return msgspec.structs.replace(changed, labels=tuple(sorted(kept)))
        case "issue.linked" | "issue.unlinked" if isinstance(payload.get("target"), dict):
            target = payload["target"]
            others = {link for link in issue.links if (link.kind, link.uid) != (payload["kind"], target["uid"])}
            link = IssueLink(kind=payload["kind"], uid=target["uid"], short_id=target["short_id"])
            kept_links = others | {link} if event.type == "issue.linked" else others
            return msgspec.structs.replace(changed, links=tuple(sorted(kept_links)))
        case "issue.closed":
            return msgspec.structs.replace(changed, status="closed", reason=str(payload.get("reason") or ""))
        case "issue.reopened":
            return msgspec.structs.replace(changed, status="open", reason="")
        case "issue.soft_deleted":
            return msgspec.structs.replace(changed, deleted=True, reason=str(payload.get("reason") or ""))
        case "issue.restored":
            return msgspec.structs.replace(changed, deleted=False, reason="")
        case "issue.purged":
            return msgspec.structs.replace(
                changed, purged=True, short_id=payload["short_id"], reason=payload["reason"]
            )
        case _:
            return changed


def issue_of(uid: str, events: Iterable[Event]) -> Issue | None:
    """Return the issue that a history describes, in the same order on every clone; None if there is none."""
    issue = Issue(uid=uid)
    for event in sorted(events, key=lambda event: event.causal_order):
        if event.type not in CLAIMS.types:  # who works on it changes nothing of the issue itself
            issue = evolve(issue, event)
    return issue if issue.is_there or issue.purged else None


# ---- making one


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An issue that a new one is much like."""

    uid: str
    short_id: str
    status: str
    score: float


def create(alike: Sequence[Candidate], made: Created, links: Sequence[Linked], *, force_new: bool) -> list[Any]:
    """`alike` are the issues of the same scope that come close, with how close they come."""
    close = [one for one in alike if one.score >= BLOCKED_AT]
    if close and not force_new:
        first = close[0]
        raise LookAlike(
            "an issue very much like it is there already",
            why=", ".join(f"{one.short_id} ({one.status}) by {one.score:.0%}" for one in close),
            hint=f"everlog issue comment {first.short_id} TEXT; if it is another one, repeat with --force-new",
            rule=f"what is alike by {BLOCKED_AT:.0%} or more is not created twice",
            tried="create",
            allowed=[f"comment {first.short_id}", "create --force-new"],
            candidates=[msgspec.to_builtins(one) for one in close],
        )
    return [made, *links]


# ---- changing one


def edit(issue: Issue | None, name: str, changes: Mapping[str, str]) -> list[Any]:
    known = require_there(issue, name, "edit")
    found = {
        field: Change(before=getattr(known, field), to=to)
        for field, to in sorted(changes.items())
        if getattr(known, field) != to
    }
    for field, change in found.items():
        _require_fit(name, field, change.to)
    return [Edited(changes=found)] if found else []  # type: ignore[arg-type]


_FIELDS = {"title": Title, "body": Body, "owner": Owner}


def _require_fit(name: str, field: str, to: str) -> None:
    """What a new issue may not contain, an edit may not either. It is no part of the event's type, because edits
    that were recorded before stay readable."""
    try:
        msgspec.convert(to, _FIELDS[field])
    except msgspec.ValidationError as error:
        reason = str(error).replace("`", "")
        defect = (f"$.{field}", reason[:1].lower() + reason[1:])
        raise InvalidPayload("issue.edited", [defect], hint=f'everlog issue edit {name} --{field} "…"') from error


def comment(issue: Issue | None, name: str, body: str) -> list[Any]:
    require_there(issue, name, "comment")
    return [Commented(body=body)]


def label(issue: Issue | None, name: str, labels: Iterable[str]) -> list[Any]:
    known = require_there(issue, name, "label")
    return [Labeled(label=one) for one in sorted({*labels} - {*known.labels})]


def unlabel(issue: Issue | None, name: str, labels: Iterable[str]) -> list[Any]:
    known = require_there(issue, name, "unlabel")
    return [Unlabeled(label=one) for one in sorted({*labels} & {*known.labels})]


def link(issue: Issue | None, name: str, to: Issue | None, link: Linked) -> list[Any]:
    known = require_there(issue, name, "link")
    require_there(to, link.target.short_id, "link to")
    if link.source.uid == link.target.uid:
        raise RuleRefused(
            f"{name} cannot point to itself",
            rule="a link leads from one issue to another",
            tried=f"link {name} {link.kind} {link.target.short_id}",
            allowed=["any other issue"],
            hint="everlog issue list",
        )
    has = any((one.kind, one.uid) == (link.kind, link.target.uid) for one in known.links)
    return [] if has else [link]


def remove_link(issue: Issue | None, name: str, link: Unlinked) -> list[Any]:
    known = require_there(issue, name, "unlink")
    has = any((one.kind, one.uid) == (link.kind, link.target.uid) for one in known.links)
    return [link] if has else []


def require_no_drift(end: Endpoint, claimed: str, *, option: str) -> None:
    """Refuse a caller who holds a short id and a uid that are not of the same issue (any more)."""
    if claimed and claimed != end.uid:
        raise RuleRefused(
            f"{end.short_id} is not the issue {claimed}",
            rule="an end of a link is named by uid and short id, and both mean the same issue",
            tried=f"{option} {claimed}",
            allowed=[end.uid],
            why=f"{end.short_id} is {end.uid}",
            hint=f"everlog issue show {claimed}",
        )


def close(issue: Issue | None, name: str, reason: str = "") -> list[Any]:
    known = require_there(issue, name, "close")
    return [] if known.status == "closed" else [Closed(reason=reason)]


def reopen(issue: Issue | None, name: str, reason: str = "") -> list[Any]:
    known = require_there(issue, name, "reopen")
    return [] if known.status == "open" else [Reopened(reason=reason)]


# ---- taking one away


def delete(issue: Issue | None, name: str, *, force: bool, confirm: str, reason: str = "") -> list[Any]:
    known = require_there(issue, name, "delete", deleted=True)
    _require_words("delete", name, force, confirm, "hides it from every list until it is restored")
    return [] if known.deleted else [SoftDeleted(reason=reason)]


def restore(issue: Issue | None, name: str) -> list[Any]:
    known = require_there(issue, name, "restore", deleted=True)
    return [Restored()] if known.deleted else []


def purge(issue: Issue | None, name: str, *, force: bool, confirm: str, reason: str, events: int) -> list[Any]:
    """What is left behind; nothing if that was left before. `events` is how many there are to remove."""
    known = issue if issue is not None and issue.purged else require_there(issue, name, "purge", deleted=True)
    _require_words(
        "purge", name, force, confirm, f"removes its {counted(events, 'event')} for good, and there is no way back"
    )
    return [] if known.purged else [Purged(uid=known.uid, short_id=name, reason=reason, events=events)]


def words_for(verb: str, name: str) -> str:
    """Return the exact words that confirm a deletion or a purge."""
    return f"{verb} {name}"


def tombstone_of(uid: str) -> str:
    return f"{TOMBSTONE}/{uid}"


def no_such(name: str, tried: str, why: str = "nothing was created under this name") -> NoSuchSubject:
    return NoSuchSubject(
        f"there is no issue {name}",
        why=why,
        hint="everlog issue list --status all",
        rule="an issue is created before anything else",
        tried=tried,
    )


def require_there(issue: Issue | None, name: str, verb: str, *, deleted: bool = False) -> Issue:
    tried = f"{verb} {name}"
    if issue is None:
        raise no_such(name, tried)
    if issue.purged:
        raise RuleRefused(
            f"the issue {name} was purged",
            rule="what is purged is gone for good",
            tried=tried,
            allowed=["show", "history"],
            why="of it there is only the name, so that nobody else gets it",
            hint=f"everlog issue show {name}",
            current="purged",
        )
    if issue.deleted and not deleted:
        raise RuleRefused(
            f"the issue {name} is deleted",
            rule="a deleted issue is restored before anything else",
            tried=tried,
            allowed=["restore", "purge", "show", "history"],
            why="it is out of sight, and can be brought back",
            hint=f"everlog issue restore {name}",
            current="deleted",
        )
    return issue


def _require_words(verb: str, name: str, force: bool, confirm: str, means: str) -> None:
    expected = words_for(verb, name)
    if force and confirm == expected:
        return
    raise ConfirmationNeeded(
        f"to {verb} {name} {means}" if not confirm else "the confirmation does not match",
        why=f"it needs --force and the exact words: {expected}",
        hint=f"if that is what you want, repeat the command with --force --confirm '{expected}'",
        confirm=expected,
    )
