"""What may be recorded about the market, chats, files and documents; and how a refusal is worded.

Each post, thread, file and document has its own history in causal order. Every event in it is judged by the rights
that its author had (`rights`). Events that count form the subject; the others are listed as ignored. A new event is
judged in the same way before it is recorded, so that nothing is recorded here that the history would ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from everlog.errors import NoSuchSubject, RuleRefused
from everlog.programs.community import rights
from everlog.programs.community.membership import RANKS, Standing
from everlog.programs.community.reading import Act, No, ignored
from everlog.programs.community.rights import refuse_below

Subject = dict[str, Any]
Judge = Callable[[Standing, Subject, str, Act], No | None]


class FoldedSubject:
    """A subject as its history leaves it, and what of the history does not count."""

    def __init__(self, subject: Subject, left_out: list[dict[str, Any]]) -> None:
        self.subject = subject
        self.ignored = left_out


def fold_subject(standing: Standing, kind: str, name: str, history: Iterable[Act]) -> FoldedSubject:
    """Return what a history makes of a post, day of a thread, file or document; nothing if none of it counts."""
    subject: Subject = {}
    left_out = []
    for act in history:
        no = judge(standing, kind, subject, name, act)
        if no is None:
            _APPLY[kind](standing, subject, act)
        else:
            left_out.append(ignored(act, no))
    return FoldedSubject(subject, left_out)


def judge(standing: Standing, kind: str, subject: Subject, name: str, act: Act) -> No | None:
    """Return why an act on a subject does not count."""
    return _JUDGE[kind](standing, subject, name, act)


def insist(
    standing: Standing, act: Act, tried: str, *, kind: str = "", subject: Subject | None = None, name: str = ""
) -> None:
    """Refuse what history would ignore, before it is recorded."""
    no = judge(standing, kind, subject or {}, name, act) if kind else rights.judge(standing, act)
    if no is None:
        return
    if no.missing:
        raise NoSuchSubject(no.why, why=no.rule, hint=no.hint, rule=no.rule, tried=tried)
    raise RuleRefused(
        f"{act.by} cannot {tried}",
        rule=no.rule,
        tried=tried,
        allowed=list(no.allowed),
        why=no.why,
        hint=no.hint or "everlog community show",
        community=standing.community,
    )


# ---- the market


def _judge_post(standing: Standing, post: Subject, name: str, act: Act) -> No | None:
    policy = standing.policy_at(act.place)
    if act.type == "market.post.created":
        rule = "the policy says who posts; a post is created once, and has a time at which it is over"
        no = refuse_below(standing, act, policy.get("who_posts", ""), rule)
        if no is None and post:
            no = No(rule=rule, why=f"{post['by']} created it", hint="everlog community post NEW-NAME TITLE")
        return no or _refuse_time(act, policy, rule)
    rule = "a post is changed by its author while it is open, and ended by its author or a moderator"
    no = refuse_below(standing, act, "member", rule)
    if no is not None:
        return no
    if not post:
        return No(rule=rule, why=f"there is no post {name}", hint="everlog community posts", missing=True)
    if post["status"] != "open":
        hint = f"everlog community post NEW-NAME TITLE --actor {act.by}"
        return No(rule=rule, why=f"the post {name} is over", allowed=("create another one",), hint=hint)
    if act.type == "market.post.updated":
        if act.by != post["by"]:
            hint = f"everlog community update {name} {_changes(act)} --actor {post['by']}"
            return No(rule=rule, why=f"{post['by']} created it", allowed=(post["by"],), hint=hint)
        return _refuse_time(act, policy, rule)
    if act.by != post["by"] and RANKS[standing.role_of(act)] < RANKS["moderator"]:
        hint = f"everlog community expire {name} --actor {post['by']}"
        return No(rule=rule, why=f"{post['by']} created it", allowed=(post["by"], "moderator", "admin"), hint=hint)
    return None


def _changes(act: Act) -> str:
    """Return the options of a change, without their values: a refusal outlives a purge."""
    given = [f'--{field} "…"' for field in ("title", "text", "price") if act.payload[field] is not None]
    if act.payload["expires_at"] is not None:
        lasts = moment(act.payload["expires_at"]) - moment(act.at)
        given.append(f"--days {max(1, round(lasts / timedelta(days=1)))}")
    return " ".join(given or ['--title "…"'])


def _refuse_time(act: Act, policy: dict[str, Any], rule: str) -> No | None:
    expires_at = act.payload["expires_at"]
    if expires_at is None:
        return None
    days, lasts = policy["post_days"], moment(expires_at) - moment(act.at)
    if timedelta(0) < lasts <= timedelta(days=days):
        return None
    why = "it would be over already" if lasts <= timedelta(0) else f"a post is open for {days} days at most"
    return No(rule=rule, why=why, allowed=(f"up to {days} days",), hint="everlog community policy")


def _apply_post(standing: Standing, post: Subject, act: Act) -> None:
    if act.type == "market.post.expired":
        post.update(status="expired", ended_at=act.at, ended_by=act.by, reason=act.payload["reason"])
        return
    if act.type == "market.post.created":
        over = moment(act.at) + timedelta(days=standing.policy_at(act.place)["post_days"])
        post.update(by=act.by, created_at=act.at, status="open", expires_at=text(over))
    post.update({name: value for name, value in act.payload.items() if value is not None}, changed_at=act.at)


# ---- chats


def _judge_message(standing: Standing, messages: Subject, name: str, act: Act) -> No | None:
    if act.type == "chat.message.sent":
        rule = "the policy says who chats"
        return refuse_below(standing, act, standing.policy_at(act.place).get("who_chats", ""), rule)
    rule = "a message is delivered to members, and read by members, who did not send it"
    no = refuse_below(standing, act, "member", rule)
    if no is not None:
        return no
    message = messages.get(act.payload["message"])
    if message is None:
        why = f"there is no message {act.payload['message']} in {name}"
        return No(rule=rule, why=why, hint=f"everlog community chats {name}", missing=True)
    if message["by"] == act.by:
        why = f"{act.by} sent the message {act.payload['message']}"
        return No(rule=rule, why=why, allowed=("any other member",), hint=f"everlog community chats {name}")
    return None


def _apply_message(standing: Standing, messages: Subject, act: Act) -> None:
    match act.type:
        case "chat.message.sent":
            messages[act.id] = {"by": act.by, "at": act.at, **act.payload, "delivered": {}, "read": {}}
        case "chat.message.delivered":
            messages[act.payload["message"]]["delivered"].setdefault(act.by, act.at)
        case "chat.message.read":
            message = messages[act.payload["message"]]
            message["delivered"].setdefault(act.by, act.at)  # a member that has read it has received it
            message["read"].setdefault(act.by, act.at)


# ---- files and documents


def _judge_file(standing: Standing, providers: Subject, name: str, act: Act) -> No | None:
    takes = standing.policy_at(act.place).get("who_shares", "")
    rule = "the policy says who shares files; a provider unpins its own files, and a moderator those of anyone"
    no = refuse_below(standing, act, takes if act.type == "file.cid.advertised" else "member", rule)
    if no is not None:
        return no
    if act.payload["cid"] != name:
        return No(rule="the stream of an event names its file", why=f"it is about the file {act.payload['cid']}")
    if act.type == "file.cid.advertised":
        return None
    provider = act.payload["provider"] or act.by
    if provider not in providers:
        why = f"{provider} does not keep the file {name}"
        return No(rule=rule, why=why, allowed=tuple(sorted(providers)), hint="everlog community files", missing=True)
    if provider != act.by and RANKS[standing.role_of(act)] < RANKS["moderator"]:
        hint = f"everlog community unpin {name} --actor {provider}"
        return No(rule=rule, why=f"{provider} keeps it", allowed=(provider, "moderator", "admin"), hint=hint)
    return None


def _apply_file(standing: Standing, providers: Subject, act: Act) -> None:
    if act.type == "file.cid.advertised":
        kept = {name: value for name, value in act.payload.items() if name != "cid"}
        providers[act.by] = {"node": act.origin, "at": act.at, **kept}
    else:
        del providers[act.payload["provider"] or act.by]


def _judge_document(standing: Standing, document: Subject, name: str, act: Act) -> No | None:
    takes = standing.policy_at(act.place).get("who_ingests", "")
    return refuse_below(standing, act, takes, "the policy says who ingests documents")


def _apply_document(standing: Standing, document: Subject, act: Act) -> None:
    document.update(act.payload, by=act.by, at=act.at, times=document.get("times", 0) + 1)


_JUDGE: dict[str, Judge] = {
    "post": _judge_post,
    "thread": _judge_message,
    "file": _judge_file,
    "document": _judge_document,
}
_APPLY: dict[str, Callable[[Standing, Subject, Act], None]] = {
    "post": _apply_post,
    "thread": _apply_message,
    "file": _apply_file,
    "document": _apply_document,
}


def moment(act: str) -> datetime:
    return datetime.fromisoformat(act)


def text(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")
