"""A range of a log's positions, proved by itself: everything that can be checked without knowing the rest.

The first event of each stream and of each origin in it is not compared with anything, and the ids are only listed:
`audit.audit`, which has all ranges, checks those. All else is done by the class that `verify` itself uses, so that
the two cannot find different things.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from everlog.core.codec import Packed
from everlog.core.event import Event, Link, Position, Purge, Purged, microseconds
from everlog.core.group import EventLink, GroupFacts, StoredEvent
from everlog.core.ids import EventId, id_time_ms
from everlog.log.verify.audit import PROBLEMS_MAX, Verifier, is_plain
from everlog.stores.contract import Problem

AHEAD = timedelta(days=1)


class FoundProblem(msgspec.Struct, frozen=True, array_like=True):
    """A problem, and the order in which `verify` would report it."""

    problem: Problem
    turn: int  # its number among several records that claim one position

    @property
    def order(self) -> tuple[int, int, int]:
        late = self.problem.code == "id_twice"  # known only when all have been read
        return self.problem.position, _LAST_TURN if late else self.turn, _RANK.get(self.problem.code, 1)


# What is checked first at one position; the content comes second.
_RANK = {
    "signature_invalid": -1,
    "signature_unexpected": -1,
    "group_changed": -1,
    "out_of_order": 0,
    "position_missing": 0,
    "sequence_gap": 3,
    "chain_broken": 4,
}
_LAST_TURN = 2**62


class Received(msgspec.Struct, array_like=True):
    """When the first and the last event of a range arrived."""

    position: int
    first_us: int
    last_us: int


class FirstOfStream(NamedTuple):
    position: int
    turn: int
    sequence: int


class FirstOfOrigin(NamedTuple):
    position: int
    turn: int
    origin_seq: int
    previous: bytes
    lamport: int  # 0 for an event that was purged


class RangeVerifier(Verifier):
    """Check the positions above `after`, passed to `take` one by one in order, or as stored groups, which may begin
    before the range; `account_to` ends it."""

    def __init__(self, origin: str, purges: list[Purge], after: Position, log_id: str = "") -> None:
        super().__init__(origin, purges, log_id=log_id)
        self.position = after
        self._after = after
        self.hashes = bytearray()
        self.found: list[FoundProblem] = []
        self.ids: list[tuple[str, int, int]] = []  # id, position, turn
        self.streams: dict[str, FirstOfStream] = {}
        self.origins: dict[str, FirstOfOrigin] = {}
        self.clocks: dict[str, int] = {}  # the last lamport of each origin
        self.oddities: list[Problem] = []
        self.signed = 0
        self.received: Received | None = None
        self._turn = 0
        self._lamport = 0

    def take(self, place: Packed | Purged) -> None:
        if place.position <= self._after:
            return
        self._turn = self._turn + 1 if place.position == self.position else 0
        self._lamport = 0  # of what a purge left; `look_at` has that of an event
        super().take(place)

    def take_linked(self, stored: StoredEvent, link: EventLink, facts: GroupFacts) -> None:
        if stored.recorded.position > self._after:
            self._look_at_stored(stored, facts)
            super().take_linked(stored, link, facts)

    def take_run(self, linked: Sequence[tuple[StoredEvent, EventLink]], facts: GroupFacts) -> None:
        if not is_plain(linked):
            super().take_run(linked, facts)
            return
        for stored, link in linked:
            position, event = stored.recorded.position, stored.recorded.event
            if position > self._after:
                self._look_at_stored(stored, facts)
                self._account_for(position)
                self.events += 1
                self.saw(link.hash)
                self.check_identity(position, event.id)
                self.check_sequence(position, event.stream, stored.recorded.sequence)
                self.check_chain(position, facts.origin, event.origin_seq, link.previous, link.hash)

    def _look_at_stored(self, stored: StoredEvent, facts: GroupFacts) -> None:
        position, event = stored.recorded.position, stored.recorded.event
        self._turn = self._turn + 1 if position == self.position else 0
        self._lamport = event.lamport
        self.signed += bool(facts.signature or event.signature)
        occurred_us = facts.received_us if event.occurred_at is None else microseconds(event.occurred_at)
        self._look_at_clocks(position, facts.received_us, occurred_us, event.id)

    def report(self, problem: Problem) -> None:
        if problem.position <= self._after:
            return  # of a group that begins in the range before
        if len(self.found) < PROBLEMS_MAX:
            self.found.append(FoundProblem(problem, self._turn))

    def saw(self, digest: bytes) -> None:
        self.hashes += digest

    def look_at(self, place: Packed, event: Event) -> None:
        self._lamport = event.lamport
        self.signed += bool(event.signature)
        self._look_at_clocks(place.position, place.received_us, microseconds(event.occurred_at), event.id)

    def check_identity(self, position: Position, event_id: str) -> None:
        self.ids.append((event_id, position, self._turn))

    def check_sequence(self, position: Position, stream: str, sequence: int) -> None:
        if stream in self.sequences:
            super().check_sequence(position, stream, sequence)
        else:
            self.streams[stream] = FirstOfStream(position, self._turn, sequence)
            self.sequences[stream] = sequence

    def check_chain(self, position: Position, origin: str, origin_seq: int, previous: bytes, digest: bytes) -> None:
        lamport = self._lamport
        before = self.chains.get(origin)
        if before is None:
            self.origins[origin] = FirstOfOrigin(position, self._turn, origin_seq, previous, lamport)
            self.chains[origin] = Link(origin_seq, digest)
        else:
            if odd := clock_back(position, origin_seq, lamport, before, self.clocks[origin]):
                self._odd(odd)
            super().check_chain(position, origin, origin_seq, previous, digest)
        self.clocks[origin] = lamport

    def _look_at_clocks(self, position: Position, received_us: int, occurred_us: int, event_id: EventId) -> None:
        """Note times that cannot all be true. No rule forbids them, but a user should know."""
        if self.received is None:
            self.received = Received(position, received_us, received_us)
        else:
            if odd := received_back(position, received_us, self.received.last_us):
                self._odd(odd)
            self.received.last_us = received_us
        ahead_us = occurred_us - received_us
        if ahead_us > AHEAD / timedelta(microseconds=1):
            ahead = timedelta(microseconds=ahead_us)
            self._odd(Problem(position, "occurred_ahead", f"it says that it happened {ahead} after it arrived"))
        made_us = id_time_ms(event_id) * 1000 - received_us
        if made_us > AHEAD / timedelta(microseconds=1):
            ahead = timedelta(microseconds=made_us)
            self._odd(Problem(position, "id_ahead", f"its id was made {ahead} after it arrived"))

    def _odd(self, found: Problem) -> None:
        if len(self.oddities) < PROBLEMS_MAX:
            self.oddities.append(found)


def received_back(position: int, received_us: int, before_us: int) -> Problem | None:
    if received_us >= before_us:
        return None
    back = timedelta(microseconds=before_us - received_us)
    return Problem(Position(position), "received_back", f"it arrived {back} before the event before it")


def clock_back(position: int, origin_seq: int, lamport: int, before: Link, clock: int) -> Problem | None:
    """Return a problem if an origin's clock went back.

    A purged event has no clock value, and events of a peer that arrived out of order prove nothing.
    """
    if not lamport or not clock or origin_seq != before.origin_seq + 1 or lamport > clock:
        return None
    reason = f"its clock says {lamport}, and the event before it of its origin says {clock}"
    return Problem(Position(position), "clock_back", reason)
