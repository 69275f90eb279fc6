"""The rights of members in a community: decided from its history alone, the same in any order of arrival.

The acts in `community/ID` are applied in causal order, and each is judged by the standing of the community at that
place. An event may claim any clock value; two rules make sure that nothing is gained by that:

    A taking (a revocation or a demotion takes a role back) names a point in the chain of each of the member's nodes,
    up to which the role counts. So a taking can undo earlier acts, and it is judged as if they were already undone: a
    revoked member gains nothing by an act with an old clock value. If takings contradict each other, the one of the
    higher authority holds.

    A taking needs a higher rank: a higher role, or, between two admins, the longer time as an admin. Otherwise two
    admins could each revoke the other, and neither clock nor chain would show which came first.

A refusal here is no error: an act that does not count stays in the log, and the view lists it as ignored, with the
reason.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from hashlib import sha256
from shlex import quote
from typing import Any

import msgspec

from everlog.core.ids import is_key
from everlog.errors import EverlogError
from everlog.programs.community.membership import (
    RANKS,
    TAKINGS,
    Authority,
    Standing,
    State,
    Taking,
    description,
    no_acts,
)
from everlog.programs.community.reading import ACTS, Act, No, Place, ignored
from everlog.trust.keys import key_of


def take(state: State, act: Act, community: str) -> State:
    """Return the standing after one more act; acts come in causal order."""
    state[ACTS].append(msgspec.to_builtins(act))
    standing = Standing(state, community)
    if _may_undo(standing, act):
        return _judge_again(state[ACTS], community)
    _count(standing, act, judge(standing, act))
    return state


def _count(standing: Standing, act: Act, no: No | None) -> None:
    """Apply an act that counts, or list it as ignored."""
    if no is None:
        standing.apply(act)
    else:
        standing.state["ignored"].append(ignored(act, no))


def _may_undo(standing: Standing, act: Act) -> bool:
    """Return whether an act is a taking that would undo something, if its author had the highest authority."""
    return act.type in TAKINGS and not act.bad and standing.undoes(Taking(act, Authority(RANKS["admin"], _FIRST)))


def _judge_again(rows: list[dict[str, Any]], community: str) -> State:
    """Judge the whole history: decide which of the takings that undo something hold, the highest authority first.

    This ends, because every round decides on one more taking, and a taking that holds is not given up again.
    """
    history = _History(rows, community)
    held: list[Taking] = []
    void: list[Act] = []  # what would undo what its own right rests on, unless more that holds changes that
    left: set[str] = set()  # what undoes nothing that can be given up, and counts from its own place on
    world = history.judged(held, void)
    while True:
        assert world is not None, "the takings that hold are allowed together"
        trials = [history.trial(held, void, act) for act in (*world.undoing, *void)]
        holding = [taking for taking in trials if taking is not None]
        if holding:
            held.append(min(holding, key=_rank))
            void = [act for act in void if act.id != held[-1].act.id]
            world = history.judged(held, void)
            continue
        ignored_ids = {one["id"] for one in world.state["ignored"]} | left
        broken = next((act for act in world.undoing if act.id not in ignored_ids), None)
        if broken is None:
            return world.state
        without = history.judged(held, [*void, broken])
        if without is None:
            left.add(broken.id)
        else:
            void.append(broken)
            world = without


def _rank(taking: Taking) -> tuple[int, Place, Place]:
    """Return the order of takings: the higher role, then the longer time in that role, then the earlier act."""
    return -taking.authority.rank, taking.authority.since, taking.act.place


class _World(msgspec.Struct):
    """The standing if some takings are known beforehand."""

    state: State
    undoing: list[Act] = []  # takings that are not, and would undo something
    authority: Authority = Authority()  # of the last of the known ones


class _History:
    """All acts, to be judged with some takings known beforehand."""

    def __init__(self, rows: list[dict[str, Any]], community: str) -> None:
        self._rows = rows
        self._everything = msgspec.convert(rows, list[Act])
        self._community = community

    def trial(self, held: Sequence[Taking], void: Sequence[Act], act: Act) -> Taking | None:
        """Return a taking with the authority that it has if it is known beforehand; None if it then has none.

        What it undoes depends on its authority, and its authority on what it undoes: the highest one is tried first.
        """
        others = [other for other in void if other is not act]
        if act.by == act.payload["member"]:
            world = self.judged([*held, Taking(act, Authority())], others)
            return None if world is None else Taking(act, world.authority)
        for rank in (RANKS["admin"], RANKS["moderator"]):
            taking = Taking(act, Authority(rank, _FIRST))
            for _ in range(2):  # with the highest authority in that role, then with the one that was found
                world = self.judged([*held, taking], others)
                if world is None:
                    break
                if world.authority == taking.authority:
                    return taking
                taking = Taking(act, world.authority)
        return None

    def judged(self, held: Sequence[Taking], void: Collection[Act]) -> _World | None:
        """Return the outcome if these takings are known beforehand; None if one of them is then not allowed."""
        world = _World(no_acts() | {ACTS: self._rows})
        known = {taking.act.id: taking for taking in held}
        standing = Standing(world.state, self._community, sorted(held, key=lambda taking: taking.act.place))
        for act in self._everything:
            no = judge(standing, act)
            taking = known.get(act.id)
            if taking is not None:
                authority = standing.authority(act)
                # A taking that held before still holds if its member has no role left: another taking undid that.
                needless = taking is not held[-1] and standing.status(act.payload["member"]) != "member"
                if (no is not None and not needless) or authority.rank < taking.authority.rank:
                    return None
                if taking is held[-1]:
                    world.authority = authority
            elif act in void:
                no = no or No(rule="a taking rests on nothing that it takes", why="it would undo its own right")
            elif _may_undo(standing, act):
                world.undoing.append(act)
            _count(standing, act, no)
        return world


_FIRST: Place = (0, "")


def judge(standing: Standing, act: Act) -> No | None:
    """Return why an act on the community itself does not count; None if it does."""
    return _JUDGES[act.type](standing, act)


def refuse_below(standing: Standing, act: Act, role: str, rule: str) -> No | None:
    """Return why an actor may not do what needs at least this role."""
    if act.bad:
        return No(rule="an event fits its type and its community", why=act.bad)
    if not standing.exists:
        return No(
            rule="a community is created before anything else",
            why=f"there is no community {standing.community}",
            hint=f"everlog community create {standing.community}",
            missing=True,
        )
    held = standing.role_of(act)
    if not held:
        return _why_nobody(standing, act)
    if RANKS[held] >= RANKS[role]:
        return None
    return No(
        rule=rule,
        why=f"{act.by} is {_a(held)}, and it takes {_a(role)}",
        allowed=tuple(name for name in RANKS if RANKS[name] >= RANKS[role]),
        hint=f"everlog community promote {act.by} --to {role} --actor {_somebody(standing)}",
    )


def fingerprint(actor: str, origin: str) -> str:
    """Return the end of an id that names its founder: nobody else can create that community."""
    return b32encode(sha256(f"{actor}\n{origin}".encode()).digest()[:10]).decode().lower()


# ---- one judge for each type


def _created(standing: Standing, act: Act) -> No | None:
    rule = "a community is created once, by the founder that its id names if it names one"
    if act.bad:
        return No(rule=rule, why=act.bad)
    community = standing.community
    if standing.exists:
        why = f"{community} was created by {standing.state['created_by']}"
        return No(rule=rule, why=why, hint=f"everlog community show --scope {community}")
    name, sealed, founder = community.partition("~")
    if sealed and founder != fingerprint(act.by, act.origin):
        hint = f"everlog community create {name} --sealed"
        return No(rule=rule, why=f"{community} names another founder", hint=hint)
    return None


def _invited(standing: Standing, act: Act) -> No | None:
    rule = "the policy says who invites; only admins invite to more than a member's role"
    takes = standing.policy_at(act.place).get("who_invites", "")
    no = refuse_below(standing, act, takes, rule)
    if no is not None:
        return no
    who, role, held = act.payload["member"], act.payload["role"], standing.role_of(act)
    if (no := _refuse_unsigned_node(act, act.payload["node"])) is not None:
        return no
    if role != "member" and held != "admin":
        hint = f"everlog community invite {who} --actor {act.by}"
        return No(rule=rule, why=f"{act.by} is {_a(held)}", allowed=("member",), hint=hint)
    if standing.status(who) == "member":
        hint = f"everlog community promote {who} --to {role}" if role != "member" else "everlog community members"
        return No(rule=rule, why=f"{who} is a member already", hint=hint)
    return None


def _joined(standing: Standing, act: Act) -> No | None:
    rule = "an invited actor may join, from the node that the invitation names if it names one"
    if act.bad or not standing.exists:
        return refuse_below(standing, act, "", rule)
    status = standing.status(act.by)
    if status == "member":
        return No(rule=rule, why=f"{act.by} is a member already", hint="everlog community members")
    if status != "invited":
        why = f"{act.by} has no invitation"
        hint = f"everlog community invite {act.by} --actor {_somebody(standing)}"
        return No(rule=rule, why=why, allowed=standing.with_status("invited"), hint=hint)
    node = standing.invitation(act.by)["node"]
    if node not in ("", act.origin):
        why = f"{act.by} was invited to join from the node {node}, and this is {act.origin}"
        hint = f"everlog community invite {act.by} --node {act.origin} --actor {_somebody(standing)}"
        return No(rule=rule, why=why, allowed=(node,), hint=hint)
    expires = standing.invitation(act.by).get("expires_at", "")
    if expires and datetime.fromisoformat(act.at) > datetime.fromisoformat(expires):
        why = f"the invitation of {act.by} was open until {expires}"
        return No(rule=rule, why=why, hint=f"everlog community invite {act.by} --actor {_somebody(standing)}")
    return None


def _revoked(standing: Standing, act: Act) -> No | None:
    rule = "members of a higher rank may revoke a member, and everybody may leave; the last admin stays"
    who = act.payload.get("member", "")
    if standing.status(who) == "invited":  # then it withdraws the invitation
        return refuse_below(standing, act, standing.policy_at(act.place)["who_invites"], rule)
    if standing.has_left(who) and who != act.by and standing.can_take_from(standing.authority(act), who):
        return None  # then it names the point up to which they count
    return _taking(standing, act, rule)


def _promoted(standing: Standing, act: Act) -> No | None:
    rule = "admins promote members"
    no = refuse_below(standing, act, "admin", rule) or _refuse_stranger(standing, act, rule)
    if no is not None:
        return no
    who, role = act.payload["member"], act.payload["role"]
    held = standing.role(who)
    if RANKS[role] > RANKS[held]:
        return None
    higher = tuple(name for name in RANKS if RANKS[name] > RANKS[held])
    hint = f"everlog community demote {who} --to {role}" if role != held else "everlog community members"
    return No(rule=rule, why=f"{who} is {_a(held)} already", allowed=higher, hint=hint)


def _demoted(standing: Standing, act: Act) -> No | None:
    rule = "members of a higher rank may demote a member, and everybody may step down; the last admin stays"
    no = _taking(standing, act, rule)
    if no is not None:
        return no
    who, role = act.payload["member"], act.payload["role"]
    held = standing.role(who)
    if RANKS[role] < RANKS[held]:
        return None
    lower = tuple(name for name in RANKS if 0 < RANKS[name] < RANKS[held])
    hint = f"everlog community demote {who} --to {lower[0]}" if lower else f"everlog community revoke {who}"
    return No(rule=rule, why=f"{who} is {_a(held)}", allowed=lower, hint=hint)


def _taking(standing: Standing, act: Act, rule: str) -> No | None:
    """Judge what a revocation and a demotion of a member have in common."""
    no = refuse_below(standing, act, "member", rule) or _refuse_stranger(standing, act, rule)
    if no is not None:
        return no
    who = act.payload["member"]
    role, held = standing.role(who), standing.role_of(act)
    if role == "admin" and len(standing.with_role("admin")) == 1:
        others = [name for name in standing.with_status("member") if name != who]
        hint = f"everlog community promote {others[0] if others else 'MEMBER'} --to admin --actor {who}"
        return No(rule=rule, why=f"{who} is the last admin", hint=hint)
    authority = standing.authority(act)
    if who == act.by or authority.is_above(role, standing.since(who)):
        return None
    members = standing.with_status("member")
    above = tuple(name for name in members if standing.authority_of(name).is_above(role, standing.since(who)))
    longer = role == held == "admin"
    why = f"{who} has been an admin for longer" if longer else f"{who} is {_a(role)}, and {act.by} is {_a(held)}"
    return No(rule=rule, why=why, allowed=above or (who,), hint=_same_by(act, above[0] if above else who))


def _policy(standing: Standing, act: Act) -> No | None:
    return refuse_below(standing, act, "admin", "admins decide on the policy")


def _branch(standing: Standing, act: Act) -> No | None:
    rule = "admins name the branch that counts of a node whose chain forked"
    return refuse_below(standing, act, "admin", rule) or _refuse_unsigned_node(act, act.payload["node"])


def _manifest(standing: Standing, act: Act) -> No | None:
    rule = "every member may announce a node; only members who already act from it may describe it"
    no = refuse_below(standing, act, "member", rule)
    if no is not None:
        return no
    node = act.payload["node"]
    if (no := _refuse_unsigned_node(act, node)) is not None:
        return no
    owners = standing.owners_of(node)
    if not owners or act.by in owners or act.origin == node or not description(act):
        return None
    hint = f"everlog community node {quote(node)} --actor {act.by}"
    return No(rule=rule, why=f"the node {node} is one of {owners[0]}", allowed=tuple(owners), hint=hint)


_JUDGES: dict[str, Callable[[Standing, Act], No | None]] = {
    "community.created": _created,
    "community.member.invited": _invited,
    "community.member.joined": _joined,
    "community.member.revoked": _revoked,
    "community.member.promoted": _promoted,
    "community.member.demoted": _demoted,
    "community.policy.updated": _policy,
    "community.branch.named": _branch,
    "node.manifest.updated": _manifest,
}


# ---- inside


def _refuse_unsigned_node(act: Act, node: str) -> No | None:
    """Return why a signed act cannot name a node: anybody could act from one that is not a key."""
    if not is_key(act.origin) or _is_origin(node):
        return None
    return No(
        rule="a signed community has keys as its nodes",
        why=f"{node} is not a key" if node else "no node is named, so anybody could join under this name",
        hint="give the key of their log, which everlog keys show prints there: --node z6Mk…",
    )


def _is_origin(node: str) -> bool:
    try:
        return key_of(node).origin == node
    except EverlogError:
        return False


def _refuse_stranger(standing: Standing, act: Act, rule: str) -> No | None:
    who = act.payload["member"]
    if standing.status(who) == "member":
        return None
    members = standing.with_status("member")[:20]
    return No(rule=rule, why=f"{who} is not a member", allowed=members, hint="everlog community members")


def _why_nobody(standing: Standing, act: Act) -> No:
    rule, who, status = "members take part, from nodes of theirs", act.by, standing.status(act.by)
    nodes = standing.nodes_of(who)
    invite = f"everlog community invite {who} --actor {_somebody(standing)}"
    if status == "invited":
        return No(rule=rule, why=f"{who} has not joined yet", hint=f"everlog community join --actor {who}")
    if not nodes:
        return No(rule=rule, why=f"{who} is not a member", hint=invite)
    if act.origin not in nodes:
        why = f"{who} does not speak from the node {act.origin}; it takes a word from a node where they do"
        there = f"; type it in the log of the node {min(nodes)}, and bring its events here"
        hint = f"everlog community node {act.origin} --actor {who}{there}"  # here it would be refused, too
        return No(rule=rule, why=why, allowed=tuple(nodes), hint=hint)
    if standing.role_of(act, if_nothing_were_taken=True):
        return No(rule=rule, why=f"{who} was revoked", hint=invite)
    return No(rule=rule, why=f"{who} was not a member yet", hint="everlog community members")


def _same_by(act: Act, actor: str) -> str:
    """Return the command that does the same, for another actor."""
    who = act.payload["member"]
    if act.type == "community.member.revoked":
        return f"everlog community revoke {who} --actor {actor}"
    return f"everlog community demote {who} --to {act.payload['role']} --actor {actor}"


def _somebody(standing: Standing) -> str:
    """Return an admin, for a hint."""
    return next(iter(standing.with_role("admin")), "ADMIN")


def _a(role: str) -> str:
    return f"an {role}" if role.startswith("a") else f"a {role}"
