"""The events of a community. Its own stream is `community/ID`; every event of it has the scope ID.

community/ID          created, members, policy, node manifests: what rights follow from
post/ID:NAME          one offer or request on the market
thread/ID:NAME        the messages of one chat, and which members received and read them
file/ID:CID           which members keep a file
document/ID:NAME      one document that was made searchable
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from everlog.catalog.catalog import Catalog
from everlog.errors import InvalidPayload
from everlog.programs.community.cids import require_cid

CATALOG = Catalog()

COMMUNITY, POST, THREAD, FILE, DOCUMENT = "community", "post", "thread", "file", "document"

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,62}(~[a-z2-7]{16})?$"
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

Actor = Annotated[
    str,
    Meta(
        pattern=r"^(system|[a-z][a-z0-9_]{0,31}:[A-Za-z0-9][A-Za-z0-9._:@+=~-]{0,199})$",
        description="an actor, KIND:NAME, such as user:bob",
    ),
]
Origin = Annotated[str, Meta(min_length=1, max_length=256)]
MessageId = Annotated[str, Meta(pattern=r"^[0-7][0-9A-HJKMNP-TV-Z]{25}$")]
Title = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=10_000)]
Short = Annotated[str, Meta(max_length=200)]
Moment = Annotated[datetime, Meta(tz=True)]
Hash = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$", description="SHA-256, in base64")]
Upto = dict[Origin, Annotated[int, Meta(ge=0)]]
Role = Literal["member", "moderator", "admin"]


# ---- the community itself


@CATALOG.event("community.created")
class Created(msgspec.Struct, frozen=True, kw_only=True):
    """A community begins. The actor is its first admin."""

    name: Title
    about: Text = ""


@CATALOG.event("community.member.invited")
class Invited(msgspec.Struct, frozen=True, kw_only=True):
    """An actor may join, once; with a node only from there, and with a time only until then."""

    member: Actor
    role: Role = "member"
    node: Annotated[str, Meta(max_length=256)] = ""
    note: Short = ""
    expires_at: Moment | msgspec.UnsetType = msgspec.UNSET


@CATALOG.event("community.member.joined")
class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """An invited actor joins, and acts from this node from now on."""

    name: Short = ""


@CATALOG.event("community.member.revoked")
class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """A membership ends. The member's acts count up to these places in the chains of their nodes."""

    member: Actor
    upto: Upto = {}
    reason: Short = ""


@CATALOG.event("community.member.promoted")
class Promoted(msgspec.Struct, frozen=True, kw_only=True):
    """A member gets a higher role."""

    member: Actor
    role: Literal["moderator", "admin"]


@CATALOG.event("community.member.demoted")
class Demoted(msgspec.Struct, frozen=True, kw_only=True):
    """A member gets a lower role. The higher one counts up to these places in the chains of their nodes."""

    member: Actor
    role: Literal["member", "moderator"]
    upto: Upto = {}
    reason: Short = ""


@CATALOG.event("community.policy.updated")
class PolicyUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """The lowest role that may do each of these; a field that is null stays as it was."""

    who_invites: Role | None = None
    who_posts: Role | None = None
    who_chats: Role | None = None
    who_shares: Role | None = None
    who_ingests: Role | None = None
    post_days: Annotated[int, Meta(ge=1, le=3650)] | None = None


@CATALOG.event("community.branch.named")
class BranchNamed(msgspec.Struct, frozen=True, kw_only=True):
    """The chain of a node forked, and this branch counts: its events from the first one on, by their hashes."""

    node: Origin
    first: Annotated[int, Meta(ge=1)]
    hashes: Annotated[list[Hash], Meta(min_length=1, max_length=1_000)]
    reason: Short = ""


