"""Whose chains count in a log that a community governs: those of the nodes of its members.

    a node of a member, or the key that an invitation names     the whole chain
    a node of somebody who was revoked or left                  up to the greatest number that is granted
    any other key                                               nothing
    a node whose chain forked                                   up to the fork, or the branch that an admin named

The chain is all that is decided here: whether a single event counts, its author's role decides (`rights`). The id of
the community names its founder, so nobody else can create it first. The records of purges and erasures are followed
if an admin made them.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Collection, Iterable

from everlog.core.event import Event
from everlog.errors import InvalidSettings
from everlog.programs.community import rights
from everlog.programs.community.events import COMMUNITY, GOVERNANCE
from everlog.programs.community.membership import Standing, State, no_acts
from everlog.programs.community.reading import ACTS, act_by, in_order
from everlog.trust.standing import Branch, Limit, Rights


class Members:
    """The members of one community, as its own history says: see `everlog.trust.standing`."""

    deciding: Collection[str] = GOVERNANCE

    def __init__(self, community: str) -> None:
        if "~" not in community:
            raise InvalidSettings(
                f"the community {community} cannot decide whose events count",
                why="its id does not name its founder, so anybody could create it first, with an older clock",
                hint=f"everlog community create {community} --sealed prints an id that does",
            )
        self._community = community

    def rights(self, history: Iterable[Event]) -> Rights:
        state, stream = no_acts(), f"{COMMUNITY}/{self._community}"
        for act in in_order([event for event in history if event.stream == stream]):
            state = rights.take(state, act, self._community)
        return _MemberRights(state, self._community)

    def begins(self, event: Event) -> bool:
        _, _, founder = self._community.partition("~")
        created = event.type == "community.created" and event.stream == f"{COMMUNITY}/{self._community}"
        return created and founder == rights.fingerprint(event.actor, event.origin)


class _MemberRights:
    def __init__(self, state: State, community: str) -> None:
        self.begun = bool(state["created_at"])
        self._standing = Standing(state, community)
        self._ends: dict[str, int | None] = {}  # None: without an end
        for act in state[ACTS]:
            for named in (act["payload"].get("node"), act["origin"] if act["type"] == "community.created" else None):
                if named:
                    self._ends.setdefault(named, 0)
        for member in state["members"].values():
            if member["status"] == "invited" and member["invited"]["node"]:
                self._ends[member["invited"]["node"]] = None
            for term in member["terms"]:
                for node in term["nodes"]:
                    for grant in term["grants"]:
                        self._grant(node, None if grant["upto"] is None else grant["upto"].get(node, 0))

    @property
    def named(self) -> Collection[str]:
        return self._ends.keys()

    def _grant(self, node: str, upto: int | None) -> None:
        held = self._ends.get(node, 0)
        self._ends[node] = None if held is None or upto is None else max(held, upto)

    def branch(self, origin: str) -> Branch | None:
        named = self._standing.branch_of(origin)
        return None if named is None else Branch(named["first"], tuple(map(b64decode, named["hashes"])))

    def may_remove(self, record: Event) -> bool:
        """Only admins remove events: what is removed may be an act from which the rights of others follow."""
        return self._standing.role_of(act_by(record)) == "admin"

    def limit(self, origin: str) -> Limit | None:
        if origin not in self._ends:
            return Limit(0, "unknown_author")
        upto = self._ends[origin]
        return None if upto is None else Limit(upto, "revoked_author")
