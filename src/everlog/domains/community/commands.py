"""What can be done in a community, for whoever serves people: a command line, a server, a program.

    commands.create(log, "hearth", Created(name="The hearth"), by=By(actor="user:ada"))
    commands.invite(log, "hearth", Invited(member="user:bob"), by=By(actor="user:ada"))
    commands.join(log, "hearth", by=By(actor="user:bob"))
    commands.say(log, "hearth", "general", "hello", by=By(actor="user:bob"))

Whoever does something must have the right to it now, and speak from a node of theirs: this log. `asking` has what
can be asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from everlog.core.ids import new_id, parse_id
from everlog.core.query import Query
from everlog.domains.community import DOMAIN, asking, rules
from everlog.domains.community.events import (
    COMMUNITY,
    DOCUMENT,
    FILE,
    ID_PATTERN,
    NAME_PATTERN,
    POST,
    THREAD,
    CidAdvertised,
    CidUnpinned,
    Created,
    Demoted,
    DocumentIngested,
    Invited,
    Joined,
    ManifestUpdated,
    MessageDelivered,
    MessageRead,
    MessageSent,
    PolicyUpdated,
    PostCreated,
    PostExpired,
    PostUpdated,
    Promoted,
    Revoked,
    stream_of,
)
from everlog.domains.community.rights import fingerprint
from everlog.domains.community.said import Said, in_order, saying
from everlog.domains.community.standing import Standing
from everlog.domains.deciding import NOBODY, By, Done, History, On, decide
from everlog.errors import EverlogError, InvalidField
from everlog.log.log import Log


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, and what it is called: a community, a member, a post, a message …"""

    community: str
    name: str
    done: Done


# ---- the community itself


def create(log: Log, community: str, what: Created, *, sealed: bool = False, by: By = NOBODY) -> Step:
    """Begin a community; who does is its first admin. A sealed id names its founder: nobody else can begin it."""
    if sealed:
        community = f"{community}~{fingerprint(by.actor or log.actor, here(log))}"
    return _govern(log, community, community, "create", what, by, f"create {community}")


def invite(log: Log, community: str, what: Invited, *, by: By = NOBODY) -> Step:
    """Let somebody join."""
    return _govern(log, community, what.member, "invite", what, by, f"invite {what.member} as {what.role}")


def join(log: Log, community: str, *, name: str = "", by: By = NOBODY) -> Step:
    """Accept an invitation. From then on its member speaks from this node."""
    return _govern(log, community, by.actor or log.actor, "join", Joined(name=name), by, f"join {community}")


