"""What can be done with issues, for whoever serves people: a command line, a server, a program.

made = commands.create(log, New(title="The door squeaks"), by=By(actor="user:ada", scope="house"))
commands.comment(log, made.short_id, "Oil it.", by=By(actor="user:bob", scope="house"))
commands.close(log, made.short_id, reason="oiled", by=By(scope="house"))

`By.scope` is the project: a new issue belongs to it, and a reference is looked for in it and below. What can be asked
stands in `asking`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import msgspec

from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.domains.deciding import NOBODY, By, CarryOut, Done, History, decide, remembering
from everlog.domains.issues import DOMAIN, rules
from everlog.domains.issues.events import KIND, Created, Endpoint, Linked, LinkKind, Unlinked
from everlog.domains.issues.likeness import TITLES_ALIKE_MIN, likeness
from everlog.domains.issues.references import find, name_of, names_of
from everlog.domains.issues.rules import Candidate, Issue, issue_of, tombstone_of
from everlog.domains.issues.short_ids import Name, bucket_of, every_end, is_uid, names_in, short_id_of
from everlog.domains.issues.views import Current, ShortIds
from everlog.errors import LookAlike, RuleRefused
from everlog.log.drafts import Draft
from everlog.log.log import Log
from everlog.log.requests import Receipt

CREATED = frozenset({"issue.created"})
_CANDIDATES_MAX = 200


class New(msgspec.Struct, frozen=True, kw_only=True):
    """An issue to be made. `links` are (kind, reference) of others that it points to."""

    title: str
    body: str = ""
    owner: str = ""
    labels: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an issue."""

    short_id: str
    uid: str
    state: str
    title: str
    done: Done


# ---- making one


def new_uid() -> str:
    """A uid that nobody has."""
    return new_id()


def create(log: Log, new: New, *, force_new: bool = False, by: By = NOBODY) -> Step:
    """Open an issue. Under a key, the same request again is the same issue, also with `force_new`."""
    with remembering(log, by, "issue create", f"{KIND}/new"):
        targets = [(_kind(kind), find(log, text, scope=by.scope, verb="link to")) for kind, text in new.links]
    uid = new_uid()
    stream = f"{KIND}/{uid}"
    title, body = _line(new.title), _prose(new.body)
    labels = sorted({_label(label) for label in new.labels})
    asked = {
        "title": _canonical(title),
        "body": _canonical(body),
        "owner": _canonical(new.owner),
        "labels": labels,
        "links": sorted([kind, name.uid] for kind, name in targets),
    }

    def decision(history: History) -> Iterable[Any]:
        # Short ids and look-alikes are a matter of all issues of the scope; the views know them.
        history.relies_on(Query(types=CREATED, scope=by.scope))
        short_id = short_id_of(uid, _taken(log, uid, by.scope))
        source = Endpoint(uid=uid, short_id=short_id)
        made = Created(short_id=short_id, title=title, body=body, owner=_line(new.owner), labels=labels)
        links = [
            one
            for kind, name in targets
            for one in rules.link(
                Issue(uid=uid, created_at="now"),
                short_id,
                _also(history, name),
                Linked(kind=kind, source=source, target=_end(name)),
            )
        ]
        alike = [] if force_new else _alike(log, title, body, by.scope)
        return rules.create(alike, made, links, force_new=force_new)

    try:
        done = decide(
            log,
            DOMAIN,
            looks_at=Query(stream=stream),
            stream=stream,
            by=by,
            operation="issue create",
            request=asked,
            rule=decision,
        )
    except LookAlike as error:
        raise _with_titles(log, error) from error.__cause__
    return _made(log, done)


def _made(log: Log, done: Done) -> Step:
    first = done.events[0]
    uid = rules.uid_of(first)
    issue = issue_of(uid, done.events)
    assert issue is not None, "what was created is there"
    name = None if done.dry_run else name_of(log, uid)
    short_id = issue.short_id if name is None else name.short_id
    return Step(short_id=short_id, uid=uid, state=issue.state, title=issue.title, done=done)


def _taken(log: Log, uid: str, scope: str) -> set[str]:
    """The short ids of a scope that end as this uid does, those of the purged included."""
    names = names_in(log.view(ShortIds).get(bucket_of(uid)).state)
    known = {name.uid for name in names}
    # A stream may have been purged past this program. Nobody knows how long its short id was: every end is taken.
    lost = [purge.stream.partition("/")[2] for purge in log.purges() if scope in purge.scopes]
    lost = [other for other in lost if is_uid(other) and bucket_of(other) == bucket_of(uid) and other not in known]
    return {name.short_id for name in names if name.scope == scope} | every_end(lost)


