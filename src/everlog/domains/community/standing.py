"""How a community stands: its members and the roles they were granted, its policy, its nodes.

A member holds grants: a role, from a place in the causal order on. Something that a member says is covered by a grant

    if its place lies at or after the grant's, and before the one at which its holder gave it up;
    if it comes from a node that the member joined from or announced;
    and, once somebody took the grant back, if it lies in that node's chain up to the point that the taking names.

So nobody gains by claiming a low clock: what was taken back is judged by the chain, not by the claim. A grant is
taken back by who ranks above it: in a higher role, or, of an admin's, as an admin for longer. What somebody gave up
themselves, in words that name a point too, can still be taken back: leaving hides nothing.

The state is plain JSON and changed in place: a community may have many members, and each event touches one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.domains.community.said import NEXT, Place, Said

State = dict[str, Any]

NEVER: Place = (2**53, "")
RANKS = {"": 0, "member": 1, "moderator": 2, "admin": 3}
TAKINGS = ("community.member.revoked", "community.member.demoted")
FIRST_POLICY = {
    "who_invites": "moderator",
    "who_posts": "member",
    "who_chats": "member",
    "who_shares": "member",
    "who_ingests": "member",
    "post_days": 90,
}


def nothing_said() -> State:
    """The standing of a community of which nothing is known."""
    return {
        "name": "",
        "about": "",
        "created_at": "",
        "created_by": "",
        "members": {},
        "policy": {},
        "policies": [],
        "nodes": {},
        "ignored": [],
        "said": [],
    }


Grant = dict[str, Any]
Points = dict[str, int] | None
"""How far the chain of each node counts, and others not at all; None is without an end."""


class Authority(msgspec.Struct, frozen=True):
    """In which role something is said, and since when its author has had it."""

    rank: int = 0
    since: Place = NEXT

    def is_above(self, role: str, since: Place) -> bool:
        """True for a higher role; for an admin's, of who has been an admin for longer."""
        below = RANKS[role]
        return self.rank > below or (self.rank == below == RANKS["admin"] and self.since < since)


class Taking(msgspec.Struct, frozen=True):
    """A revocation or a demotion that holds, and with which authority."""

    said: Said
    authority: Authority

    @property
    def by_themselves(self) -> bool:
        return bool(self.said.by == self.said.payload["member"])

    def takes(self, who: str, grant: Grant) -> bool:
        """True when it takes this grant back."""
        payload = self.said.payload
        left = payload["role"] if self.said.type == "community.member.demoted" else ""
        if payload["member"] != who or RANKS[grant["role"]] <= RANKS[left]:
            return False
        return self.by_themselves or self.authority.is_above(grant["role"], tuple(grant["since"]))

    def end(self, before: Points) -> Points:
        """The points up to which a grant counts: those that are named, and none beyond those that were."""
        upto: dict[str, int] = self.said.payload["upto"]
        if self.by_themselves:  # it is said within their own chain
            upto = {**upto, self.said.origin: max(self.said.seq, upto.get(self.said.origin, 0))}
        return upto if before is None else {node: min(point, before.get(node, 0)) for node, point in upto.items()}


