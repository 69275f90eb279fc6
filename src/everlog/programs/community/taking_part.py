"""Commands of members: the market, chats, files and documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from everlog.core.ids import new_id, parse_id
from everlog.core.query import Query
from everlog.programs.command import By, Decision, On, Plan
from everlog.programs.community import questions, rules
from everlog.programs.community.acting import (
    Cid,
    CommunityCommand,
    CommunityResult,
    Days,
    Expired,
    Marked,
    Messages,
    R,
    Sent,
    Thread,
    Why,
    act_now,
    in_days,
    insist,
    require_shape_of,
)
from everlog.programs.community.events import (
    COMMUNITY,
    DOCUMENT,
    FILE,
    NAME_PATTERN,
    POST,
    THREAD,
    CidAdvertised,
    CidUnpinned,
    DocumentIngested,
    MessageDelivered,
    MessageRead,
    MessageSent,
    PostCreated,
    PostExpired,
    PostUpdated,
    stream_of,
)
from everlog.programs.community.reading import in_order

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History


# ---- what members do with a post, a thread, a file or a document


class AboutSubject(CommunityCommand[R], frozen=True, kw_only=True):
    """A command about one subject of the community, after a look at what was recorded about it before."""

    kind = ""
    fact = ""
    looks_back = True

    def subject_name(self) -> str:
        """Return the name of the subject; called once."""
        raise NotImplementedError

    def payload(self, by: By) -> Any:
        raise NotImplementedError

    def asked(self) -> Any:
        raise NotImplementedError

    def tried(self, name: str) -> str:
        raise NotImplementedError

    def is_so(self, subject: rules.Subject, payload: Any) -> bool:
        return False

    def answer(self, community: str, name: str, decision: Decision) -> Any:
        recorded = decision.events[0].stream if decision.events else f":{name}"
        return CommunityResult(kind=self.fact, name=recorded.rpartition(":")[2], community=community)

    def plan(self, log: Log, by: By) -> Plan[R]:
        community, name = self.named(log, by), self.subject_name()
        stream = stream_of(self.kind, community, name)

        def decide(history: History) -> Iterable[Any]:
            history.relies_on(Query(stream=f"{COMMUNITY}/{community}"))
            require_shape_of(NAME_PATTERN, f"name of a {self.kind}", name, "lamp-1")
            standing = questions.standing(log, community)
            before = rules.fold_subject(standing, self.kind, name, in_order([one.event for one in history]))
            payload = self.payload(by)
            now = act_now(log, payload, by)
            insist(log, standing, now, self.tried(name), kind=self.kind, subject=before.subject, name=name)
            return [] if self.is_so(before.subject, payload) else [payload]

        return Plan(
            stream=stream,
            looks_at=Query(stream=stream) if self.looks_back else (),
            decide=decide,
            result=lambda decision: self.answer(community, name, decision),
            by=by,
            scope=community,
            request=self.asked(),
        )


class Post(AboutSubject[CommunityResult], frozen=True, kw_only=True):
    """Put something on the market, under a name that you choose."""

    verb = "post"
    kind, fact = POST, "post"
    examples = ('post desk "A desk, hardly used" --price "5 EUR" --days 14 --actor user:bob',)
    example: ClassVar[dict[str, Any]] = {"name": "desk", "title": "A desk, hardly used", "price": "5 EUR", "days": 14}
    name: Annotated[str, Meta(description="The name of the post (default: a new one).")] = ""
    title: Annotated[str, Meta(description="The title.")]
    type: Annotated[Literal["offer", "request", "notice"], Meta(description="The kind of post.")] = "offer"
    text: Annotated[str, Meta(description="The description.")] = ""
    price: Annotated[str, Meta(description="The price.")] = ""
    days: Days = None

    def subject_name(self) -> str:
        return self.name or new_id().lower()

    def payload(self, by: By) -> PostCreated:
        until = None if self.days is None else in_days(self.days, by)
        return PostCreated(title=self.title, kind=self.type, text=self.text, price=self.price, expires_at=until)

    def asked(self) -> Any:
        # In days: so a retry, which is later, asks for the same.
        what = PostCreated(title=self.title, kind=self.type, text=self.text, price=self.price)
        found = {"name": self.name, "post": msgspec.to_builtins(what)}
        return found if self.days is None else {**found, "days": self.days}

    def tried(self, name: str) -> str:
        return f"create the post {name}"


class UpdatePost(AboutSubject[CommunityResult], frozen=True, kw_only=True):
    """Change one of your posts. Fields that are not given stay as they are."""

    verb = "update"
    kind, fact = POST, "post"
    examples = ('update lamp --price "4 EUR" --actor user:bob',)
    example: ClassVar[dict[str, Any]] = {"name": "lamp", "price": "4 EUR"}
    name: Annotated[str, Meta(description="The post.")]
    title: Annotated[str | None, Meta(description="The title.")] = None
    text: Annotated[str | None, Meta(description="The description.")] = None
    price: Annotated[str | None, Meta(description="The price.")] = None
    days: Annotated[
        Annotated[int, Meta(ge=1, le=3650)] | None,
        Meta(description="The number of days that it stays open from now on."),
    ] = None

    def subject_name(self) -> str:
        return self.name

    def payload(self, by: By) -> PostUpdated:
        until = None if self.days is None else in_days(self.days, by)
        return PostUpdated(title=self.title, text=self.text, price=self.price, expires_at=until)

    def asked(self) -> Any:
        what = PostUpdated(title=self.title, text=self.text, price=self.price)
        found = {"name": self.name, "post": msgspec.to_builtins(what)}
        return found if self.days is None else {**found, "days": self.days}

    def tried(self, name: str) -> str:
        return f"update the post {name}"

    def is_so(self, subject: rules.Subject, payload: Any) -> bool:
        changes = {key: value for key, value in msgspec.to_builtins(payload).items() if value is not None}
        return changes.items() <= subject.items()


class Expire(AboutSubject[CommunityResult], frozen=True, kw_only=True):
    """End a post."""

    verb = "expire"
    kind, fact = POST, "post"
    examples = ("expire lamp --reason sold --actor user:bob",)
    example: ClassVar[dict[str, Any]] = {"name": "lamp", "reason": "sold"}
    name: Annotated[str, Meta(description="The post.")]
    reason: Why = ""

    def subject_name(self) -> str:
        return self.name

    def payload(self, by: By) -> PostExpired:
        return PostExpired(reason=self.reason)

    def asked(self) -> Any:
        return msgspec.to_builtins(PostExpired(reason=self.reason))

    def tried(self, name: str) -> str:
        return f"end the post {name}"


class ExpireDue(CommunityCommand[Expired], frozen=True, kw_only=True):
    """End every post whose time has passed: your own, or all of them if you are a moderator.

    All of them are recorded together, or none.
    """

    verb = "expire_due"
    operation = "community expire"
    examples = ("expire --due",)
    example: ClassVar[dict[str, Any]] = {}

    def plan(self, log: Log, by: By) -> Plan[Expired]:
        community = self.named(log, by)

        def decide(history: History) -> Iterable[Any]:
            history.relies_on(Query(stream=f"{COMMUNITY}/{community}"))
            history.relies_on(Query(kind=POST, scope=community))
            standing = questions.standing(log, community)
            all_of_them = standing.role(by.actor) in ("moderator", "admin")
            what = PostExpired(reason="its time has passed")
            now = act_now(log, what, by)
            for one in questions.posts(log, community, now=by.at, over=True):
                if one["due"] and (all_of_them or one["by"] == by.actor):
                    name = one["post"]
                    stream = stream_of(POST, community, name)
                    events = [recorded.event for recorded in log.read(stream=stream, upto=history.upto)]
                    before = rules.fold_subject(standing, POST, name, in_order(events))
                    insist(log, standing, now, f"end the post {name}", kind=POST, subject=before.subject, name=name)
                    yield On(stream, what)

        def result(decision: Decision) -> Expired:
            names = [one.stream.rpartition(":")[2] for one in decision.events]
            return Expired(posts=names, community=community)

        stream, request = f"{COMMUNITY}/{community}", {"due": True}
        return Plan(stream=stream, looks_at=(), decide=decide, result=result, by=by, scope=community, request=request)


# ---- chats


class Say(AboutSubject[Sent], frozen=True, kw_only=True):
    """Send a message to a thread."""

    verb = "say"
    kind, looks_back = THREAD, False
    examples = ('say general "hello" --actor user:bob',)
    example: ClassVar[dict[str, Any]] = {"thread": "general", "text": "hello"}
    thread: Thread
    text: Annotated[str, Meta(description="The message.")]
    reply_to: Annotated[str, Meta(description="The message that this answers.")] = ""

    def subject_name(self) -> str:
        return self.thread

    def payload(self, by: By) -> MessageSent:
        return MessageSent(text=self.text, reply_to=self.reply_to)

    def asked(self) -> Any:
        return {"thread": self.thread, "text": self.text, "reply_to": self.reply_to}

    def tried(self, name: str) -> str:
        return f"speak in {name}"

    def answer(self, community: str, name: str, decision: Decision) -> Sent:
        return Sent(message=decision.events[0].id, thread=self.thread, community=community)


class Marking(CommunityCommand[Marked], frozen=True, kw_only=True):
    """A command that marks messages: those that are named, or every recent one that is new."""

    thread: Thread
    messages: Messages = msgspec.field(default_factory=list)

    def made(self) -> tuple[Callable[..., Any], str]:
        """Return the payload's class, and the field that it fills."""
        raise NotImplementedError

    def plan(self, log: Log, by: By) -> Plan[Marked]:
        community, (model, verb) = self.named(log, by), self.made()
        stream = stream_of(THREAD, community, self.thread)

        def decide(history: History) -> Iterable[Any]:
            require_shape_of(NAME_PATTERN, "name of a thread", self.thread, "general")
            history.relies_on(Query(stream=f"{COMMUNITY}/{community}"))
            history.relies_on(Query(stream=stream, actor=by.actor, types=frozenset((f"chat.message.{verb}",))))
            named = [parse_id(message) for message in self.messages]
            found = questions.messages(log, community, self.thread, named=named or None)
            known = {one["message"]: one for one in found.messages}
            for message in named or [one["message"] for one in found.messages if one["by"] != by.actor]:
                payload = model(message=message)
                now, tried = act_now(log, payload, by), f"mark {message}"
                insist(log, found.standing, now, tried, kind=THREAD, subject=known, name=self.thread)
                if by.actor not in known[message][verb]:
                    yield payload

        def result(decision: Decision) -> Marked:
            return Marked(thread=self.thread, count=len(decision.records), community=community)

        request = {"thread": self.thread, "messages": list(self.messages), "read": verb == "read"}
        return Plan(stream=stream, looks_at=(), decide=decide, result=result, by=by, scope=community, request=request)


