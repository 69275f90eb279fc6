"""What can be asked of a community. Every answer is judged by the rights that the whole history gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from everlog.domains.community import rules
from everlog.domains.community.events import COMMUNITY, DOCUMENT, FILE, POST, THREAD, name_of, stream_of
from everlog.domains.community.said import Said
from everlog.domains.community.standing import RANKS, Standing, nothing_said
from everlog.domains.community.views import Chats, Documents, Files, Manifest, Market, Threads, day_of_message
from everlog.errors import NoSuchSubject, ViewStopped
from everlog.log.log import Log
from everlog.views.view import View

MESSAGES = 50
"""How many messages of a thread are shown if nobody says otherwise."""


class Messages(msgspec.Struct, frozen=True):
    """Messages, the oldest first, what does not count among them, and the standing that they were judged by."""

    messages: list[dict[str, Any]]
    ignored: list[dict[str, Any]]
    standing: Standing


# ---- the community itself


def communities(log: Log) -> list[dict[str, Any]]:
    """Every community that this log knows."""
    found = []
    for key, state in log.view(Manifest).items():
        standing = Standing(state, key.partition("/")[2])
        if standing.exists:
            members = len(standing.with_status("member"))
            found.append({"community": standing.community, "name": state["name"], "members": members})
    return found


def meant(log: Log, *, named: str = "", usual: str = "") -> str:
    """The community that somebody means: the one that they name, their usual one, or the only one that there is."""
    if named:
        return named
    found = [str(one["community"]) for one in communities(log)]
    if usual in found:
        return usual
    if len(found) == 1:
        return found[0]
    raise NoSuchSubject(
        "it is not said which community is meant" if found else "there is no community",
        why=f"the communities here are {', '.join(found)}" if found else "none was created in this log",
        hint=f"everlog community show --scope {found[0]}" if found else "everlog community create NAME",
    )


def standing(log: Log, community: str) -> Standing:
    """How a community stands, for the rules; one of which nothing is known stands like that."""
    answer = log.view(Manifest).get(f"{COMMUNITY}/{community}")
    if answer.parked or answer.stopped_at:
        raise ViewStopped(
            f"the view {Manifest.name} is stopped",
            why="what it says may be out of date, and rights are not decided from that",
            hint=f"everlog views dead-letters {Manifest.name}",
            view=Manifest.name,
        )
    return Standing(answer.state if answer.found else nothing_said(), community)


def manifest(log: Log, community: str) -> dict[str, Any]:
    """Name, members, policy, nodes, and what was ignored."""
    state = _existing(log, community).state
    shown = ("name", "about", "created_at", "created_by", "policy", "nodes", "ignored")
    return {"community": community, **{name: state[name] for name in shown}, "members": members(log, community)}


def members(log: Log, community: str, *, everybody: bool = False) -> list[dict[str, Any]]:
    """The members, those with the higher roles first; with `everybody` also who was invited or revoked."""
    found = _existing(log, community)
    people: list[dict[str, Any]] = []
    for who, member in found.state["members"].items():
        if everybody or member["status"] == "member":
            shown = {name: member[name] for name in ("status", "role", "name", "joined_at", "ended_at", "reason")}
            people.append({"member": who, **shown, "nodes": found.nodes_of(who)})
    return sorted(people, key=lambda one: (-RANKS[one["role"]], one["status"], one["member"]))


# ---- the market


def posts(
    log: Log, community: str, *, now: datetime | None = None, over: bool = False, kind: str = "", by: str = ""
) -> list[dict[str, Any]]:
    """Posts that are open, or with `over` all of them, by the time at which they will be over."""
    standing, at = _existing(log, community), now or datetime.now(UTC)
    found = []
    for name, told in _subjects(log, Market, standing, POST):
        if told.subject:
            one = _shown_post(name, told, at)
            if (over or one["status"] == "open") and kind in ("", one["kind"]) and by in ("", one["by"]):
                found.append(one)
    return sorted(found, key=lambda one: (one["expires_at"], one["post"]))


def post(log: Log, community: str, name: str, *, now: datetime | None = None) -> dict[str, Any]:
    """One post, with what was said of it in vain."""
    told = _one(log, Market, _existing(log, community), POST, name)
    if not told.subject:
        raise _missing("post", name, "posts")
    return {**_shown_post(name, told, now or datetime.now(UTC)), "ignored": told.ignored}


def _shown_post(name: str, told: rules.Told, now: datetime) -> dict[str, Any]:
    passed = rules.moment(told.subject["expires_at"]) <= now
    # Nobody has to say so: a post is over when its time has passed. `due` tells that nobody did yet.
    due = told.subject["status"] == "open" and passed
    return {"post": name, **told.subject, "status": "expired" if passed else told.subject["status"], "due": due}


# ---- chats


def threads(log: Log, community: str) -> list[dict[str, Any]]:
    """The threads, the one with the newest message first. `sent` counts all messages, also those without a right."""
    standing = _existing(log, community)
    found = []
    for stream, state in _rows(log, Threads, f"{THREAD}/{community}:"):
        thread = name_of(stream)
        recent = [{"message": key, **one} for key, one in _told(standing, THREAD, thread, state["recent"]).items()]
        last = recent[-1:] or messages(log, community, thread, limit=1).messages
        if last:
            sent = sum(state["days"].values())
            newest = {f"last_{name}": last[-1][name] for name in ("message", "at", "by", "text")}
            found.append({"thread": thread, "sent": sent, "days": len(state["days"]), **newest})
    return sorted(found, key=lambda one: (one["last_at"], one["last_message"]), reverse=True)


def messages(
    log: Log, community: str, thread: str, *, limit: int = MESSAGES, named: Sequence[str] | None = None
) -> Messages:
    """The newest messages of a thread, or those that are named, with who got and read each."""
    standing, stream = _existing(log, community), stream_of(THREAD, community, thread)
    days = sorted({*map(day_of_message, named)} if named is not None else _days(log, stream), reverse=True)
    found: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for day in days:
        row = log.view(Chats).get(f"{stream}/{day}")
        told = rules.tell(standing, THREAD, thread, _said(row.state["said"] if row.found else ()))
        wanted = [key for key in told.subject if named is None or key in named]
        found = [_shown_message(key, told.subject[key]) for key in wanted] + found
        left_out = told.ignored + left_out
        if named is None and len(found) >= limit:
            break
    return Messages(found if named is not None else found[-limit:], left_out, standing)


def _days(log: Log, stream: str) -> list[str]:
    row = log.view(Threads).get(stream)
    return list(row.state["days"]) if row.found else []


def _shown_message(key: str, message: dict[str, Any]) -> dict[str, Any]:
    state = "read" if message["read"] else "delivered" if message["delivered"] else "sent"
    return {"message": key, **message, "state": state}


# ---- files and documents


def files(log: Log, community: str) -> list[dict[str, Any]]:
    """The files that somebody keeps, and who does."""
    found = []
    for cid, told in _subjects(log, Files, _existing(log, community), FILE):
        if told.subject:
            names = sorted({kept["name"] for kept in told.subject.values() if kept["name"]})
            sizes = sorted({kept["size_bytes"] for kept in told.subject.values() if kept["size_bytes"] is not None})
            size = sizes[0] if len(sizes) == 1 else None  # the name is by the content: two sizes are somebody's error
            found.append({"cid": cid, "names": names, "size_bytes": size, "providers": told.subject})
    return found


def documents(log: Log, community: str) -> list[dict[str, Any]]:
    """The documents that can be searched by meaning."""
    found = _subjects(log, Documents, _existing(log, community), DOCUMENT)
    return [{"document": name, **told.subject} for name, told in found if told.subject]


# ---- what does not count


def ignored(log: Log, community: str) -> list[dict[str, Any]]:
    """Everything that was said without a right to it, in causal order of each subject, and why it does not count."""
    standing = _existing(log, community)
    found = [{"stream": f"{COMMUNITY}/{community}", **one} for one in standing.state["ignored"]]
    subjects: list[tuple[type[View], str]] = [(Market, POST), (Files, FILE), (Documents, DOCUMENT)]
    for view, kind in subjects:
        for name, told in _subjects(log, view, standing, kind):
            found += [{"stream": stream_of(kind, community, name), **one} for one in told.ignored]
    for key, state in _rows(log, Chats, f"{THREAD}/{community}:"):
        stream, _, _ = key.rpartition("/")
        left_out = rules.tell(standing, THREAD, name_of(stream), _said(state["said"])).ignored
        found += [{"stream": stream, **one} for one in left_out]
    return found


# ---- inside


def _existing(log: Log, community: str) -> Standing:
    found = standing(log, community)
    if not found.exists:
        known = ", ".join(one["community"] for one in communities(log))
        raise NoSuchSubject(
            f"there is no community {community}",
            why=f"the communities here are {known}" if known else "none was created in this log",
            hint=f"everlog community create {community}" if not known else f"everlog community show --scope {known}",
        )
    return found


def _subjects(log: Log, view: type[View], standing: Standing, kind: str) -> Iterator[tuple[str, rules.Told]]:
    for key, state in _rows(log, view, f"{kind}/{standing.community}:"):
        name = name_of(key)
        yield name, rules.tell(standing, kind, name, _said(state["said"]))


def _one(log: Log, view: type[View], standing: Standing, kind: str, name: str) -> rules.Told:
    row = log.view(view).get(stream_of(kind, standing.community, name))
    return rules.tell(standing, kind, name, _said(row.state["said"] if row.found else ()))


def _told(standing: Standing, kind: str, name: str, said: Sequence[Any]) -> dict[str, Any]:
    return rules.tell(standing, kind, name, _said(said)).subject


def _rows(log: Log, view: type[View], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, state in log.view(view).items(after=prefix):
        if not key.startswith(prefix):
            return
        # A community's id may begin with another's and a colon; a name within one has none.
        if ":" not in key.removeprefix(prefix):
            yield key, state


def _said(rows: Sequence[Any]) -> list[Said]:
    return msgspec.convert(list(rows), list[Said])


def _missing(what: str, name: str, listed: str) -> NoSuchSubject:
    return NoSuchSubject(
        f"there is no {what} {name}", why="nothing that counts was said of it", hint=f"everlog community {listed}"
    )