class Standing:
    def __init__(self, state: State, community: str, ahead: Sequence[Taking] = ()) -> None:
        """`ahead` are takings that come later and are known beforehand: see `rights`."""
        self.state = state
        self.community = community
        self._ahead = ahead

    # ---- asking

    @property
    def exists(self) -> bool:
        return bool(self.state["created_at"])

    def role_of(self, said: Said, *, if_nothing_were_taken: bool = False) -> str:
        """The highest role that covers what was said; none if its author had no right to say anything."""
        covering = [grant["role"] for grant in self._covering(said, if_nothing_were_taken)]
        return max(covering, key=RANKS.__getitem__, default="")

    def authority(self, said: Said) -> Authority:
        role = self.role_of(said)
        since = [tuple(grant["since"]) for grant in self._covering(said) if grant["role"] == role]
        return Authority(RANKS[role], min(since, default=NEXT))

    def _covering(self, said: Said, if_nothing_were_taken: bool = False) -> Iterator[Grant]:
        for term in self._member(said.by)["terms"]:
            node = term["nodes"].get(said.origin)
            if node is None or said.seq < node["seq"] or said.place < tuple(node["since"]):
                continue
            for grant in term["grants"]:
                in_time = tuple(grant["since"]) <= said.place < tuple(grant["given_up"] or NEVER)
                ends = () if if_nothing_were_taken else (grant["upto"], grant["upto_ahead"])
                if in_time and all(upto is None or said.seq <= upto.get(said.origin, 0) for upto in ends):
                    yield grant

    def policy_at(self, place: Place) -> dict[str, Any]:
        """What held when something was said."""
        found: dict[str, Any] = {}
        for since, policy in self.state["policies"]:
            if tuple(since) > place:
                break
            found = policy
        return found

    def status(self, who: str) -> str:
        """invited, member or revoked; nothing for a stranger."""
        return str(self._member(who)["status"])

    def role(self, who: str) -> str:
        return str(self._member(who)["role"])

    def invitation(self, who: str) -> dict[str, Any]:
        return self._member(who)["invited"] or {}

    def nodes_of(self, who: str) -> list[str]:
        """Every node that somebody ever spoke from as a member."""
        return sorted({node for term in self._member(who)["terms"] for node in term["nodes"]})

    def owners_of(self, node: str) -> list[str]:
        """The members who speak from a node now."""
        return sorted(name for name, member in self.state["members"].items() if node in _nodes(member))

    def with_status(self, status: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, member in self.state["members"].items() if member["status"] == status))

    def with_role(self, role: str) -> list[str]:
        """Who has a role now; who has had it for the longest comes first."""
        members = self.state["members"]
        found = [name for name, member in members.items() if member["role"] == role]
        return sorted(found, key=lambda name: _since(members[name], role))

    def since(self, who: str) -> Place:
        """When somebody got the role that they have."""
        return _since(self._member(who), self.role(who))

    def authority_of(self, who: str) -> Authority:
        """That of a member now, wherever they speak from."""
        return Authority(RANKS[self.role(who)], self.since(who))

    def has_left(self, who: str) -> bool:
        """True of somebody who is a member no longer because they said so themselves."""
        member = self._member(who)
        return bool(member["status"] == "revoked" and member["ended_by"] == who)

    def can_take_from(self, authority: Authority, who: str) -> bool:
        """True when something of what somebody was granted can be taken back, also of what they gave up."""
        grants = _grants_not_taken(self._member(who))
        return any(authority.is_above(grant["role"], tuple(grant["since"])) for grant in grants)

    def undoes(self, taking: Taking) -> bool:
        """True when something that counted lies beyond the point that a taking names."""
        who, place = taking.said.payload["member"], taking.said.place
        grants = [grant for grant in self._of(taking) if taking.takes(who, grant)]
        ends = [(tuple(grant["since"]), taking.end(grant["upto"]) or {}) for grant in grants]
        left_out = {one["id"] for one in self.state["ignored"]} if ends else ()
        return any(
            since <= (one["lamport"], one["id"]) < place and one["seq"] > upto.get(one["origin"], 0)
            for one in self.state["said"]
            if one["by"] == who and one["id"] not in left_out
            for since, upto in ends
        )

    def _of(self, taking: Taking) -> list[Grant]:
        """The grants that a taking might take: what is open by its holder, and by others also what was given up."""
        member = self._member(taking.said.payload["member"])
        return _open_grants(member) if taking.by_themselves else _grants_not_taken(member)

    # ---- changing

    def apply(self, said: Said) -> None:
        """Let something count."""
        match said.type:
            case "community.created":
                self._create(said)
            case "community.member.invited":
                self._invite(said)
            case "community.member.joined":
                self._begin(said, self.invitation(said.by)["role"])
                self._member(said.by)["name"] = said.payload["name"]
            case "community.member.revoked":
                self._revoke(said)
            case "community.member.promoted":
                self._grant(said.payload["member"], said.payload["role"], said.place)
            case "community.member.demoted":
                self._demote(said)
            case "community.policy.updated":
                self._change_policy(said)
            case "node.manifest.updated":
                self._describe_node(said)

    def _create(self, said: Said) -> None:
        self.state.update(
            name=said.payload["name"],
            about=said.payload["about"],
            created_at=said.at,
            created_by=said.by,
            policy=dict(FIRST_POLICY),
            policies=[[list(said.place), dict(FIRST_POLICY)]],
        )
        self._begin(said, "admin")

    def _invite(self, said: Said) -> None:
        member = self.state["members"].setdefault(said.payload["member"], _new_member())
        invitation = {"role": said.payload["role"], "node": said.payload["node"], "by": said.by, "at": said.at}
        member.update(status="invited", role="", invited=invitation)

    def _begin(self, said: Said, role: str) -> None:
        """Somebody is a member from here on, and speaks from this node."""
        member = self.state["members"].setdefault(said.by, _new_member())
        member["terms"].append({"nodes": {said.origin: {"seq": said.seq, "since": list(said.place)}}, "grants": []})
        member.update(status="member", invited=None, joined_at=said.at, ended_at="", ended_by="", reason="")
        self._grant(said.by, role, said.place)

    def _revoke(self, said: Said) -> None:
        member = self._member(said.payload["member"])
        self._take_back(said)
        reason = said.payload["reason"]
        member.update(status="revoked", role="", invited=None, ended_at=said.at, ended_by=said.by, reason=reason)

    def _demote(self, said: Said) -> None:
        self._take_back(said)
        self._member(said.payload["member"])["role"] = said.payload["role"]

    def _change_policy(self, said: Said) -> None:
        policy = self.state["policy"] | {name: value for name, value in said.payload.items() if value is not None}
        self.state["policy"] = policy
        self.state["policies"].append([list(said.place), dict(policy)])

    def _describe_node(self, said: Said) -> None:
        """Somebody speaks from a node, too; and if they say what it is, it is so."""
        node, nodes = said.payload["node"], self.state["nodes"]
        _nodes(self._member(said.by)).setdefault(node, {"seq": 0, "since": list(said.place)})
        if node not in nodes or description(said):
            described = {name: value for name, value in said.payload.items() if name != "node"}
            nodes[node] = described | {"by": said.by, "at": said.at}

    def _grant(self, who: str, role: str, place: Place) -> None:
        """Give somebody a role, and those below it: they are what is left when it is taken back."""
        member = self._member(who)
        held = [grant["role"] for grant in _open_grants(member)]
        for each in RANKS:
            if 0 < RANKS[each] <= RANKS[role] and each not in held:
                grant: Grant = {"role": each, "since": list(place), "given_up": None, "taken": None, "upto": None}
                grant["upto_ahead"] = self._upto_ahead(who, grant, place)
                member["terms"][-1]["grants"].append(grant)
        member["role"] = role

    def _upto_ahead(self, who: str, grant: Grant, place: Place) -> Points:
        """How far a grant counts because of what comes later and is known beforehand."""
        upto: Points = None
        for taking in self._ahead:
            if taking.said.place > place and taking.takes(who, grant):
                upto = taking.end(upto)
                if not taking.by_themselves:
                    break
        return upto

    def _take_back(self, said: Said) -> None:
        taking, who = Taking(said, self.authority(said)), said.payload["member"]
        for grant in self._of(taking):
            if taking.takes(who, grant):
                grant["upto"] = taking.end(grant["upto"])
                if taking.by_themselves:
                    grant["given_up"] = list(said.place)
                    grant["upto_ahead"] = self._upto_ahead(who, grant, said.place)
                else:
                    grant["taken"] = list(said.place)
                    grant["upto_ahead"] = None

    def _member(self, who: str) -> dict[str, Any]:
        found: dict[str, Any] = self.state["members"].get(who, _STRANGER)
        return found