def revoke(log: Log, community: str, member: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """End a membership, or an invitation. Everybody may end their own."""

    def taking(standing: Standing) -> Revoked:
        return Revoked(member=member, upto=_chain_ends(log, standing.nodes_of(member)), reason=reason)

    asked = {"member": member, "reason": reason}
    return _govern(log, community, member, "revoke", taking, by, f"revoke {member}", asked)


def promote(log: Log, community: str, member: str, *, to: Any, by: By = NOBODY) -> Step:
    """Give a member a higher role."""
    what = Promoted(member=member, role=to)
    return _govern(log, community, member, "promote", what, by, f"promote {member} to {to}")


def demote(log: Log, community: str, member: str, *, to: Any, reason: str = "", by: By = NOBODY) -> Step:
    """Give a member a lower role. Everybody may lower their own."""

    def taking(standing: Standing) -> Demoted:
        return Demoted(member=member, role=to, upto=_chain_ends(log, standing.nodes_of(member)), reason=reason)

    asked = {"member": member, "to": to, "reason": reason}
    return _govern(log, community, member, "demote", taking, by, f"demote {member} to {to}", asked)


def set_policy(log: Log, community: str, what: PolicyUpdated, *, by: By = NOBODY) -> Step:
    """Say who may do what. Nothing is recorded if it is so already."""

    def is_so(standing: Standing) -> bool:
        changes = {name: value for name, value in msgspec.structs.asdict(what).items() if value is not None}
        policy: dict[str, Any] = standing.state["policy"]
        return changes.items() <= policy.items()

    return _govern(log, community, community, "policy", what, by, "change the policy", unless=is_so)


def describe_node(log: Log, community: str, what: ManifestUpdated | None = None, *, by: By = NOBODY) -> Step:
    """Say what a node is and can do, this one if none is named; and speak from there, too, from now on."""
    what = what or ManifestUpdated(node=here(log))
    return _govern(log, community, what.node, "node", what, by, f"describe the node {what.node}")


# ---- the market


def post(
    log: Log, community: str, what: PostCreated, *, name: str = "", days: int | None = None, by: By = NOBODY
) -> Step:
    """Put something on the market. It is over at `expires_at`, or after so many days."""
    called = name or new_id().lower()
    asked = {"name": name, "post": msgspec.to_builtins(what)}
    if days is not None:  # asked in days: so a retry, which is later, asks for the same
        asked["days"] = days
        what = replace(what, expires_at=_in_days(days, by))
    return _tell(log, community, POST, called, "post", what, by, f"create the post {called}", asked)


def update_post(
    log: Log, community: str, name: str, what: PostUpdated, *, days: int | None = None, by: By = NOBODY
) -> Step:
    """Change what a post says. Nothing is recorded if it says so already. `days`: how long it is open from now on."""
    asked = {"name": name, "post": msgspec.to_builtins(what)}
    if days is not None:
        asked["days"] = days
        what = replace(what, expires_at=_in_days(days, by))

    def is_so(subject: rules.Subject) -> bool:
        changes = {key: value for key, value in msgspec.to_builtins(what).items() if value is not None}
        return changes.items() <= subject.items()

    return _tell(log, community, POST, name, "update", what, by, f"update the post {name}", asked, unless=is_so)


def expire(log: Log, community: str, name: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """Say that a post is over."""
    what = PostExpired(reason=reason)
    return _tell(log, community, POST, name, "expire", what, by, f"end the post {name}")


def expire_due(log: Log, community: str, *, now: datetime | None = None, by: By = NOBODY) -> list[Step]:
    """Say of every post whose time has passed that it is over: of one's own, and as a moderator of all.

    All of them are recorded together, or none.
    """
    given = _by(log, community, by)

    def rule(history: History) -> Iterable[Any]:
        history.relies_on(Query(stream=_stream(community)))
        history.relies_on(Query(kind=POST, scope=community))
        standing = asking.standing(log, community)
        all_of_them = standing.role(given.actor) in ("moderator", "admin")
        what = PostExpired(reason="its time has passed")
        said = _saying(log, what, given)
        for one in asking.posts(log, community, now=now, over=True):
            if one["due"] and (all_of_them or one["by"] == given.actor):
                name = one["post"]
                stream = stream_of(POST, community, name)
                events = [recorded.event for recorded in log.read(stream=stream, upto=history.upto)]
                before = rules.tell(standing, POST, name, in_order(events))
                _insist(log, standing, said, f"end the post {name}", kind=POST, subject=before.subject, name=name)
                yield On(stream, what)

    done = decide(
        log,
        DOMAIN,
        looks_at=(),
        stream=_stream(community),
        by=given,
        operation="community expire",
        request={"due": True},
        rule=rule,
    )
    return [
        Step(community=community, name=one.event.stream.rpartition(":")[2], done=replace(done, records=(one,)))
        for one in done.records
    ]


# ---- chats


def say(log: Log, community: str, thread: str, text: str, *, reply_to: str = "", by: By = NOBODY) -> Step:
    """Send a message to a thread. The step's name is the message's id."""
    what = MessageSent(text=text, reply_to=reply_to)
    asked = {"thread": thread, "text": text, "reply_to": reply_to}
    step = _tell(log, community, THREAD, thread, "say", what, by, f"speak in {thread}", asked, looks_back=False)
    return replace(step, name=step.done.events[0].id)


def mark(
    log: Log, community: str, thread: str, messages: Sequence[str] = (), *, read: bool = True, by: By = NOBODY
) -> Step:
    """Record that messages were read, or only delivered: those that are named, or every recent one that is new."""
    actor = by.actor or log.actor
    model, verb = (MessageRead, "read") if read else (MessageDelivered, "delivered")
    given = _by(log, community, by)
    stream = stream_of(THREAD, community, thread)
    asked = {"thread": thread, "messages": list(messages), "read": read}

    def rule(history: History) -> Iterable[Any]:
        history.relies_on(Query(stream=_stream(community)))
        history.relies_on(Query(stream=stream, actor=given.actor, types=frozenset((f"chat.message.{verb}",))))
        named = [parse_id(message) for message in messages]
        found = asking.messages(log, community, thread, named=named or None)
        known = {one["message"]: one for one in found.messages}
        wanted = named or [one["message"] for one in found.messages if one["by"] != actor]
        for message in wanted:
            what = model(message=message)
            said = _saying(log, what, given)
            _insist(log, found.standing, said, f"mark {message}", kind=THREAD, subject=known, name=thread)
            if actor not in known[message][verb]:
                yield what

    done = decide(
        log,
        DOMAIN,
        looks_at=(),
        stream=stream,
        by=given,
        operation="community read" if read else "community deliver",
        request=asked,
        rule=rule,
    )
    return Step(community=community, name=thread, done=done)


# ---- files and documents


def advertise(
    log: Log,
    community: str,
    cid: str,
    *,
    name: str = "",
    size_bytes: int | None = None,
    media_type: str = "",
    by: By = NOBODY,
) -> Step:
    """Tell that a file is kept here."""
    asked: dict[str, Any] = {"cid": cid, "name": name, "size_bytes": size_bytes, "media_type": media_type}
    return _tell(
        log, community, FILE, cid, "advertise", lambda: CidAdvertised(**asked), by, f"advertise {cid}", asked
    )


def unpin(log: Log, community: str, cid: str, *, provider: str = "", by: By = NOBODY) -> Step:
    """Tell that a file is not kept any more: by oneself, or, for a moderator, by somebody else."""
    asked = {"cid": cid, "provider": provider}
    return _tell(log, community, FILE, cid, "unpin", lambda: CidUnpinned(**asked), by, f"unpin {cid}", asked)


def ingest(
    log: Log,
    community: str,
    title: str,
    *,
    name: str = "",
    source: str = "",
    cid: str = "",
    chunks: int = 0,
    model: str = "",
    by: By = NOBODY,
) -> Step:
    """Tell that a document was made searchable, for the first time or anew."""
    called = name or new_id().lower()
    what: dict[str, Any] = {"title": title, "source": source, "cid": cid, "chunks": chunks, "model": model}
    asked = {"name": name, **what}

    def made() -> DocumentIngested:
        return DocumentIngested(**what)

    return _tell(log, community, DOCUMENT, called, "ingest", made, by, f"ingest {called}", asked, looks_back=False)


# ---- inside


def here(log: Log) -> str:
    """The node that this log is. A clone gets an origin of its own with its first write: it is made sure of here."""
    return log.identity.origin or log.in_one_write(lambda writer: log.identity.origin)


def _govern(
    log: Log,
    community: str,
    name: str,
    verb: str,
    what: Any,
    by: By,
    tried: str,
    asked: Any = None,
    *,
    unless: Callable[[Standing], bool] = lambda standing: False,
) -> Step:
    """Say something of the community itself, which may depend on how it stands; nothing if that is so already."""
    given = _by(log, community, by)
    stream = _stream(community)

    def rule(history: History) -> Iterable[Any]:
        history.relies_on(Query(stream=stream))
        _require(ID_PATTERN, "id of a community", community, "hearth")
        standing = asking.standing(log, community)
        payload = what(standing) if callable(what) else what
        _insist(log, standing, _saying(log, payload, given), tried)
        return [] if unless(standing) else [payload]

    done = decide(
        log,
        DOMAIN,
        looks_at=(),
        stream=stream,
        by=given,
        operation=f"community {verb}",
        request=msgspec.to_builtins(what) if asked is None else asked,
        rule=rule,
    )
    return Step(community=community, name=name, done=done)


def _tell(
    log: Log,
    community: str,
    kind: str,
    name: str,
    verb: str,
    what: Any,
    by: By,
    tried: str,
    asked: Any = None,
    *,
    unless: Callable[[rules.Subject], bool] = lambda subject: False,
    looks_back: bool = True,
) -> Step:
    """Say something of a post, a thread, a file or a document, after a look at what was said of it before."""
    given = _by(log, community, by)
    stream = stream_of(kind, community, name)

    def rule(history: History) -> Iterable[Any]:
        history.relies_on(Query(stream=_stream(community)))
        _require(NAME_PATTERN, f"name of a {kind}", name, "lamp-1")
        standing = asking.standing(log, community)
        before = rules.tell(standing, kind, name, in_order([recorded.event for recorded in history]))
        payload = what() if callable(what) else what
        said = _saying(log, payload, given)
        _insist(log, standing, said, tried, kind=kind, subject=before.subject, name=name)
        return [] if unless(before.subject) else [payload]

    done = decide(
        log,
        DOMAIN,
        looks_at=Query(stream=stream) if looks_back else (),
        stream=stream,
        by=given,
        operation=f"community {verb}",
        request=msgspec.to_builtins(what) if asked is None else asked,
        rule=rule,
    )
    recorded = done.events[0].stream if done.events else stream
    return Step(community=community, name=recorded.rpartition(":")[2], done=done)


def _insist(log: Log, standing: Standing, said: Said, tried: str, **about: Any) -> None:
    try:
        rules.insist(standing, said, tried, **about)
    except EverlogError as error:
        alone = len(asking.communities(log)) < 2
        if error.hint.startswith("everlog community ") and "--scope" not in error.hint and not alone:
            # Without it, the command would ask which one is meant. What follows it is no part of the command.
            typed, semicolon, note = error.hint.partition("; ")
            error.hint = f"{typed} --scope {standing.community}{semicolon}{note}"
        raise


def _by(log: Log, community: str, by: By) -> By:
    """What a community's events carry: its id as their scope, and somebody who says it."""
    return replace(by, actor=by.actor or log.actor, scope=community)


def _in_days(days: int, by: By) -> datetime:
    return (by.at or datetime.now(UTC)) + timedelta(days=days)


def _saying(log: Log, what: Any, by: By) -> Said:
    # A time without a zone is refused by the log itself; it must get there.
    at = by.at.astimezone(UTC) if by.at is not None and by.at.tzinfo is not None else datetime.now(UTC)
    return saying(what, by=by.actor, origin=here(log), at=rules.text(at))


def _chain_ends(log: Log, nodes: Iterable[str]) -> dict[str, int]:
    """How far the chains of some nodes are known here."""
    wanted = list(nodes)
    return log.in_one_write(lambda writer: {node: writer.link(node).origin_seq for node in wanted})


def _stream(community: str) -> str:
    return f"{COMMUNITY}/{community}"


def _require(pattern: str, field: str, found: str, example: str) -> None:
    if re.fullmatch(pattern, found) is None:
        raise InvalidField(
            f"the {field} is {found!r:.80}",
            why="it is made of letters, digits, dots, dashes and underscores, and begins with one of the first two",
            hint=f"give it as in {example}",
            field=field,
        )
