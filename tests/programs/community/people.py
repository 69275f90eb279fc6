"""Histories of a community as several nodes would write them, honest ones and others."""

from __future__ import annotations

from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.programs.community.events import CATALOG
from everlog.programs.community.membership import Standing
from everlog.programs.community.views import Manifest
from everlog.testing import builders
from everlog.testing.given_when_then import given

ADA, BOB, CYD, DAN = "user:ada", "user:bob", "user:cyd", "user:dan"
HOME = {ADA: "NODE-ADA", BOB: "NODE-BOB", CYD: "NODE-CYD", DAN: "NODE-DAN"}


class Story:
    """Events in the order in which they are told; clocks and chains go on by themselves unless somebody lies."""

    def __init__(self, community: str = "hearth") -> None:
        self.community = community
        self.events: list[Event] = []
        self._clock = 0
        self._chains: dict[str, int] = {}

    def act(
        self,
        who: str,
        type: str,
        *,
        from_node: str = "",
        lamport: int | None = None,
        seq: int | None = None,
        stream: str = "",
        scope: str | None = None,
        version: int = 1,
        **payload: Any,
    ) -> Event:
        origin = from_node or HOME[who]
        if lamport is None:
            self._clock += 1
        self._chains[origin] = seq or self._chains.get(origin, 0) + 1
        made = builders.event(
            type,
            stream=stream or f"community/{self.community}",
            payload=payload,
            lamport=self._clock if lamport is None else lamport,
            origin=origin,
            origin_seq=self._chains[origin],
            actor=who,
            scope=self.community if scope is None else scope,
        )
        self.events.append(msgspec.structs.replace(made, version=version))
        return self.events[-1]

    def created(self, who: str = ADA) -> None:
        self.act(who, "community.created", name="The hearth")

    def joined(self, who: str, *, by: str = ADA, role: str = "member") -> None:
        self.act(by, "community.member.invited", member=who, role=role)
        self.act(who, "community.member.joined")

    def revoked(self, who: str, *, by: str = ADA, upto: dict[str, int] | None = None, **how: Any) -> Event:
        points = {HOME[who]: self.chain(who)} if upto is None else upto
        return self.act(by, "community.member.revoked", member=who, upto=points, **how)

    def chain(self, who: str) -> int:
        """How far the chain of somebody's node is."""
        return self._chains.get(HOME[who], 0)

    # ---- what comes of it

    def standing(self) -> Standing:
        """How the community stands, from the events in any order."""
        ready = [CATALOG.upcast(event) for event in self.events]
        state = given(*ready).view(Manifest).states[f"community/{self.community}"]
        return Standing(state, self.community)

    def members(self) -> dict[str, str]:
        standing = self.standing()
        return {who: standing.role(who) for who in standing.with_status("member")}

    def ignored(self) -> list[tuple[str, str, str]]:
        left_out = self.standing().state["ignored"]
        return [(one["by"], one["type"].rpartition(".")[2], one["why"]) for one in left_out]


def founded(*others: tuple[str, str]) -> Story:
    """A community of ada's, with others in their roles."""
    story = Story()
    story.created()
    for who, role in others:
        story.joined(who, role=role)
    return story