_STRANGER: dict[str, Any] = {"status": "", "role": "", "invited": None, "terms": []}


def description(said: Said) -> dict[str, Any]:
    """What a manifest says of a node beside its name; nothing if it only says that somebody speaks from there."""
    return {name: value for name, value in said.payload.items() if name != "node" and value}


def _new_member() -> dict[str, Any]:
    ended = {"ended_at": "", "ended_by": "", "reason": ""}
    return {"status": "", "role": "", "name": "", "invited": None, "joined_at": "", **ended, "terms": []}


def _nodes(member: dict[str, Any]) -> dict[str, Any]:
    """The nodes of somebody who is a member now."""
    found: dict[str, Any] = member["terms"][-1]["nodes"] if member["status"] == "member" else {}
    return found


def _grants_not_taken(member: dict[str, Any]) -> list[Grant]:
    """What somebody was granted and nobody else took back; what they gave up themselves is among it."""
    return [grant for term in member["terms"] for grant in term["grants"] if grant["taken"] is None]


def _open_grants(member: dict[str, Any]) -> list[Grant]:
    grants = [grant for term in member["terms"][-1:] for grant in term["grants"]]
    return [grant for grant in grants if grant["taken"] is None and grant["given_up"] is None]


def _since(member: dict[str, Any], role: str) -> Place:
    found = [tuple(grant["since"]) for grant in _open_grants(member) if grant["role"] == role]
    return min(found, default=NEXT)