def _alike(log: Log, title: str, body: str, scope: str) -> list[Candidate]:
    """The issues of a scope that come close, the closest first: found by their titles, measured by all they say."""
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


def _with_titles(log: Log, error: LookAlike) -> LookAlike:
    """The same refusal with titles, for who is told. What is remembered of it has none: they may be purged later."""
    candidates = error.details["candidates"]
    for one in candidates:
        row = log.view(Current).get(f"{KIND}/{one['uid']}").state
        one["title"] = "" if row is None else row["title"]  # it may have been purged since
    error.why = ", ".join(
        f"{one['short_id']} ({one['status']}) by {one['score']:.0%}: {one['title']}" for one in candidates
    )
    return error


# ---- changing one


def edit(
    log: Log,
    issue: str,
    *,
    title: str | None = None,
    body: str | None = None,
    owner: str | None = None,
    by: By = NOBODY,
) -> Step:
    """Change fields; those that are left out stay as they are."""
    given = {
        "title": None if title is None else _line(title),
        "body": None if body is None else _prose(body),
        "owner": None if owner is None else _line(owner),
    }
    changes = {field: to for field, to in given.items() if to is not None}
    return _step(log, issue, "edit", changes, by, lambda found, name, _: rules.edit(found, name, changes))


def comment(log: Log, issue: str, body: str, *, by: By = NOBODY) -> Step:
    """Say something about an issue, for good."""
    text = _prose(body)
    return _step(log, issue, "comment", {"body": text}, by, lambda found, name, _: rules.comment(found, name, text))


def label(log: Log, issue: str, labels: Iterable[str], *, by: By = NOBODY) -> Step:
    wanted = sorted({_label(one) for one in labels})
    return _step(log, issue, "label", {"labels": wanted}, by, lambda found, name, _: rules.label(found, name, wanted))


def unlabel(log: Log, issue: str, labels: Iterable[str], *, by: By = NOBODY) -> Step:
    unwanted = sorted({_label(one) for one in labels})
    return _step(
        log, issue, "unlabel", {"labels": unwanted}, by, lambda found, name, _: rules.unlabel(found, name, unwanted)
    )


def link(log: Log, issue: str, kind: str, other: str, *, uid: str = "", other_uid: str = "", by: By = NOBODY) -> Step:
    """Point to another issue. Who gives a uid as well is refused if it is not that of the issue that is named."""
    source, target, which = _ends(log, issue, kind, other, uid, other_uid, by, "link")
    made = Linked(kind=which, source=_end(source), target=_end(target))

    def rule(found: Issue | None, name: str, history: History) -> Iterable[Any]:
        return rules.link(found, name, _also(history, target), made)

    return _step(log, source.uid, "link", {"kind": kind, "to": target.uid}, by, rule)


def remove_link(
    log: Log, issue: str, kind: str, other: str, *, uid: str = "", other_uid: str = "", by: By = NOBODY
) -> Step:
    """Point to another issue no more, whatever became of that one."""
    source, target, which = _ends(log, issue, kind, other, uid, other_uid, by, "unlink")
    made = Unlinked(kind=which, source=_end(source), target=_end(target))
    asked = {"kind": kind, "to": target.uid}
    return _step(log, source.uid, "unlink", asked, by, lambda found, name, _: rules.remove_link(found, name, made))


