"""Proving a log from its bytes: every position accounted for, every hash computed again, every chain unbroken."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import msgspec

from everlog.core.canonical import canonical
from everlog.core.codec import Packed, commitment, header_bytes, header_hash, unpack
from everlog.core.event import BEGINNING, START, Event, Link, Position, Purge, Purged
from everlog.errors import Damaged, NotCanonical
from everlog.stores.contract import HidesEvents, Problem, Store

PROBLEMS_MAX = 1000
"""A log that is damaged everywhere is told in this many lines."""


FOLLOWING = {
    "log_cut_off": 1,
    **dict.fromkeys(("position_missing", "out_of_order", "sequence_gap", "chain_broken", "purge_disagrees"), 2),
    **dict.fromkeys(("index_disagrees", "state_disagrees"), 3),
}
"""Problems that mostly follow from another one, such as an unreadable line, and how far behind it they are told."""


class Report(msgspec.Struct, frozen=True):
    """What verify found, causes before what follows from them. The digest is over all header hashes in order: equal
    logs have equal digests."""

    events: int
    purged: int
    head: Position
    digest: str
    problems: tuple[Problem, ...]
    unseen: int = 0
    """Positions that this reader may not see, such as those of other tenants: nothing was checked there."""

    def __post_init__(self) -> None:
        told = sorted(self.problems, key=lambda problem: FOLLOWING.get(problem.code, 0))
        msgspec.structs.force_setattr(self, "problems", tuple(told))

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(store: Store, *, progress: Callable[[int], None] = lambda position: None) -> Report:
    """Read every byte of a log again and report all that is wrong with it. It may be written meanwhile."""
    hides = isinstance(store, HidesEvents) and store.hides_events
    while True:
        # The head first: what is recorded from here on is looked at, but nobody is missed who was not there yet.
        head, purges = store.head(), store.purges()
        audit = (AuditOfPart if hides else Audit)(store.identity.origin, purges)
        for place in store.packed():
            audit.take(place)
            if place.position % 1000 == 0:
                progress(place.position)
        if store.purges() == purges:
            break  # else something was purged on the way, and what was seen fits neither before nor after
    head = max(head, audit.position)
    audit.end(head)
    problems = _without_known(audit.problems, list(store.check()))[:PROBLEMS_MAX]
    unseen = head - audit.events - audit.purged - len(purges) if hides else 0
    return Report(audit.events, audit.purged, head, audit.digest.hexdigest(), problems, unseen)


def _without_known(problems: list[Problem], of_store: list[Problem]) -> tuple[Problem, ...]:
    """All of them; but a position at which nothing is lost is not told as missing besides."""
    known = {problem.position for problem in of_store if problem.code == "conflict_marker"}
    kept = [each for each in problems if each.code != "position_missing" or each.position not in known]
    return (*kept, *of_store)


class Audit:
    """What is wrong with places, told one by one in order; `end` says that there are no more."""

    def __init__(self, origin: str, purges: Iterable[Purge]) -> None:
        self.events = 0
        self.purged = 0
        self.digest = hashlib.sha256()  # over every header's hash
        self.problems: list[Problem] = []
        self.position = START
        self.sequences: dict[str, int] = {}  # the last of each stream
        self.chains: dict[str, Link] = {}  # the end of each origin's chain
        self._origin = origin
        self._purges = {purge.reserved: purge for purge in purges}
        self._ids: set[bytes] = set()

    def take(self, place: Packed | Purged) -> None:
        self._account_for(place.position)
        if isinstance(place, Purged):
            self.purged += 1
            self.saw(place.hash)
            self.check_chain(place.position, place, place.hash)
            self._go_on_after_purged(place)
            return
        self.events += 1
        digest = header_hash(place.header)
        self.saw(digest)
        try:
            event = unpack(place).event
        except Damaged as error:
            self.report(Problem(place.position, "unreadable", error.why))
            return
        for code, reason in content_problems(place, event, own=event.origin == self._origin):
            self.report(Problem(place.position, code, reason))
        self.check_identity(place, event)
        self.check_sequence(place, event)
        self.check_chain(place.position, event, digest)

    def end(self, head: Position) -> None:
        self.account_to(head)
        if (wrong := wrong_count(self._purges.values(), self.purged, head)) is not None:
            self.report(wrong)

    @property
    def told(self) -> int:
        """How many problems there are so far."""
        return len(self.problems)

    def saw(self, digest: bytes) -> None:
        """The next header's hash."""
        self.digest.update(digest)

    def account_to(self, position: Position) -> None:
        """There are no more places up to here, and every number up to it must be accounted for."""
        if position > self.position:
            self._account_for(Position(position + 1))

    def _account_for(self, position: Position) -> None:
        """Every number up to this one is an event, a purged event or reserved by a purge (G3)."""
        if position <= self.position:
            self.report(Problem(position, "out_of_order", f"it comes after position {self.position}"))
        for missing in range(self.position + 1, position):
            purge = self._purges.get(Position(missing))
            if purge is not None:
                self.sequences[purge.stream] = purge.sequence  # the stream goes on where it was
            elif self.told >= PROBLEMS_MAX:
                break
            else:
                self.report(Problem(Position(missing), "position_missing", "no event and no purge accounts for it"))
        self.position = position

    def check_identity(self, place: Packed, event: Event) -> None:
        short = event.id.encode()
        if short in self._ids:
            self.report(Problem(place.position, "id_twice", f"the id {event.id} stands at an earlier position too"))
        self._ids.add(short)

    def check_sequence(self, place: Packed, event: Event) -> None:
        last = self.sequences.get(event.stream, 0)
        if (wrong := wrong_sequence(event.stream, place.position, place.sequence, last)) is not None:
            self.report(wrong)
        self.sequences[event.stream] = place.sequence

    def _go_on_after_purged(self, place: Purged) -> None:
        """Events may follow that the purge did not know: another clone had appended them to the same stream."""
        purge = self._purges.get(place.reserved)
        if purge is not None and place.sequence:
            self.sequences[purge.stream] = place.sequence

    def check_chain(self, position: Position, event: Event | Purged, digest: bytes) -> None:
        before = self.chains.get(event.origin, BEGINNING)
        own = event.origin == self._origin
        if (wrong := wrong_link(position, event.origin_seq, event.previous, before, own=own)) is not None:
            self.report(wrong)
        self.chains[event.origin] = Link(event.origin_seq, digest)

    def report(self, problem: Problem) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)


