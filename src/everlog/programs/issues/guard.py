"""The guard of the issues program: every event of an issue meets the rules of its command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.errors import RuleRefused
from everlog.programs.command import By
from everlog.programs.issues import rules
from everlog.programs.issues.acting import CREATED, also
from everlog.programs.issues.claiming import attempt
from everlog.programs.issues.events import (
    KIND,
    TOMBSTONE,
    Claimed,
    Closed,
    Commented,
    Created,
    Edited,
    Labeled,
    Linked,
    Purged,
    Released,
    Reopened,
    Restored,
    SoftDeleted,
    Unlabeled,
    Unlinked,
)
from everlog.programs.issues.references import taken_ends
from everlog.programs.issues.rules import Issue, issue_of, tombstone_of, words_for
from everlog.programs.issues.short_ids import is_uid, short_id_of
from everlog.programs.program import Guard, require_kind

if TYPE_CHECKING:
    from everlog.programs.perform import History


def _looks_at(event: Event) -> list[Query]:
    uid = event.stream.partition("/")[2]
    return [Query(stream=f"{KIND}/{uid}"), Query(stream=tombstone_of(uid))]


def _judge(history: History, event: Event, payload: Any, by: By) -> None:
    require_kind(event, TOMBSTONE if isinstance(payload, Purged) else KIND)
    uid = event.stream.partition("/")[2]
    issue = issue_of(uid, (one.event for one in history))
    name = issue.short_id if issue is not None and issue.short_id else uid
    match payload:
        case Created():
            _judge_created(history, event, issue, uid, payload)
        case Edited():
            rules.edit(issue, name, {field: change.to for field, change in payload.changes.items()})
            assert issue is not None, "what is not there cannot be edited"
            _require_truth(issue, name, payload)
        case Commented():
            rules.comment(issue, name, payload.body)
        case Labeled():
            rules.label(issue, name, [payload.label])
        case Unlabeled():
            rules.unlabel(issue, name, [payload.label])
        case Linked():
            _require_source(uid, name, payload.source.uid)
            rules.link(issue, name, also(history, payload.target.uid), payload)
        case Unlinked():
            _require_source(uid, name, payload.source.uid)
            rules.remove_link(issue, name, payload)
        case Closed():
            rules.close(issue, name)
        case Reopened():
            rules.reopen(issue, name)
        case SoftDeleted():
            rules.delete(issue, name, force=True, confirm=words_for("delete", name))
        case Restored():
            rules.restore(issue, name)
        case Claimed() | Released():
            attempt(uid, (one.event for one in history), by.actor).judge(payload)
        case Purged():
            _judge_purged(history, issue, uid, name, payload)


def _judge_created(history: History, event: Event, issue: Issue | None, uid: str, made: Created) -> None:
    tried = f"create {event.stream}"
    hint = "everlog issue create TITLE, which gives it a new id"
    if issue is not None:
        raise RuleRefused(
            f"the issue {uid} was already created",
            rule="an issue is created once",
            tried=tried,
            why=f"it is {issue.state}",
            hint=hint,
        )
    if not is_uid(uid):
        raise RuleRefused(
            f"{uid} cannot name an issue",
            rule="an issue is named by a uid, and its short id is the end of that",
            tried=tried,
            why="a uid is a ULID in upper case",
            hint=hint,
        )
    history.relies_on(Query(types=CREATED, scope=event.scope))
    taken = taken_ends(history.log, uid, event.scope)
    taken |= {
        str(one.event.payload["short_id"])
        for one in history.earlier.matching(Query(types=CREATED))
        if one.event.scope == event.scope
    }
    wanted = made.short_id
    if not wanted or wanted in taken or not uid.lower().endswith(wanted) or wanted.isdigit():
        free = short_id_of(uid, taken)
        raise RuleRefused(
            f"{wanted or 'nothing'} cannot be the short id of {uid}",
            rule="a short id is the end of the uid, has a letter, and belongs to one issue of its project",
            tried=tried,
            allowed=[free],
            why=f"its short id is {free}",
            hint=hint,
        )


def _require_truth(issue: Issue, name: str, edited: Edited) -> None:
    for field, change in edited.changes.items():
        if getattr(issue, field) != change.before:
            raise RuleRefused(
                f"the {field} of {name} is not what the edit says",
                rule="an edit records what each field was before",
                tried=f"edit {name}",
                why=f"the {field} has another value now",
                hint=f'everlog issue edit {name} --{field} "…"',
            )


def _require_source(uid: str, name: str, source: str) -> None:
    if source != uid:
        raise RuleRefused(
            f"the link of {name} begins at another issue",
            rule="a link is recorded on the stream of the issue that it begins at",
            tried=f"link {source}",
            allowed=[uid],
            why=f"its source is {source}",
            hint=f"everlog issue link {source} KIND ISSUE",
        )


def _judge_purged(history: History, issue: Issue | None, uid: str, name: str, purged: Purged) -> None:
    gone = any(one.stream == f"{KIND}/{uid}" for one in history.log.stored.purges())
    if issue is None and gone and purged.uid == uid:
        return  # the stream was purged past this program: its name is kept now
    why = "its events are still there" if issue is not None and not issue.purged else "it was recorded before"
    if issue is None:
        why = f"its payload names {purged.uid}" if gone else "there is no such issue"
    raise RuleRefused(
        f"{uid} cannot be recorded as purged",
        rule="the record of a purge is written together with the purge",
        tried=f"record the purge of {uid}",
        why=why,
        hint=f"everlog issue show {name}; everlog issue purge --help",
    )


GUARD = Guard(looks_at=_looks_at, judge=_judge)
