"""A range of a log's positions, proved by itself: everything that can be checked without knowing the rest.

The first event of each stream and of each origin in it is not compared with anything, and the ids are only listed:
`audit.audit`, which has all ranges, checks those. All else is done by the class that `verify` itself uses, so that
the two cannot find different things.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

import msgspec

from everlog.core.codec import Packed
from everlog.core.event import Event, Link, Position, Purge, Purged, microseconds
from everlog.core.ids import id_time_ms
from everlog.log.verify.audit import PROBLEMS_MAX, Verifier
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
_RANK = {"out_of_order": 0, "position_missing": 0, "sequence_gap": 3, "chain_broken": 4}
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
    """Check the positions above `after`, passed to `take` one by one in order; `account_to` ends the range."""

    def __init__(self, origin: str, purges: list[Purge], after: Position) -> None:
        super().__init__(origin, purges)
        self.position = after
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
        self._turn = self._turn + 1 if place.position == self.position else 0
        self._lamport = 0  # of what a purge left; `look_at` has that of an event
        super().take(place)

    def report(self, problem: Problem) -> None:
        if len(self.found) < PROBLEMS_MAX:
            self.found.append(FoundProblem(problem, self._turn))

    def saw(self, digest: bytes) -> None:
        self.hashes += digest

    def look_at(self, place: Packed, event: Event) -> None:
        self._lamport = event.lamport
        self.signed += bool(event.signature)
        self._look_at_clocks(place, event)

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

    def _look_at_clocks(self, place: Packed, event: Event) -> None:
        """Note times that cannot all be true. No rule forbids them, but a user should know."""
        if self.received is None:
            self.received = Received(place.position, place.received_us, place.received_us)
        else:
            if odd := received_back(place.position, place.received_us, self.received.last_us):
                self._odd(odd)
            self.received.last_us = place.received_us
        ahead_us = microseconds(event.occurred_at) - place.received_us
        if ahead_us > AHEAD / timedelta(microseconds=1):
            ahead = timedelta(microseconds=ahead_us)
            self._odd(Problem(place.position, "occurred_ahead", f"it says that it happened {ahead} after it arrived"))
        made_us = id_time_ms(event.id) * 1000 - place.received_us
        if made_us > AHEAD / timedelta(microseconds=1):
            ahead = timedelta(microseconds=made_us)
            self._odd(Problem(place.position, "id_ahead", f"its id was made {ahead} after it arrived"))

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