class Deliver(Marking, frozen=True, kw_only=True):
    """Record that messages have reached you: the named ones, or all recent ones."""

    verb = "deliver"
    examples = ("deliver general --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"thread": "general"}

    def made(self) -> tuple[Callable[..., Any], str]:
        return MessageDelivered, "delivered"


class Read(Marking, frozen=True, kw_only=True):
    """Record that you have read messages: the named ones, or all recent ones."""

    verb = "read"
    examples = ("read general --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"thread": "general"}

    def made(self) -> tuple[Callable[..., Any], str]:
        return MessageRead, "read"


# ---- files and documents


class Advertise(AboutSubject[CommunityResult], frozen=True, kw_only=True):
    """Announce that you keep a file and share it with others. The CID must be valid."""

    verb = "advertise"
    kind, fact = FILE, "cid"
    examples = ("advertise bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi --name plan.pdf",)
    example: ClassVar[dict[str, Any]] = {
        "cid": "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",
        "name": "plan.pdf",
    }
    cid: Cid
    name: Annotated[str, Meta(description="The name of the file.")] = ""
    size_bytes: Annotated[Annotated[int, Meta(ge=0)] | None, Meta(description="Its size in bytes.")] = None
    media_type: Annotated[str, Meta(description="Its media type, such as image/png.")] = ""

    def subject_name(self) -> str:
        return self.cid

    def payload(self, by: By) -> CidAdvertised:
        return CidAdvertised(**self.asked())

    def asked(self) -> Any:
        return {"cid": self.cid, "name": self.name, "size_bytes": self.size_bytes, "media_type": self.media_type}

    def tried(self, name: str) -> str:
        return f"advertise {name}"


class Unpin(AboutSubject[CommunityResult], frozen=True, kw_only=True):
    """Announce that you do not keep a file any more."""

    verb = "unpin"
    kind, fact = FILE, "cid"
    examples = ("unpin bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi",)
    example: ClassVar[dict[str, Any]] = {"cid": "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"}
    cid: Cid
    provider: Annotated[str, Meta(description="The member who does not keep it any more; for moderators.")] = ""

    def subject_name(self) -> str:
        return self.cid

    def payload(self, by: By) -> CidUnpinned:
        return CidUnpinned(cid=self.cid, provider=self.provider)

    def asked(self) -> Any:
        return {"cid": self.cid, "provider": self.provider}

    def tried(self, name: str) -> str:
        return f"unpin {name}"


class Ingest(AboutSubject[CommunityResult], frozen=True, kw_only=True):
    """Record that a document was made searchable, for the first time or again."""

    verb = "ingest"
    kind, fact, looks_back = DOCUMENT, "document", False
    examples = ('ingest manual "How to light the stove" --source stove.pdf --chunks 42 --model small',)
    example: ClassVar[dict[str, Any]] = {
        "name": "manual",
        "title": "How to light the stove",
        "source": "stove.pdf",
        "chunks": 42,
        "model": "small",
    }
    name: Annotated[str, Meta(description="The name of the document (default: a new one).")] = ""
    title: Annotated[str, Meta(description="The title.")]
    source: Annotated[str, Meta(description="Where it comes from.")] = ""
    cid: Annotated[str, Meta(description="The file that it was made from.")] = ""
    chunks: Annotated[int, Meta(ge=0, description="The number of parts that it was divided into.")] = 0
    model: Annotated[str, Meta(description="The model that made the parts searchable.")] = ""

    def subject_name(self) -> str:
        return self.name or new_id().lower()

    def payload(self, by: By) -> DocumentIngested:
        return DocumentIngested(
            title=self.title, source=self.source, cid=self.cid, chunks=self.chunks, model=self.model
        )

    def asked(self) -> Any:
        fields = {"title": self.title, "source": self.source, "cid": self.cid}
        return {"name": self.name, **fields, "chunks": self.chunks, "model": self.model}

    def tried(self, name: str) -> str:
        return f"ingest {name}"
