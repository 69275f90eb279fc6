"""Commands about a community itself: its members, their roles, its policy and its nodes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from everlog.core.ids import parse_id
from everlog.core.query import Query
from everlog.log.admit.branches import branch_here
from everlog.programs.command import By, Plan
from everlog.programs.community import questions
from everlog.programs.community.acting import (
    CommunityCommand,
    CommunityResult,
    Days,
    Member,
    Why,
    act_now,
    chain_ends,
    here,
    in_days,
    insist,
    require_shape_of,
)
from everlog.programs.community.events import (
    COMMUNITY,
    ID_PATTERN,
    BranchNamed,
    Created,
    Demoted,
    Invited,
    Joined,
    ManifestUpdated,
    PolicyUpdated,
    Promoted,
    Revoked,
    Role,
)
from everlog.programs.community.membership import Standing, no_acts
from everlog.programs.community.rights import fingerprint
from everlog.programs.perform import perform

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History


class Governing(CommunityCommand[CommunityResult], frozen=True, kw_only=True):
    """A command about the community itself."""

    def payload(self, log: Log, standing: Standing) -> Any:
        """Return what to record; it may depend on the standing of the community."""
        raise NotImplementedError

    def tried(self, community: str) -> str:
        raise NotImplementedError

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        """Return the kind and the name of what the command is about."""
        raise NotImplementedError

    def asked(self, log: Log) -> Any:
        """Return what makes two requests the same."""
        return msgspec.to_builtins(self.payload(log, Standing(no_acts(), "")))

    def is_so(self, standing: Standing) -> bool:
        return False

    def plan(self, log: Log, by: By) -> Plan[CommunityResult]:
        community = self.named(log, by)
        stream = f"{COMMUNITY}/{community}"
        kind, name = self.about(log, community, by)

        def decide(history: History) -> Iterable[Any]:
            history.relies_on(Query(stream=stream))
            require_shape_of(ID_PATTERN, "id of a community", community, "hearth")
            standing = questions.standing(log, community)
            payload = self.payload(log, standing)
            insist(log, standing, act_now(log, payload, by), self.tried(community))
            if by.dry_run and by.within and isinstance(payload, Revoked | Demoted):
                # The ends of chains count what nodes wrote everywhere; only a recorded event has to state them.
                payload = msgspec.structs.replace(payload, upto=dict.fromkeys(payload.upto, 0))
            return [] if self.is_so(standing) else [payload]

        return Plan(
            stream=stream,
            looks_at=(),
            decide=decide,
            result=lambda decision: CommunityResult(kind=kind, name=name, community=community),
            by=by,
            scope=community,
            request=self.asked(log),
        )


class Create(Governing, frozen=True, kw_only=True):
    """Create a community. The actor is its first admin."""

    verb = "create"
    examples = ('create attic --name "The attic" --actor user:ada',)
    example: ClassVar[dict[str, Any]] = {"community": "attic", "name": "The attic"}
    name: Annotated[str, Meta(description="The name that people see (default: the id).")] = ""
    description: Annotated[str, Meta(description="What it is for.")] = ""
    sealed: Annotated[bool, Meta(description="Make the id name its founder, so that nobody else can create it.")] = (
        False
    )

    def named(self, log: Log, by: By) -> str:
        community = f"{self.community}~{fingerprint(by.actor, here(log))}" if self.sealed else self.community
        questions.require_within(community, by.within)
        return community

    def payload(self, log: Log, standing: Standing) -> Created:
        return Created(name=self.name or self.community, about=self.description)

    def tried(self, community: str) -> str:
        return f"create {community}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "community", community


class Invite(Governing, frozen=True, kw_only=True):
    """Invite an actor to join."""

    verb = "invite"
    examples = ("invite user:dan --role moderator --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"member": "user:dan", "role": "moderator"}
    member: Member
    role: Annotated[Role, Meta(description="The role that they get.")] = "member"
    node: Annotated[str, Meta(description="The only node from which they may join.")] = ""
    note: Annotated[str, Meta(description="A note for the record.")] = ""
    days: Days = None

    def payload(self, log: Log, standing: Standing) -> Invited:
        expires = msgspec.UNSET if self.days is None else in_days(self.days, By())
        return Invited(member=self.member, role=self.role, node=self.node, note=self.note, expires_at=expires)

    def asked(self, log: Log) -> Any:
        asked = {"member": self.member, "role": self.role, "node": self.node, "note": self.note}
        return asked if self.days is None else {**asked, "days": self.days}

    def tried(self, community: str) -> str:
        return f"invite {self.member} as {self.role}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "member", self.member


class Join(Governing, frozen=True, kw_only=True):
    """Accept an invitation. From then on you act from this node, which is this log."""

    verb = "join"
    examples = ("join --actor user:cyd",)
    example: ClassVar[dict[str, Any]] = {}
    name: Annotated[str, Meta(description="The name that others see.")] = ""

    def payload(self, log: Log, standing: Standing) -> Joined:
        return Joined(name=self.name)

    def tried(self, community: str) -> str:
        return f"join {community}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "member", by.actor


class Revoke(Governing, frozen=True, kw_only=True):
    """End a membership or an invitation, also your own. The last admin cannot be revoked.

    Events of the member that are known here still count. Later ones do not, regardless of the clock that they claim.
    """

    verb = "revoke"
    examples = ('revoke user:bob --reason "spam" --actor user:ada',)
    example: ClassVar[dict[str, Any]] = {"member": "user:bob", "reason": "spam"}
    member: Member
    reason: Why = ""

    def payload(self, log: Log, standing: Standing) -> Revoked:
        upto = chain_ends(log, standing.nodes_of(self.member))
        return Revoked(member=self.member, upto=upto, reason=self.reason)

    def asked(self, log: Log) -> Any:
        return {"member": self.member, "reason": self.reason}

    def tried(self, community: str) -> str:
        return f"revoke {self.member}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "member", self.member


class Promote(Governing, frozen=True, kw_only=True):
    """Give a member a higher role."""

    verb = "promote"
    examples = ("promote user:bob --to moderator --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"member": "user:bob", "to": "moderator"}
    member: Member
    to: Annotated[Literal["moderator", "admin"], Meta(description="The higher role.")]

    def payload(self, log: Log, standing: Standing) -> Promoted:
        return Promoted(member=self.member, role=self.to)

    def tried(self, community: str) -> str:
        return f"promote {self.member} to {self.to}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "member", self.member


class Demote(Governing, frozen=True, kw_only=True):
    """Give a member, or yourself, a lower role. The last admin cannot be demoted."""

    verb = "demote"
    examples = ("demote user:mia --to member --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"member": "user:mia", "to": "member"}
    member: Member
    to: Annotated[Literal["member", "moderator"], Meta(description="The lower role.")]
    reason: Why = ""

    def payload(self, log: Log, standing: Standing) -> Demoted:
        upto = chain_ends(log, standing.nodes_of(self.member))
        return Demoted(member=self.member, role=self.to, upto=upto, reason=self.reason)

    def asked(self, log: Log) -> Any:
        return {"member": self.member, "to": self.to, "reason": self.reason}

    def tried(self, community: str) -> str:
        return f"demote {self.member} to {self.to}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "member", self.member


class SetPolicy(Governing, frozen=True, kw_only=True):
    """Change who may do what. Rules that are not given stay as they are."""

    verb = "set_policy"
    operation = "community policy"
    examples = ("policy --who-posts moderator --post-days 30 --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"who_posts": "moderator", "post_days": 30}
    who_invites: Annotated[Role | None, Meta(description="The lowest role that may invite.")] = None
    who_posts: Annotated[Role | None, Meta(description="The lowest role that may post on the market.")] = None
    who_chats: Annotated[Role | None, Meta(description="The lowest role that may write in threads.")] = None
    who_shares: Annotated[Role | None, Meta(description="The lowest role that may share files.")] = None
    who_ingests: Annotated[Role | None, Meta(description="The lowest role that may ingest documents.")] = None
    post_days: Annotated[
        Annotated[int, Meta(ge=1, le=3650)] | None,
        Meta(description="The number of days that a post is open at most."),
    ] = None

    def payload(self, log: Log, standing: Standing) -> PolicyUpdated:
        return PolicyUpdated(
            who_invites=self.who_invites,
            who_posts=self.who_posts,
            who_chats=self.who_chats,
            who_shares=self.who_shares,
            who_ingests=self.who_ingests,
            post_days=self.post_days,
        )

    def is_so(self, standing: Standing) -> bool:
        wanted = msgspec.structs.asdict(self.payload(None, standing))  # type: ignore[arg-type]  # it needs no log
        policy: dict[str, Any] = standing.state["policy"]
        return {name: value for name, value in wanted.items() if value is not None}.items() <= policy.items()

    def tried(self, community: str) -> str:
        return "change the policy"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "community", community


class NameBranch(Governing, frozen=True, kw_only=True):
    """Name the branch that counts of a node whose key signed two events with one number.

    Its chain counts up to the last event of that branch, on every node. Without --upto, it is the branch that this
    log has recorded. Nothing counts after it: the member continues with another key. Acts that change the community
    count only before the fork.
    """

    verb = "branch"
    examples = ("branch z6MkhaXg… --actor user:ada", "branch z6MkhaXg… --upto 01M7GNA1VYFX6R4DN7FYV6RCAF")
    example: ClassVar[dict[str, Any]] = {"node": "z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"}
    node: Annotated[str, Meta(description="The node whose chain forked.")]
    upto: Annotated[str, Meta(description="The last event of the branch that counts.")] = ""
    reason: Why = ""

    def payload(self, log: Log, standing: Standing) -> BranchNamed:
        last = parse_id(self.upto) if self.upto else ""
        branch = log.writer.write(lambda write: branch_here(write, self.node, last))
        hashes = [b64encode(hash).decode() for hash in branch.hashes]
        return BranchNamed(node=self.node, first=branch.first, hashes=hashes, reason=self.reason)

    def asked(self, log: Log) -> Any:
        return {"node": self.node, "upto": self.upto, "reason": self.reason}

    def tried(self, community: str) -> str:
        return f"name a branch of {self.node}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "node", self.node


class DescribeNode(Governing, frozen=True, kw_only=True):
    """Describe a node (default: this log). From then on you may act from it, too."""

    verb = "node"
    examples = ("node --name attic --endpoint http://attic.local:7080 --can chat",)
    example: ClassVar[dict[str, Any]] = {
        "name": "attic",
        "endpoints": ["http://attic.local:7080"],
        "capabilities": ["chat"],
    }
    node: Annotated[str, Meta(description="The node (default: this log).")] = ""
    name: Annotated[str, Meta(description="The name that people see.")] = ""
    endpoints: Annotated[list[str], Meta(description="A URL where it listens; may be repeated.")] = msgspec.field(
        default_factory=list
    )
    capabilities: Annotated[list[str], Meta(description="A capability; may be repeated.")] = msgspec.field(
        default_factory=list
    )
    software: Annotated[str, Meta(description="The software that runs there.")] = ""

    def payload(self, log: Log, standing: Standing) -> ManifestUpdated:
        return ManifestUpdated(
            node=self.node or here(log),
            name=self.name,
            endpoints=list(self.endpoints),
            capabilities=list(self.capabilities),
            software=self.software,
        )

    def tried(self, community: str) -> str:
        return f"describe the node {self.node or 'of this log'}"

    def about(self, log: Log, community: str, by: By) -> tuple[str, str]:
        return "node", self.node or here(log)


def announce_successor(log: Log, node: str) -> None:
    """Have everybody who acts from this log announce the node under which it will continue."""
    for community in [str(one["community"]) for one in questions.communities(log)]:
        for actor in questions.standing(log, community).owners_of(log.identity.origin):
            perform(log, DescribeNode(community=community, node=node), By(actor=actor))