@CATALOG.event("node.manifest.updated")
class ManifestUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is and can do. The member acts from there, too, from now on."""

    node: Origin
    name: Short = ""
    endpoints: Annotated[list[Annotated[str, Meta(max_length=500)]], Meta(max_length=20)] = []
    capabilities: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=100)] = []
    software: Short = ""


# ---- the market


@CATALOG.event("market.post.created", version=1)
class PostCreatedV1(msgspec.Struct, frozen=True, kw_only=True):
    """A member offers something or looks for it."""

    title: Title
    body: Text = ""
    wanted: bool = False


@CATALOG.event("market.post.created", version=2)
class PostCreated(msgspec.Struct, frozen=True, kw_only=True):
    """A member offers something, looks for it, or informs others."""

    title: Title
    kind: Literal["offer", "request", "notice"] = "offer"
    text: Text = ""
    price: Short = ""
    expires_at: Moment | None = None


@CATALOG.upcaster("market.post.created", from_version=1)
def name_the_kind(old: dict[str, Any]) -> dict[str, Any]:
    # It never fails, whatever a peer sent: what makes no sense is refused where rights are decided.
    kind = "request" if old.get("wanted") else "offer"
    return {"title": old.get("title"), "kind": kind, "text": old.get("body", ""), "price": "", "expires_at": None}


@CATALOG.event("market.post.updated")
class PostUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """A post is changed; what is null stays as it was."""

    title: Title | None = None
    text: Text | None = None
    price: Short | None = None
    expires_at: Moment | None = None


@CATALOG.event("market.post.expired")
class PostExpired(msgspec.Struct, frozen=True, kw_only=True):
    """A post is over: its time has passed, it was sold, or it was taken down."""

    reason: Short = ""


# ---- chats


@CATALOG.event("chat.message.sent", merge="keep-both")
class MessageSent(msgspec.Struct, frozen=True, kw_only=True):
    """A member sends a message. The event's id is the message's."""

    text: Annotated[str, Meta(min_length=1, max_length=10_000)]
    reply_to: Annotated[str, Meta(pattern=r"^([0-7][0-9A-HJKMNP-TV-Z]{25})?$")] = ""


@CATALOG.event("chat.message.delivered", merge="keep-both")
class MessageDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A message has reached a member."""

    message: MessageId


@CATALOG.event("chat.message.read", merge="keep-both")
class MessageRead(msgspec.Struct, frozen=True, kw_only=True):
    """A member has read a message."""

    message: MessageId


# ---- files and documents


@CATALOG.event("file.cid.advertised")
class CidAdvertised(msgspec.Struct, frozen=True, kw_only=True):
    """A member keeps a file and gives it to others."""

    cid: str
    name: Short = ""
    size_bytes: Annotated[int, Meta(ge=0)] | None = None
    media_type: Annotated[str, Meta(max_length=100)] = ""

    def __post_init__(self) -> None:
        _require_cid(self)


@CATALOG.event("file.cid.unpinned")
class CidUnpinned(msgspec.Struct, frozen=True, kw_only=True):
    """A file is not kept any more: by the actor, or by the provider that a moderator names."""

    cid: str
    provider: Annotated[str, Meta(max_length=256)] = ""

    def __post_init__(self) -> None:
        _require_cid(self)


@CATALOG.event("rag.document.ingested")
class DocumentIngested(msgspec.Struct, frozen=True, kw_only=True):
    """A document was cut into chunks that can be searched by meaning; recorded again when it was done again."""

    title: Title
    source: Annotated[str, Meta(max_length=2_000)] = ""
    cid: str = ""
    chunks: Annotated[int, Meta(ge=0)] = 0
    model: Short = ""

    def __post_init__(self) -> None:
        if self.cid:
            _require_cid(self)


# ---- reserved


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """Known by name and kept when a peer sends it; nothing follows from it yet, so it cannot be recorded here."""

    def __post_init__(self) -> None:
        raise ValueError("federation is reserved: this version keeps such events from peers, and records none itself")


@CATALOG.event("federation.peer.added")
class PeerAdded(Reserved, frozen=True, kw_only=True):
    """Reserved: another community is known. Kept when it comes from elsewhere, refused here."""


@CATALOG.event("federation.peer.removed")
class PeerRemoved(Reserved, frozen=True, kw_only=True):
    """Reserved: another community is known no longer. Kept when it comes from elsewhere, refused here."""


GOVERNANCE = (
    "community.created",
    "community.member.invited",
    "community.member.joined",
    "community.member.revoked",
    "community.member.promoted",
    "community.member.demoted",
    "community.policy.updated",
    "community.branch.named",
    "node.manifest.updated",
)
"""The types that rights follow from."""


def _require_cid(payload: CidAdvertised | CidUnpinned | DocumentIngested) -> None:
    try:
        require_cid(payload.cid)
    except ValueError as error:  # as everything else that is wrong with a payload, with its path and the reason
        raise InvalidPayload(_CID_TYPES[type(payload).__name__], [("$.cid", str(error))]) from error


# By name: the catalog checks payloads through a stricter class of the same name.
_CID_TYPES = {
    "CidAdvertised": "file.cid.advertised",
    "CidUnpinned": "file.cid.unpinned",
    "DocumentIngested": "rag.document.ingested",
}


def stream_of(kind: str, community: str, name: str) -> str:
    return f"{kind}/{community}:{name}"


def community_of(stream: str) -> str:
    """Return the community that a stream belongs to."""
    kind, _, rest = stream.partition("/")
    return rest if kind == COMMUNITY else rest.rpartition(":")[0]


def name_of(stream: str) -> str:
    """Return the name of a post, thread, file or document within its community."""
    return stream.rpartition(":")[2]