def close(log: Log, issue: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """Settle an issue."""
    return _step(
        log, issue, "close", {"reason": reason}, by, lambda found, name, _: rules.close(found, name, _line(reason))
    )


def reopen(log: Log, issue: str, *, reason: str = "", by: By = NOBODY) -> Step:
    return _step(
        log, issue, "reopen", {"reason": reason}, by, lambda found, name, _: rules.reopen(found, name, _line(reason))
    )


# ---- taking one away


def delete(
    log: Log, issue: str, *, force: bool = False, confirm: str = "", reason: str = "", by: By = NOBODY
) -> Step:
    """Hide an issue. It needs `force` and the exact words `delete SHORT_ID`."""
    return _step(
        log,
        issue,
        "delete",
        {"reason": reason},
        by,
        lambda found, name, _: rules.delete(found, name, force=force, confirm=confirm, reason=_line(reason)),
    )


def restore(log: Log, issue: str, *, by: By = NOBODY) -> Step:
    """Bring a deleted issue back."""
    return _step(log, issue, "restore", {}, by, lambda found, name, _: rules.restore(found, name))


def purge(log: Log, issue: str, *, force: bool = False, confirm: str = "", reason: str, by: By = NOBODY) -> Step:
    """Remove an issue for good: its events, comments, labels and links. It needs `force` and the exact words
    `purge SHORT_ID`. What is left, in the same write, is its name, so that nobody else gets it."""
    why = _line(reason)
    stream = ""

    def rule(found: Issue | None, name: str, history: History) -> Iterable[Any]:
        nonlocal stream
        own = [recorded.event.stream for recorded in history if recorded.event.stream.startswith(f"{KIND}/")]
        stream = own[0] if own else ""
        return rules.purge(found, name, force=force, confirm=confirm, reason=why, events=len(own))

    def carry_out(drafts: Sequence[Draft], *, key: str, operation: str, request: Any) -> Receipt:
        asked: Any = {"key": key, "operation": operation, "request": request}
        return Receipt(log.purge_leaving(stream, drafts, actor=by.actor, reason=why, **asked)[1])

    step = _step(log, issue, "purge", {"reason": why}, by, rule, carry_out=carry_out)
    if not step.done.records and stream and not by.dry_run:
        log.purge(stream, actor=by.actor, reason=why)  # what a clone purged came to be known here, its events stayed
    return step


# ---- inside

_Rule = Callable[[Issue | None, str, History], Iterable[Any]]


def _step(
    log: Log,
    reference: str,
    verb: str,
    asked: dict[str, Any],
    by: By,
    rule: _Rule,
    *,
    carry_out: CarryOut | None = None,
) -> Step:
    """Decide from the history of one issue and of what a purge left of it."""
    operation = f"issue {verb}"
    with remembering(log, by, operation, f"{KIND}/{reference.strip()}"):
        name = find(log, reference, scope=by.scope, verb=verb)
    stream, left = f"{KIND}/{name.uid}", tombstone_of(name.uid)

    def decision(history: History) -> Iterable[Any]:
        found = issue_of(name.uid, (recorded.event for recorded in history))
        return rule(found, name.short_id, history)

    done = decide(
        log,
        DOMAIN,
        looks_at=[Query(stream=stream), Query(stream=left)],
        stream=left if verb == "purge" else stream,
        by=msgspec.structs.replace(by, scope=name.scope),
        operation=operation,
        request={"issue": name.uid, **asked},
        rule=decision,
        carry_out=carry_out,
    )
    issue = _now(log, name, done)
    return Step(short_id=name.short_id, uid=name.uid, state=issue.state, title=issue.title, done=done)


def _now(log: Log, name: Name, done: Done) -> Issue:
    """The issue as the step left it, or would leave it; as it is now, if there was nothing to record."""
    upto = None if done.dry_run or not done.records else done.records[-1].position
    events = [
        recorded.event
        for stream in (f"{KIND}/{name.uid}", tombstone_of(name.uid))
        for recorded in log.read(stream=stream, upto=upto)
    ]
    return issue_of(name.uid, [*events, *(done.events if done.dry_run else ())]) or Issue(uid=name.uid, purged=True)


def _ends(
    log: Log, issue: str, kind: str, other: str, uid: str, other_uid: str, by: By, verb: str
) -> tuple[Name, Name, LinkKind]:
    with remembering(log, by, f"issue {verb}", f"{KIND}/{issue.strip()}"):
        source = find(log, issue, scope=by.scope, verb=verb)
        target = find(log, other, scope=by.scope, verb=f"{verb} to")
        rules.require_no_drift(_end(source), uid, option="--uid")
        rules.require_no_drift(_end(target), other_uid, option="--to-uid")
        return source, target, _kind(kind)


def _also(history: History, name: Name) -> Issue | None:
    """Another issue, which must not change either before the decision is on record."""
    events = [
        recorded.event
        for stream in (f"{KIND}/{name.uid}", tombstone_of(name.uid))
        for recorded in history.also(Query(stream=stream))
    ]
    return issue_of(name.uid, events)


def _end(name: Name) -> Endpoint:
    return Endpoint(uid=name.uid, short_id=name.short_id)


def _kind(text: str) -> LinkKind:
    kinds = get_args(LinkKind)
    if text not in kinds:
        raise RuleRefused(
            f"{text!r} is no kind of link",
            rule="a link says what it means",
            tried=f"link {text}",
            allowed=list(kinds),
            hint=f"use one of {', '.join(kinds)}",
        )
    found: LinkKind = text  # type: ignore[assignment]
    return found


# ---- texts in one form


def _line(text: str) -> str:
    """One line, without the blanks that nobody meant."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _prose(text: str) -> str:
    """Lines as they are, but for line ends and blanks around all of them."""
    return unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").strip()


def _label(text: str) -> str:
    return text.strip().lower()


def _canonical(text: str) -> str:
    """A text as a fingerprint takes it: differences of white space do not matter."""
    return _line(text)