class AuditOfPart(Audit):
    """The audit of a reader that sees some of the events: what lies between them is not missing.

    Each event is proved by itself, and the links between neighbours of a chain where both are seen.
    """

    def end(self, head: Position) -> None:
        """What was purged is known in part too, so that no count can be wrong."""

    def _account_for(self, position: Position) -> None:
        if position <= self.position:
            self.report(Problem(position, "out_of_order", f"it comes after position {self.position}"))
        self.position = position

    def check_sequence(self, place: Packed, event: Event) -> None:
        last = self.sequences.get(event.stream, 0)
        if place.sequence <= last:
            reason = f"{event.stream} has sequence {place.sequence} after {last}"
            self.report(Problem(place.position, "sequence_gap", reason))
        self.sequences[event.stream] = place.sequence

    def check_chain(self, position: Position, event: Event | Purged, digest: bytes) -> None:
        before = self.chains.get(event.origin, BEGINNING)
        if (wrong := wrong_link(position, event.origin_seq, event.previous, before, own=False)) is not None:
            self.report(wrong)
        self.chains[event.origin] = Link(event.origin_seq, digest)


def wrong_sequence(stream: str, position: Position, sequence: int, last: int) -> Problem | None:
    if sequence == last + 1:
        return None
    return Problem(position, "sequence_gap", f"{stream} has sequence {sequence} after {last}")


def wrong_link(position: Position, origin_seq: int, previous: bytes, before: Link, *, own: bool) -> Problem | None:
    """Our own chain has every link in order; a peer's events may have come in any."""
    if origin_seq == before.origin_seq + 1:
        if previous != before.hash:
            return Problem(position, "chain_broken", f"it does not follow event {before.origin_seq} of its origin")
    elif own:
        reason = f"it is event {origin_seq} of this log's chain, after event {before.origin_seq}"
        return Problem(position, "chain_broken", reason)
    return None


def wrong_count(purges: Iterable[Purge], purged: int, head: Position) -> Problem | None:
    promised = sum(purge.count for purge in purges)
    if promised == purged:
        return None
    reason = f"the purges say that they removed {promised} events, and {purged} are on record as removed"
    return Problem(head, "purge_disagrees", reason)


def content_problems(place: Packed, event: Event, *, own: bool) -> Iterator[tuple[str, str]]:
    if header_bytes(event) != place.header:
        yield "header_changed", "the header is not in its canonical form"
    if not event.salt and not place.payload:
        # A peer may have erased a payload before the event came here; this log itself never does.
        if own:
            yield "payload_missing", "the event was made here with a payload, and its payload is gone"
        return
    if commitment(event.salt, place.payload) != event.commitment:
        yield "payload_changed", "the payload is not the one that the header commits to"
        return
    try:
        if canonical(event.payload) != place.payload:
            yield "payload_changed", "the payload is not in its canonical form"
    except NotCanonical as error:
        yield "payload_changed", str(error)
