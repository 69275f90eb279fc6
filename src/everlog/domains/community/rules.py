"""What may be said on the market, in chats, of files and of documents; and how a refusal is told to who wants to.

Each of these is a history of its own, in causal order, of which every event is judged by the rights that its author
had (`rights`). What counts makes the subject; what does not is told as ignored. What somebody wants to say now goes
through the same judges, so that nothing is recorded here that history would ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from everlog.domains.community import rights
from everlog.domains.community.rights import refuse_below
from everlog.domains.community.said import No, Said, ignored
from everlog.domains.community.standing import RANKS, Standing
from everlog.errors import NoSuchSubject, RuleRefused

Subject = dict[str, Any]
Judge = Callable[[Standing, Subject, str, Said], No | None]


class Told:
    """A subject as its history leaves it, and what of the history does not count."""

    def __init__(self, subject: Subject, left_out: list[dict[str, Any]]) -> None:
        self.subject = subject
        self.ignored = left_out


def tell(standing: Standing, kind: str, name: str, history: Iterable[Said]) -> Told:
    """What a history makes of a post, a day of a thread, a file or a document; nothing if nothing of it counts."""
    subject: Subject = {}
    left_out = []
    for said in history:
        no = judge(standing, kind, subject, name, said)
        if no is None:
            _APPLY[kind](standing, subject, said)
        else:
            left_out.append(ignored(said, no))
    return Told(subject, left_out)


def judge(standing: Standing, kind: str, subject: Subject, name: str, said: Said) -> No | None:
    """Why something that was said of a subject does not count."""
    return _JUDGE[kind](standing, subject, name, said)


def insist(
    standing: Standing, said: Said, tried: str, *, kind: str = "", subject: Subject | None = None, name: str = ""
) -> None:
    """Refuse what history would ignore, before it is recorded."""
    no = judge(standing, kind, subject or {}, name, said) if kind else rights.judge(standing, said)
    if no is None:
        return
    if no.missing:
        raise NoSuchSubject(no.why, why=no.rule, hint=no.hint, rule=no.rule, tried=tried)
    raise RuleRefused(
        f"{said.by} cannot {tried}",
        rule=no.rule,
        tried=tried,
        allowed=list(no.allowed),
        why=no.why,
        hint=no.hint or "everlog community show",
        community=standing.community,
    )


# ---- the market


def _judge_post(standing: Standing, post: Subject, name: str, said: Said) -> No | None:
    policy = standing.policy_at(said.place)
    if said.type == "market.post.created":
        rule = "the policy says who posts; a post is created once, and has a time at which it is over"
        no = refuse_below(standing, said, policy.get("who_posts", ""), rule)
        if no is None and post:
            no = No(rule=rule, why=f"{post['by']} created it", hint="everlog community post NEW-NAME TITLE")
        return no or _refuse_time(said, policy, rule)
    rule = "a post is changed by its author while it is open, and ended by its author or a moderator"
    no = refuse_below(standing, said, "member", rule)
    if no is not None:
        return no
    if not post:
        return No(rule=rule, why=f"there is no post {name}", hint="everlog community posts", missing=True)
    if post["status"] != "open":
        hint = f"everlog community post NEW-NAME TITLE --actor {said.by}"
        return No(rule=rule, why=f"the post {name} is over", allowed=("create another one",), hint=hint)
    if said.type == "market.post.updated":
        if said.by != post["by"]:
            hint = f"everlog community update {name} {_changes(said)} --actor {post['by']}"
            return No(rule=rule, why=f"{post['by']} created it", allowed=(post["by"],), hint=hint)
        return _refuse_time(said, policy, rule)
    if said.by != post["by"] and RANKS[standing.role_of(said)] < RANKS["moderator"]:
        hint = f"everlog community expire {name} --actor {post['by']}"
        return No(rule=rule, why=f"{post['by']} created it", allowed=(post["by"], "moderator", "admin"), hint=hint)
    return None


def _changes(said: Said) -> str:
    """The options of a change, without what they said: a refusal outlives a purge."""
    given = [f'--{field} "…"' for field in ("title", "text", "price") if said.payload[field] is not None]
    if said.payload["expires_at"] is not None:
        lasts = moment(said.payload["expires_at"]) - moment(said.at)
        given.append(f"--days {max(1, round(lasts / timedelta(days=1)))}")
    return " ".join(given or ['--title "…"'])


def _refuse_time(said: Said, policy: dict[str, Any], rule: str) -> No | None:
    expires_at = said.payload["expires_at"]
    if expires_at is None:
        return None
    days, lasts = policy["post_days"], moment(expires_at) - moment(said.at)
    if timedelta(0) < lasts <= timedelta(days=days):
        return None
    why = "it would be over already" if lasts <= timedelta(0) else f"a post is open for {days} days at most"
    return No(rule=rule, why=why, allowed=(f"up to {days} days",), hint="everlog community policy")


def _apply_post(standing: Standing, post: Subject, said: Said) -> None:
    if said.type == "market.post.expired":
        post.update(status="expired", ended_at=said.at, ended_by=said.by, reason=said.payload["reason"])
        return
    if said.type == "market.post.created":
        over = moment(said.at) + timedelta(days=standing.policy_at(said.place)["post_days"])
        post.update(by=said.by, created_at=said.at, status="open", expires_at=text(over))
    post.update({name: value for name, value in said.payload.items() if value is not None}, changed_at=said.at)


# ---- chats


def _judge_message(standing: Standing, messages: Subject, name: str, said: Said) -> No | None:
    if said.type == "chat.message.sent":
        rule = "the policy says who chats"
        return refuse_below(standing, said, standing.policy_at(said.place).get("who_chats", ""), rule)
    rule = "a message is delivered to members, and read by members, who did not send it"
    no = refuse_below(standing, said, "member", rule)
    if no is not None:
        return no
    message = messages.get(said.payload["message"])
    if message is None:
        why = f"there is no message {said.payload['message']} in {name}"
        return No(rule=rule, why=why, hint=f"everlog community chats {name}", missing=True)
    if message["by"] == said.by:
        why = f"{said.by} sent the message {said.payload['message']}"
        return No(rule=rule, why=why, allowed=("any other member",), hint=f"everlog community chats {name}")
    return None


def _apply_message(standing: Standing, messages: Subject, said: Said) -> None:
    match said.type:
        case "chat.message.sent":
            messages[said.id] = {"by": said.by, "at": said.at, **said.payload, "delivered": {}, "read": {}}
        case "chat.message.delivered":
            messages[said.payload["message"]]["delivered"].setdefault(said.by, said.at)
        case "chat.message.read":
            message = messages[said.payload["message"]]
            message["delivered"].setdefault(said.by, said.at)  # who has read it has got it
            message["read"].setdefault(said.by, said.at)


# ---- files and documents


def _judge_file(standing: Standing, providers: Subject, name: str, said: Said) -> No | None:
    takes = standing.policy_at(said.place).get("who_shares", "")
    rule = "the policy says who shares files; they are unpinned by who keeps them, or by a moderator"
    no = refuse_below(standing, said, takes if said.type == "file.cid.advertised" else "member", rule)
    if no is not None:
        return no
    if said.payload["cid"] != name:
        return No(rule="a file is told of in its own stream", why=f"it is about the file {said.payload['cid']}")
    if said.type == "file.cid.advertised":
        return None
    provider = said.payload["provider"] or said.by
    if provider not in providers:
        why = f"{provider} does not keep the file {name}"
        return No(rule=rule, why=why, allowed=tuple(sorted(providers)), hint="everlog community files", missing=True)
    if provider != said.by and RANKS[standing.role_of(said)] < RANKS["moderator"]:
        hint = f"everlog community unpin {name} --actor {provider}"
        return No(rule=rule, why=f"{provider} keeps it", allowed=(provider, "moderator", "admin"), hint=hint)
    return None


def _apply_file(standing: Standing, providers: Subject, said: Said) -> None:
    if said.type == "file.cid.advertised":
        kept = {name: value for name, value in said.payload.items() if name != "cid"}
        providers[said.by] = {"node": said.origin, "at": said.at, **kept}
    else:
        del providers[said.payload["provider"] or said.by]


def _judge_document(standing: Standing, document: Subject, name: str, said: Said) -> No | None:
    takes = standing.policy_at(said.place).get("who_ingests", "")
    return refuse_below(standing, said, takes, "the policy says who ingests documents")


def _apply_document(standing: Standing, document: Subject, said: Said) -> None:
    document.update(said.payload, by=said.by, at=said.at, times=document.get("times", 0) + 1)


_JUDGE: dict[str, Judge] = {
    "post": _judge_post,
    "thread": _judge_message,
    "file": _judge_file,
    "document": _judge_document,
}
_APPLY: dict[str, Callable[[Standing, Subject, Said], None]] = {
    "post": _apply_post,
    "thread": _apply_message,
    "file": _apply_file,
    "document": _apply_document,
}


def moment(said: str) -> datetime:
    return datetime.fromisoformat(said)


def text(when: datetime) -> str:
    return when.isoformat().replace("+00:00", "Z")
