"""How a community stands: its members and the roles they were granted, its policy, its nodes.

A member holds grants: a role, from a place in the causal order on. An act of a member is covered by a grant

    if its place lies at or after the grant's, and before the one at which its holder gave it up;
    if it comes from a node that the member joined from or announced;
    and, once the grant was taken back, if it lies in that node's chain up to the point that the taking names.

So nobody gains by claiming a low clock: once a grant is taken back, the chain decides, not the claim. A member can
take back a grant of a lower role, and an admin also that of an admin of shorter standing. A grant that its holder
gave up can still be taken back: leaving hides nothing.

The state is plain JSON and changed in place: a community may have many members, and each event touches one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from everlog.programs.community.reading import ACTS, NEXT, Act, Place

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


def no_acts() -> State:
    """Return the standing of a community of which nothing is known."""
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
        ACTS: [],
    }


Grant = dict[str, Any]
Points = dict[str, int] | None
"""How far the chain of each node counts, and others not at all; None is without an end."""


class Authority(msgspec.Struct, frozen=True):
    """The role in which an act is done, and since when its author has had it."""

    rank: int = 0
    since: Place = NEXT

    def is_above(self, role: str, since: Place) -> bool:
        """Return whether it is a higher role, or that of an admin for longer."""
        below = RANKS[role]
        return self.rank > below or (self.rank == below == RANKS["admin"] and self.since < since)


class Taking(msgspec.Struct, frozen=True):
    """A revocation or a demotion that holds, and with which authority."""

    act: Act
    authority: Authority

    @property
    def by_themselves(self) -> bool:
        return bool(self.act.by == self.act.payload["member"])

    def takes(self, who: str, grant: Grant) -> bool:
        """True when it takes this grant back."""
        payload = self.act.payload
        left = payload["role"] if self.act.type == "community.member.demoted" else ""
        if payload["member"] != who or RANKS[grant["role"]] <= RANKS[left]:
            return False
        return self.by_themselves or self.authority.is_above(grant["role"], tuple(grant["since"]))

    def end(self, before: Points) -> Points:
        """Return the points up to which a grant counts: those that are named, and none beyond those that were."""
        upto: dict[str, int] = self.act.payload["upto"]
        if self.by_themselves:  # it is in their own chain
            upto = {**upto, self.act.origin: max(self.act.seq, upto.get(self.act.origin, 0))}
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

    def role_of(self, act: Act, *, if_nothing_were_taken: bool = False) -> str:
        """Return the highest role that covers an act; empty if its author had no right to act."""
        covering = [grant["role"] for grant in self._covering(act, if_nothing_were_taken)]
        return max(covering, key=RANKS.__getitem__, default="")

    def authority(self, act: Act) -> Authority:
        role = self.role_of(act)
        since = [tuple(grant["since"]) for grant in self._covering(act) if grant["role"] == role]
        return Authority(RANKS[role], min(since, default=NEXT))

    def _covering(self, act: Act, if_nothing_were_taken: bool = False) -> Iterator[Grant]:
        for term in self._member(act.by)["terms"]:
            node = term["nodes"].get(act.origin)
            if node is None or act.seq < node["seq"] or act.place < tuple(node["since"]):
                continue
            for grant in term["grants"]:
                in_time = tuple(grant["since"]) <= act.place < tuple(grant["given_up"] or NEVER)
                ends = () if if_nothing_were_taken else (grant["upto"], grant["upto_ahead"])
                if in_time and all(upto is None or act.seq <= upto.get(act.origin, 0) for upto in ends):
                    yield grant

    def policy_at(self, place: Place) -> dict[str, Any]:
        """Return the policy at a place."""
        found: dict[str, Any] = {}
        for since, policy in self.state["policies"]:
            if tuple(since) > place:
                break
            found = policy
        return found

    def status(self, who: str) -> str:
        """Return invited, member or revoked; nothing for a stranger."""
        return str(self._member(who)["status"])

    def role(self, who: str) -> str:
        return str(self._member(who)["role"])

    def invitation(self, who: str) -> dict[str, Any]:
        return self._member(who)["invited"] or {}

    def nodes_of(self, who: str) -> list[str]:
        """Return every node from which a member ever acted."""
        return sorted({node for term in self._member(who)["terms"] for node in term["nodes"]})

    def owners_of(self, node: str) -> list[str]:
        """Return the members who speak from a node now."""
        return sorted(name for name, member in self.state["members"].items() if node in _nodes(member))

    def with_status(self, status: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, member in self.state["members"].items() if member["status"] == status))

    def with_role(self, role: str) -> list[str]:
        """Return the members with a role now; the one with the longest time in that role comes first."""
        members = self.state["members"]
        found = [name for name, member in members.items() if member["role"] == role]
        return sorted(found, key=lambda name: _since(members[name], role))

    def since(self, who: str) -> Place:
        """Return when a member got their present role."""
        return _since(self._member(who), self.role(who))

    def authority_of(self, who: str) -> Authority:
        """Return the authority of a member now, wherever they speak from."""
        return Authority(RANKS[self.role(who)], self.since(who))

    def has_left(self, who: str) -> bool:
        """Return whether somebody has left the community themselves."""
        member = self._member(who)
        return bool(member["status"] == "revoked" and member["ended_by"] == who)

    def branch_of(self, node: str) -> dict[str, Any] | None:
        """Return the branch of a node whose chain forked that an admin named."""
        found: dict[str, Any] | None = self.state.get("branches", {}).get(node)
        return found

    def can_take_from(self, authority: Authority, who: str) -> bool:
        """Return whether a grant of a member can be taken back, also one that they gave up."""
        grants = _grants_not_taken(self._member(who))
        return any(authority.is_above(grant["role"], tuple(grant["since"])) for grant in grants)

    def undoes(self, taking: Taking) -> bool:
        """True when something that counted lies beyond the point that a taking names."""
        who, place = taking.act.payload["member"], taking.act.place
        grants = [grant for grant in self._of(taking) if taking.takes(who, grant)]
        ends = [(tuple(grant["since"]), taking.end(grant["upto"]) or {}) for grant in grants]
        left_out = {one["id"] for one in self.state["ignored"]} if ends else ()
        return any(
            since <= (one["lamport"], one["id"]) < place and one["seq"] > upto.get(one["origin"], 0)
            for one in self.state[ACTS]
            if one["by"] == who and one["id"] not in left_out
            for since, upto in ends
        )

    def _of(self, taking: Taking) -> list[Grant]:
        """Return the grants that a taking may take: open ones, and if others take them also those given up."""
        member = self._member(taking.act.payload["member"])
        return _open_grants(member) if taking.by_themselves else _grants_not_taken(member)

    # ---- changing

    def apply(self, act: Act) -> None:
        """Let something count."""
        match act.type:
            case "community.created":
                self._create(act)
            case "community.member.invited":
                self._invite(act)
            case "community.member.joined":
                self._begin(act, self.invitation(act.by)["role"])
                self._member(act.by)["name"] = act.payload["name"]
            case "community.member.revoked":
                self._revoke(act)
            case "community.member.promoted":
                self._grant(act.payload["member"], act.payload["role"], act.place)
            case "community.member.demoted":
                self._demote(act)
            case "community.policy.updated":
                self._change_policy(act)
            case "community.branch.named":
                self._name_branch(act)
            case "node.manifest.updated":
                self._describe_node(act)

    def _create(self, act: Act) -> None:
        self.state.update(
            name=act.payload["name"],
            about=act.payload["about"],
            created_at=act.at,
            created_by=act.by,
            policy=dict(FIRST_POLICY),
            policies=[[list(act.place), dict(FIRST_POLICY)]],
        )
        self._begin(act, "admin")

    def _invite(self, act: Act) -> None:
        member = self.state["members"].setdefault(act.payload["member"], _new_member())
        invitation = {"role": act.payload["role"], "node": act.payload["node"], "by": act.by, "at": act.at}
        if "expires_at" in act.payload:
            invitation["expires_at"] = act.payload["expires_at"]
        member.update(status="invited", role="", invited=invitation)

    def _begin(self, act: Act, role: str) -> None:
        """Begin a membership: from here on the actor acts from this node."""
        member = self.state["members"].setdefault(act.by, _new_member())
        member["terms"].append({"nodes": {act.origin: {"seq": act.seq, "since": list(act.place)}}, "grants": []})
        member.update(status="member", invited=None, joined_at=act.at, ended_at="", ended_by="", reason="")
        self._grant(act.by, role, act.place)

    def _revoke(self, act: Act) -> None:
        member = self._member(act.payload["member"])
        self._take_back(act)
        reason = act.payload["reason"]
        member.update(status="revoked", role="", invited=None, ended_at=act.at, ended_by=act.by, reason=reason)

    def _demote(self, act: Act) -> None:
        self._take_back(act)
        self._member(act.payload["member"])["role"] = act.payload["role"]

    def _change_policy(self, act: Act) -> None:
        policy = self.state["policy"] | {name: value for name, value in act.payload.items() if value is not None}
        self.state["policy"] = policy
        self.state["policies"].append([list(act.place), dict(policy)])

    def _name_branch(self, act: Act) -> None:
        """Let one branch of a chain count. If several were named, the last one does."""
        named = {name: act.payload[name] for name in ("first", "hashes")}
        self.state.setdefault("branches", {})[act.payload["node"]] = named | {"by": act.by, "at": act.at}

    def _describe_node(self, act: Act) -> None:
        """Let the actor act from a node, too, and take over the description if there is one."""
        node, nodes = act.payload["node"], self.state["nodes"]
        _nodes(self._member(act.by)).setdefault(node, {"seq": 0, "since": list(act.place)})
        if node not in nodes or description(act):
            described = {name: value for name, value in act.payload.items() if name != "node"}
            nodes[node] = described | {"by": act.by, "at": act.at}

    def _grant(self, who: str, role: str, place: Place) -> None:
        """Give a member a role, and those below it: they are left when it is taken back."""
        member = self._member(who)
        held = [grant["role"] for grant in _open_grants(member)]
        for each in RANKS:
            if 0 < RANKS[each] <= RANKS[role] and each not in held:
                grant: Grant = {"role": each, "since": list(place), "given_up": None, "taken": None, "upto": None}
                grant["upto_ahead"] = self._upto_ahead(who, grant, place)
                member["terms"][-1]["grants"].append(grant)
        member["role"] = role

    def _upto_ahead(self, who: str, grant: Grant, place: Place) -> Points:
        """Return how far a grant counts because of what comes later and is known beforehand."""
        upto: Points = None
        for taking in self._ahead:
            if taking.act.place > place and taking.takes(who, grant):
                upto = taking.end(upto)
                if not taking.by_themselves:
                    break
        return upto

    def _take_back(self, act: Act) -> None:
        taking, who = Taking(act, self.authority(act)), act.payload["member"]
        for grant in self._of(taking):
            if taking.takes(who, grant):
                grant["upto"] = taking.end(grant["upto"])
                if taking.by_themselves:
                    grant["given_up"] = list(act.place)
                    grant["upto_ahead"] = self._upto_ahead(who, grant, act.place)
                else:
                    grant["taken"] = list(act.place)
                    grant["upto_ahead"] = None

    def _member(self, who: str) -> dict[str, Any]:
        found: dict[str, Any] = self.state["members"].get(who, _STRANGER)
        return found


_STRANGER: dict[str, Any] = {"status": "", "role": "", "invited": None, "terms": []}


def description(act: Act) -> dict[str, Any]:
    """Return what a manifest describes beside the node's name; nothing if it only announces the node."""
    return {name: value for name, value in act.payload.items() if name != "node" and value}


def _new_member() -> dict[str, Any]:
    ended = {"ended_at": "", "ended_by": "", "reason": ""}
    return {"status": "", "role": "", "name": "", "invited": None, "joined_at": "", **ended, "terms": []}


def _nodes(member: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes of a present member."""
    found: dict[str, Any] = member["terms"][-1]["nodes"] if member["status"] == "member" else {}
    return found


def _grants_not_taken(member: dict[str, Any]) -> list[Grant]:
    """Return the grants that nobody else took back; those that the member gave up are among them."""
    return [grant for term in member["terms"] for grant in term["grants"] if grant["taken"] is None]


def _open_grants(member: dict[str, Any]) -> list[Grant]:
    grants = [grant for term in member["terms"][-1:] for grant in term["grants"]]
    return [grant for grant in grants if grant["taken"] is None and grant["given_up"] is None]


def _since(member: dict[str, Any], role: str) -> Place:
    found = [tuple(grant["since"]) for grant in _open_grants(member) if grant["role"] == role]
    return min(found, default=NEXT)
