"""The questions of the community program. Every answer is judged by the rights that the whole history gives.

What is outside of `within` does not exist: a community is a scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from everlog.core.query import in_scope
from everlog.errors import NoSuchSubject, ViewStopped
from everlog.programs.command import Question
from everlog.programs.community import rules
from everlog.programs.community.events import COMMUNITY, DOCUMENT, FILE, POST, THREAD, name_of, stream_of
from everlog.programs.community.membership import RANKS, Standing, no_acts
from everlog.programs.community.reading import ACTS, Act
from everlog.programs.community.views import Chats, Documents, Files, Manifest, Market, Threads, day_of_message
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

R = TypeVar("R")
Row = dict[str, Any]
MESSAGES = 50
"""The default number of messages of a thread in an answer."""


class Messages(msgspec.Struct, frozen=True):
    """Messages, the oldest first; those that do not count; and the standing by which they were judged."""

    messages: list[dict[str, Any]]
    ignored: list[dict[str, Any]]
    standing: Standing


# ---- the community itself


def communities(log: Log) -> list[dict[str, Any]]:
    """Return every community that this log knows."""
    found = []
    for key, state in log.view(Manifest).items():
        standing = Standing(state, key.partition("/")[2])
        if standing.exists:
            members = len(standing.with_status("member"))
            found.append({"community": standing.community, "name": state["name"], "members": members})
    return found


def meant(log: Log, *, named: str = "", usual: str = "", within: str = "") -> str:
    """Return the community that a caller means: the named one, the usual one, or the only one that there is."""
    if named:
        require_within(named, within)
        return named
    found = [str(one["community"]) for one in communities(log) if in_scope(str(one["community"]), within)]
    if usual in found:
        return usual
    if len(found) == 1:
        return found[0]
    raise NoSuchSubject(
        "no community is named" if found else "there is no community",
        why=f"the communities here are {', '.join(found)}" if found else "none was created in this log",
        hint=f"everlog community show --scope {found[0]}" if found else "everlog community create NAME",
    )


def require_within(community: str, within: str) -> None:
    """Refuse a community that the caller may not see, in the words of one that does not exist."""
    if not in_scope(community, within):
        raise NoSuchSubject(
            f"there is no community {community}", why=f"there is none in {within}", hint="everlog community show"
        )


def standing(log: Log, community: str) -> Standing:
    """Return the standing of a community, for the rules; an empty one if the community does not exist."""
    answer = log.view(Manifest).get(f"{COMMUNITY}/{community}")
    if answer.parked or answer.stopped_at:
        raise ViewStopped(
            f"the view {Manifest.name} is stopped",
            why="its rows may be out of date, and rights are not decided from outdated rows",
            hint=f"everlog views dead-letters {Manifest.name}",
            view=Manifest.name,
        )
    return Standing(answer.state if answer.found else no_acts(), community)


def manifest(log: Log, community: str) -> dict[str, Any]:
    """Return name, members, policy, nodes, and what was ignored."""
    state = _existing(log, community).state
    shown = ("name", "about", "created_at", "created_by", "policy", "nodes", "ignored")
    return {"community": community, **{name: state[name] for name in shown}, "members": members(log, community)}


def members(log: Log, community: str, *, everybody: bool = False) -> list[dict[str, Any]]:
    """Return the members, the higher roles first; with `everybody` also those who were invited or revoked."""
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
    """Return the posts that are open, or with `over` all of them, by the time at which they will be over."""
    standing, at = _existing(log, community), now or datetime.now(UTC)
    found = []
    for name, folded in _subjects(log, Market, standing, POST):
        if folded.subject:
            one = _shown_post(name, folded, at)
            if (over or one["status"] == "open") and kind in ("", one["kind"]) and by in ("", one["by"]):
                found.append(one)
    return sorted(found, key=lambda one: (one["expires_at"], one["post"]))


def post(log: Log, community: str, name: str, *, now: datetime | None = None) -> dict[str, Any]:
    """Return one post, with the events about it that do not count."""
    folded = _one(log, Market, _existing(log, community), POST, name)
    if not folded.subject:
        raise _missing("post", name, "posts")
    return {**_shown_post(name, folded, now or datetime.now(UTC)), "ignored": folded.ignored}


def _shown_post(name: str, folded: rules.FoldedSubject, now: datetime) -> dict[str, Any]:
    passed = rules.moment(folded.subject["expires_at"]) <= now
    # A post is over when its time has passed, recorded or not. `due` means: not recorded yet.
    due = folded.subject["status"] == "open" and passed
    return {"post": name, **folded.subject, "status": "expired" if passed else folded.subject["status"], "due": due}


# ---- chats


def threads(log: Log, community: str) -> list[dict[str, Any]]:
    """Return the threads, the newest message last. `sent` counts all messages, also those without a right."""
    standing = _existing(log, community)
    found = []
    for stream, state in _rows(log, Threads, f"{THREAD}/{community}:"):
        thread = name_of(stream)
        recent = [
            {"message": key, **one} for key, one in _subject_of(standing, THREAD, thread, state["recent"]).items()
        ]
        last = recent[-1:] or messages(log, community, thread, limit=1).messages
        if last:
            sent = sum(state["days"].values())
            newest = {f"last_{name}": last[-1][name] for name in ("message", "at", "by", "text")}
            found.append({"thread": thread, "sent": sent, "days": len(state["days"]), **newest})
    return sorted(found, key=lambda one: (one["last_at"], one["last_message"]))


def messages(
    log: Log, community: str, thread: str, *, limit: int = MESSAGES, named: Sequence[str] | None = None
) -> Messages:
    """Return the newest messages of a thread, or those that are named, and which members received and read each."""
    standing, stream = _existing(log, community), stream_of(THREAD, community, thread)
    days = sorted({*map(day_of_message, named)} if named is not None else _days(log, stream), reverse=True)
    found: list[dict[str, Any]] = []
    left_out: list[dict[str, Any]] = []
    for day in days:
        row = log.view(Chats).get(f"{stream}/{day}")
        folded = rules.fold_subject(standing, THREAD, thread, _acts(row.state[ACTS] if row.found else ()))
        wanted = [key for key in folded.subject if named is None or key in named]
        found = [_shown_message(key, folded.subject[key]) for key in wanted] + found
        left_out = folded.ignored + left_out
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
    """Return the files that members keep, and who does."""
    found = []
    for cid, folded in _subjects(log, Files, _existing(log, community), FILE):
        if folded.subject:
            names = sorted({kept["name"] for kept in folded.subject.values() if kept["name"]})
            sizes = sorted({kept["size_bytes"] for kept in folded.subject.values() if kept["size_bytes"] is not None})
            size = sizes[0] if len(sizes) == 1 else None  # a CID names one content: of two sizes, one is wrong
            found.append({"cid": cid, "names": names, "size_bytes": size, "providers": folded.subject})
    return found


def documents(log: Log, community: str) -> list[dict[str, Any]]:
    """Return the documents that can be searched by meaning."""
    found = _subjects(log, Documents, _existing(log, community), DOCUMENT)
    return [{"document": name, **folded.subject} for name, folded in found if folded.subject]


# ---- what does not count


def ignored(log: Log, community: str) -> list[dict[str, Any]]:
    """Return every event that does not count, in causal order of each subject, with the reason."""
    standing = _existing(log, community)
    found = [{"stream": f"{COMMUNITY}/{community}", **one} for one in standing.state["ignored"]]
    subjects: list[tuple[type[View], str]] = [(Market, POST), (Files, FILE), (Documents, DOCUMENT)]
    for view, kind in subjects:
        for name, folded in _subjects(log, view, standing, kind):
            found += [{"stream": stream_of(kind, community, name), **one} for one in folded.ignored]
    for key, state in _rows(log, Chats, f"{THREAD}/{community}:"):
        stream, _, _ = key.rpartition("/")
        left_out = rules.fold_subject(standing, THREAD, name_of(stream), _acts(state[ACTS])).ignored
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


def _subjects(log: Log, view: type[View], standing: Standing, kind: str) -> Iterator[tuple[str, rules.FoldedSubject]]:
    for key, state in _rows(log, view, f"{kind}/{standing.community}:"):
        name = name_of(key)
        yield name, rules.fold_subject(standing, kind, name, _acts(state[ACTS]))


def _one(log: Log, view: type[View], standing: Standing, kind: str, name: str) -> rules.FoldedSubject:
    row = log.view(view).get(stream_of(kind, standing.community, name))
    return rules.fold_subject(standing, kind, name, _acts(row.state[ACTS] if row.found else ()))


def _subject_of(standing: Standing, kind: str, name: str, act: Sequence[Any]) -> dict[str, Any]:
    return rules.fold_subject(standing, kind, name, _acts(act)).subject


def _rows(log: Log, view: type[View], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, state in log.view(view).items(after=prefix):
        if not key.startswith(prefix):
            return
        # A community's id may begin with another's and a colon; a name within one has none.
        if ":" not in key.removeprefix(prefix):
            yield key, state


def _acts(rows: Sequence[Any]) -> list[Act]:
    return msgspec.convert(list(rows), list[Act])


def _missing(what: str, name: str, listed: str) -> NoSuchSubject:
    return NoSuchSubject(
        f"there is no {what} {name}", why="no event that counts is about it", hint=f"everlog community {listed}"
    )


# ---- as values


class CommunityQuestion(Question[R], Generic[R], frozen=True, kw_only=True):
    """What all questions of this program share."""

    shared = ("community",)
    community: Annotated[str, Meta(description="The community, if there are several.")] = ""

    def find(self, log: Log, community: str) -> R:
        raise NotImplementedError

    def answer(self, log: Log, within: str) -> R:
        community = meant(log, named=self.community, within=within)
        if within and not standing(log, community).exists:
            raise NoSuchSubject(f"there is no community {community}", why=f"none was created in {within}")
        return self.find(log, community)


class Communities(Question[list[Row]], frozen=True, kw_only=True):
    """Show every community that this log knows."""

    verb = "list"
    example: ClassVar[dict[str, Any]] = {}
    columns = ("community", "name", "members")

    def answer(self, log: Log, within: str) -> list[Row]:
        return [one for one in communities(log) if in_scope(str(one["community"]), within)]


class Members(CommunityQuestion[list[Row]], frozen=True, kw_only=True):
    """Show the members, the higher roles first."""

    verb = "members"
    examples = ("members --everybody",)
    example: ClassVar[dict[str, Any]] = {"everybody": True}
    columns = ("member", "role", "status", "name", "joined_at")
    everybody: Annotated[bool, Meta(description="Also show actors who were invited or revoked.")] = False

    def find(self, log: Log, community: str) -> list[Row]:
        return members(log, community, everybody=self.everybody)


class Show(CommunityQuestion[Row], frozen=True, kw_only=True):
    """Show a community: its members, policy and nodes, and the events that do not count."""

    verb = "show"
    examples = ("show --json",)
    example: ClassVar[dict[str, Any]] = {}

    def find(self, log: Log, community: str) -> Row:
        return manifest(log, community)


class Policy(CommunityQuestion[Row], frozen=True, kw_only=True):
    """Show the policy: which role each action needs."""

    verb = "policy"
    examples = ("policy",)
    example: ClassVar[dict[str, Any]] = {}

    def find(self, log: Log, community: str) -> Row:
        found: Row = manifest(log, community)["policy"]
        return found


class Ignored(CommunityQuestion[list[Row]], frozen=True, kw_only=True):
    """Show events that were recorded without the right to do so, and why they do not count.

    They stay in the log. Whether an event counts follows from the history alone, so it is the same on every node.
    """

    verb = "ignored"
    examples = ("ignored",)
    example: ClassVar[dict[str, Any]] = {}
    columns = ("at", "by", "type", "stream", "why", "id")

    def find(self, log: Log, community: str) -> list[Row]:
        return ignored(log, community)


class Posts(CommunityQuestion[list[Row]], frozen=True, kw_only=True):
    """Show the posts on the market; those that end soonest come first."""

    verb = "posts"
    examples = ("posts --kind offer",)
    example: ClassVar[dict[str, Any]] = {"kind": "offer"}
    columns = ("post", "status", "kind", "by", "price", "expires_at", "title")
    over: Annotated[bool, Meta(description="Also show posts that have ended.")] = False
    kind: Annotated[Literal["offer", "request", "notice"] | None, Meta(description="Only posts of this kind.")] = None
    by: Annotated[str, Meta(description="Only posts of this member.")] = ""

    def find(self, log: Log, community: str) -> list[Row]:
        return posts(log, community, over=self.over, kind=self.kind or "", by=self.by)


class OnePost(CommunityQuestion[Row], frozen=True, kw_only=True):
    """Show one post, with the events about it that do not count."""

    verb = "one_post"
    example: ClassVar[dict[str, Any]] = {"community": "hearth", "name": "lamp"}
    name: Annotated[str, Meta(description="The post.")]

    def find(self, log: Log, community: str) -> Row:
        return post(log, community, self.name)


class ThreadList(CommunityQuestion[list[Row]], frozen=True, kw_only=True):
    """Show the threads; the one with the newest message comes first."""

    verb = "threads"
    examples = ("chats",)
    example: ClassVar[dict[str, Any]] = {}
    columns = ("thread", "last_at", "last_by", "last_text")

    def find(self, log: Log, community: str) -> list[Row]:
        return threads(log, community)


class Chat(CommunityQuestion[Row], frozen=True, kw_only=True):
    """Show the newest messages of a thread, and which members received and read them."""

    verb = "chats"
    examples = ("chats general -n 10",)
    example: ClassVar[dict[str, Any]] = {"thread": "general", "limit": 10}
    thread: Annotated[str, Meta(description="The thread, such as general.")]
    limit: Annotated[int, Meta(ge=1, le=1_000_000, description="The number of messages.")] = MESSAGES

    def find(self, log: Log, community: str) -> Row:
        found = messages(log, community, self.thread, limit=self.limit)
        return {"thread": self.thread, "messages": found.messages, "ignored": found.ignored}


class FileList(CommunityQuestion[list[Row]], frozen=True, kw_only=True):
    """Show the files that members keep, and who keeps them."""

    verb = "files"
    examples = ("files",)
    example: ClassVar[dict[str, Any]] = {}
    columns = ("cid", "names", "size_bytes", "providers")

    def find(self, log: Log, community: str) -> list[Row]:
        return files(log, community)


class DocumentList(CommunityQuestion[list[Row]], frozen=True, kw_only=True):
    """Show the documents that can be searched."""

    verb = "documents"
    examples = ("documents",)
    example: ClassVar[dict[str, Any]] = {}
    columns = ("document", "title", "chunks", "model", "by", "at")

    def find(self, log: Log, community: str) -> list[Row]:
        return documents(log, community)


QUESTIONS = (
    Communities,
    Members,
    Show,
    Policy,
    Ignored,
    Posts,
    OnePost,
    ThreadList,
    Chat,
    FileList,
    DocumentList,
)
