"""How a community stands: its members and the roles they were granted, its policy, its nodes.

A member holds grants: a role, from a place in the causal order on. Something that a member says is covered by a grant

    if its place lies at or after the grant's, and it comes from a node that the member joined from or announced;
    and, once the grant was taken back, if it lies in that node's chain up to the point that the taking names.

So nobody gains by claiming a low clock: what was taken back is judged by the chain, not by the claim.

The state is plain JSON and changed in place: a community may have many members, and each event touches one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everlog.domains.community.said import NEXT, Place, Said

State = dict[str, Any]

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
        "contested": [],
    }


class Standing:
    def __init__(self, state: State, community: str, ahead: Sequence[Said] = ()) -> None:
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
        best = ""
        for term in self._member(said.by)["terms"]:
            node = term["nodes"].get(said.origin)
            if node is None or said.seq < node["seq"] or said.place < tuple(node["since"]):
                continue
            for grant in term["grants"]:
                upto = None if if_nothing_were_taken else grant["upto"]
                in_time = said.place >= tuple(grant["since"])
                in_chain = upto is None or said.seq <= upto.get(said.origin, 0)
                if in_time and in_chain and RANKS[grant["role"]] > RANKS[best]:
                    best = grant["role"]
        return best

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

    def outranks(self, one: str, other: str) -> bool:
        """True for a higher role; between admins, for who has been one for longer."""
        rank, below = RANKS[self.role(one)], RANKS[self.role(other)]
        if rank != below or rank < RANKS["admin"]:
            return rank > below
        return _since(self._member(one), "admin") < _since(self._member(other), "admin")

    def undoes(self, taking: Said) -> bool:
        """True when something that counted lies beyond the point that a taking names."""
        who, upto = taking.payload["member"], _upto(taking)
        grants = [grant for grant in _open_grants(self._member(who)) if _takes(taking, who, grant["role"])]
        since = min((tuple(grant["since"]) for grant in grants), default=NEXT)
        left_out = {one["id"] for one in self.state["ignored"]}
        return any(
            one["by"] == who
            and one["seq"] > upto.get(one["origin"], 0)
            and since <= (one["lamport"], one["id"]) < taking.place
            and one["id"] not in left_out
            for one in self.state["said"]
        )

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
        if member["status"] == "member":
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
        node = said.payload["node"]
        _nodes(self._member(said.by)).setdefault(node, {"seq": 0, "since": list(said.place)})
        described = {name: value for name, value in said.payload.items() if name != "node"}
        self.state["nodes"][node] = described | {"by": said.by, "at": said.at}

    def _grant(self, who: str, role: str, place: Place) -> None:
        """Give somebody a role, and those below it: they are what is left when it is taken back."""
        member = self._member(who)
        held = [grant["role"] for grant in _open_grants(member)]
        for each in RANKS:
            if 0 < RANKS[each] <= RANKS[role] and each not in held:
                later = (taking for taking in self._ahead if taking.place > place and _takes(taking, who, each))
                ahead = next(later, None)
                upto = None if ahead is None else _upto(ahead)
                grant = {"role": each, "since": list(place), "upto": upto, "until": None}
                member["terms"][-1]["grants"].append(grant)
        member["role"] = role

    def _take_back(self, taking: Said) -> None:
        who = taking.payload["member"]
        for grant in _open_grants(self._member(who)):
            if _takes(taking, who, grant["role"]):
                grant.update(until=list(taking.place), upto=_upto(taking))

    def _member(self, who: str) -> dict[str, Any]:
        found: dict[str, Any] = self.state["members"].get(who, _STRANGER)
        return found


_STRANGER: dict[str, Any] = {"status": "", "role": "", "invited": None, "terms": []}


def _new_member() -> dict[str, Any]:
    ended = {"ended_at": "", "ended_by": "", "reason": ""}
    return {"status": "", "role": "", "name": "", "invited": None, "joined_at": "", **ended, "terms": []}


def _nodes(member: dict[str, Any]) -> dict[str, Any]:
    """The nodes of somebody who is a member now."""
    found: dict[str, Any] = member["terms"][-1]["nodes"] if member["status"] == "member" else {}
    return found


def _open_grants(member: dict[str, Any]) -> list[dict[str, Any]]:
    return [grant for term in member["terms"][-1:] for grant in term["grants"] if grant["until"] is None]


def _since(member: dict[str, Any], role: str) -> Place:
    found = [tuple(grant["since"]) for grant in _open_grants(member) if grant["role"] == role]
    return min(found, default=NEXT)


def _upto(taking: Said) -> dict[str, int]:
    """The points that a taking names. Whoever leaves or steps down says so within their own chain."""
    upto: dict[str, int] = taking.payload["upto"]
    if taking.by != taking.payload["member"]:
        return upto
    return {**upto, taking.origin: max(taking.seq, upto.get(taking.origin, 0))}


def _takes(taking: Said, who: str, role: str) -> bool:
    """True when a taking takes this role back."""
    left = taking.payload["role"] if taking.type == "community.member.demoted" else ""
    return taking.payload["member"] == who and RANKS[role] > RANKS[left]
