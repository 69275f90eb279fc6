"""Proving a log from its bytes: every position accounted for, every hash computed again, every chain unbroken."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

import msgspec

from everlog.core.canonical import canonical
from everlog.core.codec import Packed, commitment, header_bytes, header_hash, unpack
from everlog.core.event import BEGINNING, START, Event, Link, Position, Purge, Purged
from everlog.errors import Damaged, NotCanonical
from everlog.log.verify.spill import Spill
from everlog.stores.contract import HidesEvents, Locating, Problem, Stored

PROBLEMS_MAX = 100_000
"""So many problems are listed, ranges of positions as one. What is beyond is counted."""

STREAMS_MAX = 50_000
"""The sequences of so many streams are held in memory. Those of more are compared when all have been seen."""

LOOKS_MAX = 4
"""A problem that is found while the log is written must be found again. So often is looked at most."""


_PLACE = struct.Struct(">Q")
_STRETCH = struct.Struct(">QQQ")  # of a stream: where it begins, its first sequence there (0: any), its last

FOLLOWING = {
    "log_cut_off": 1,
    **dict.fromkeys(("position_missing", "out_of_order", "sequence_gap", "chain_broken", "purge_disagrees"), 2),
    **dict.fromkeys(("index_disagrees", "state_disagrees"), 3),
}
"""Problems that mostly follow from another one, such as an unreadable line, and how far after it they are listed."""


class Report(msgspec.Struct, frozen=True):
    """What verify found up to the head of the moment it began, causes before what follows from them. The digest is
    over all header hashes in order: equal logs have equal digests."""

    events: int
    purged: int
    head: Position
    digest: str
    problems: tuple[Problem, ...]
    unseen: int = 0
    """Positions that this reader may not see, such as those of other tenants: nothing was checked there."""
    unlisted: int = 0  # problems beyond PROBLEMS_MAX

    def __post_init__(self) -> None:
        ordered = sorted(self.problems, key=lambda problem: FOLLOWING.get(problem.code, 0))
        msgspec.structs.force_setattr(self, "problems", tuple(in_ranges(ordered)))

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(store: Stored, *, progress: Callable[[int], None] = lambda position: None) -> Report:
    """Read every byte of a log again and report all that is wrong with it, up to its head of this moment.

    It may be written, purged and packed meanwhile. What is found then counts only if a second look finds it too.
    """
    seen = _Look(store, progress)
    for _ in range(LOOKS_MAX - 1):
        if not seen.failure and not seen.problems:
            break
        if not seen.moved():
            break
        seen = _Look(store, progress, before=seen)
    return seen.report()


class _Look:
    """One look at a log, up to the head that it has now."""

    def __init__(self, store: Stored, progress: Callable[[int], None], *, before: _Look | None = None) -> None:
        self._store = store
        # The head first: a purge that is not among these has a reserved position above it.
        self._head = store.head()
        self._purges = store.purges()
        self.failure: Damaged | None = None
        self.problems: list[Problem] = []
        self._hides = isinstance(store, HidesEvents) and store.hides_events
        made = AuditOfPart if self._hides else Audit
        self._audit = made(store.identity.origin, self._purges, head=self._head)
        try:
            with closing(self._audit):
                self._take(progress)
                self._audit.end(self._head)
                self.problems = with_those_of(store, self._audit.problems)
        except Damaged as error:
            self.failure = error
        if before is not None and before.failure is None:
            known = {(problem.position, problem.code) for problem in before.problems}
            self.problems = [problem for problem in self.problems if (problem.position, problem.code) in known]

    def moved(self) -> bool:
        """Whether somebody has written since this look began."""
        return self._store.head() != self._head or self._store.purges() != self._purges

    def report(self) -> Report:
        if self.failure is not None:
            raise self.failure
        audit, listed = self._audit, self.problems[:PROBLEMS_MAX]
        unlisted = audit.unlisted + len(self.problems) - len(listed)
        reserved = sum(purge.reserved <= self._head for purge in self._purges)
        unseen = self._head - audit.events - audit.purged - reserved if self._hides else 0
        return Report(
            audit.events, audit.purged, self._head, audit.digest.hexdigest(), tuple(listed), unseen, unlisted
        )

    def _take(self, progress: Callable[[int], None]) -> None:
        places = self._store.slots()
        try:
            for place in places:
                if place.position > self._head:
                    return  # it came while the rest was read
                self._audit.take(place)
                if place.position % 1000 == 0:
                    progress(place.position)
        finally:
            if isinstance(places, Generator):
                places.close()  # it may hold a snapshot of the store


def _located(store: Stored, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Problems with the file that they are in."""
    for problem in problems:
        if problem.position and not problem.file and isinstance(store, Locating):
            yield msgspec.structs.replace(problem, file=store.file_of(problem.position))
        else:
            yield problem


def in_ranges(problems: Iterable[Problem]) -> Iterator[Problem]:
    """The same, with neighbours of which the same is wrong as one."""
    open_range: Problem | None = None
    for problem in problems:
        if open_range is not None:
            same = (problem.code, problem.reason, problem.file) == (
                open_range.code,
                open_range.reason,
                open_range.file,
            )
            if same and problem.position and problem.position == open_range.last + 1:
                open_range = msgspec.structs.replace(open_range, upto=problem.last)
                continue
            yield open_range
        open_range = problem
    if open_range is not None:
        yield open_range


EXPLAINED = ("conflict_marker", "log_cut_off")
"""What a store says of positions that it knows to have had: it knows the file, and that they are missing."""


def with_those_of(store: Stored, problems: list[Problem]) -> list[Problem]:
    """What is wrong with the places and with the store, with the files. A position that the store itself explains is
    not listed as missing besides."""
    of_store = list(store.check())
    known = sorted((each.position, each.last) for each in of_store if each.code in EXPLAINED and each.position)
    kept: list[Problem] = []
    for each in problems:
        kept += [each] if each.code != "position_missing" else _beside(each, known)
    return [*_located(store, kept), *of_store]


def _beside(missing: Problem, known: list[tuple[Position, Position]]) -> Iterator[Problem]:
    """A range of missing positions without those that are known."""
    first, last = missing.position, missing.last
    for known_first, known_last in known:
        if known_first > last or known_last < first:
            continue
        if first < known_first:
            yield _missing(first, Position(known_first - 1))
        first = Position(known_last + 1)
    if first <= last:
        yield _missing(first, last)


def _missing(first: Position, last: Position) -> Problem:
    reason = "no event and no purge accounts for it"
    return Problem(first, "position_missing", reason, upto=last if last > first else START)


class Audit:
    """What is wrong with places, given one by one in order; `end` says that there are no more.

    Ids and streams are compared with all others without being held in memory, so it must be closed. With `head`, an
    event that was purged behind it counts as the event that it was.
    """

    def __init__(self, origin: str, purges: Iterable[Purge], *, head: Position | None = None) -> None:
        self.events = 0
        self.purged = 0
        self.digest = hashlib.sha256()  # over every header's hash
        self.problems: list[Problem] = []
        self.position = START
        self.unlisted = 0
        self.sequences: dict[str, int] = {}  # the last of each stream, of those that were met lately
        self.chains: dict[str, Link] = {}  # the end of each origin's chain
        self._origin = origin
        self._head = head
        self._purges = {purge.reserved: purge for purge in purges}
        self._ids = Spill()
        self._streams: Spill | None = None  # what was in `sequences` before, once there were too many
        self._firsts: dict[str, tuple[Position, int]] = {}

    def take(self, place: Packed | Purged) -> None:
        self._account_for(place.position)
        if isinstance(place, Purged):
            if self._head is not None and place.reserved > self._head:
                self.events += 1
            else:
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
        self._compare_ids()
        self._compare_streams()
        self.problems.sort(key=lambda problem: problem.position)  # some were found only now
        counted = [purge for purge in self._purges.values() if self._head is None or purge.reserved <= self._head]
        if (wrong := wrong_count(counted, self.purged, head)) is not None:
            self.report(wrong)

    def close(self) -> None:
        self._ids.close()
        if self._streams is not None:
            self._streams.close()

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
        first = Position(self.position + 1)
        for reserved in sorted(place for place in self._purges if self.position < place < position):
            self._miss(first, reserved)
            self._go_on_after(self._purges[reserved])
            first = Position(reserved + 1)
        self._miss(first, position)
        self.position = position

    def _miss(self, first: Position, before: Position) -> None:
        if first < before:
            self.report(_missing(first, Position(before - 1)))

    def check_identity(self, place: Packed, event: Event) -> None:
        self._ids.add(event.id.encode() + _PLACE.pack(place.position))

    def _compare_ids(self) -> None:
        for one, other in self._ids.pairs():
            if one[: -_PLACE.size] == other[: -_PLACE.size]:
                (position,) = _PLACE.unpack(other[-_PLACE.size :])
                self.report(id_twice(Position(position), other[: -_PLACE.size].decode()))

    def check_sequence(self, place: Packed, event: Event) -> None:
        last = self._last_of(event.stream, place.position, place.sequence)
        if (wrong := wrong_sequence(event.stream, place.position, place.sequence, last)) is not None:
            self.report(wrong)
        self.sequences[event.stream] = place.sequence

    def _last_of(self, stream: str, position: Position, sequence: int) -> int:
        """The stream's last sequence. If that was put down, it is what fits, and they are compared at the end."""
        last = self.sequences.get(stream)
        if last is not None:
            return last
        if len(self.sequences) >= STREAMS_MAX:
            self._put_streams_down()
        if self._streams is None:
            return 0
        self._firsts[stream] = (position, sequence)
        return sequence - 1

    def _put_streams_down(self) -> None:
        if self._streams is None:
            self._streams = Spill()
        for stream, last in self.sequences.items():
            first, sequence = self._firsts.get(stream, (START, 1))
            self._streams.add(stream.encode() + b"\0" + _STRETCH.pack(first, sequence, last))
        self.sequences.clear()
        self._firsts.clear()

    def _compare_streams(self) -> None:
        if self._streams is None:
            return
        self._put_streams_down()
        name, last = b"", 0
        for item in self._streams:
            stream = item[: -_STRETCH.size - 1]
            position, sequence, end = _STRETCH.unpack(item[-_STRETCH.size :])
            if stream != name:
                name, last = stream, 0
            wrong = wrong_sequence(name.decode(), Position(position), sequence, last) if sequence else None
            if wrong is not None:
                self.report(wrong)
            last = end

    def _go_on_after(self, purge: Purge) -> None:
        """A stream goes on where it was when it was purged."""
        self._set_sequence(purge.stream, purge.reserved, purge.sequence)

    def _go_on_after_purged(self, place: Purged) -> None:
        """Events may follow that the purge did not know: another clone had appended them to the same stream."""
        purge = self._purges.get(place.reserved)
        if purge is not None and place.sequence:
            self._set_sequence(purge.stream, place.position, place.sequence)

    def _set_sequence(self, stream: str, position: Position, sequence: int) -> None:
        if stream not in self.sequences and self._streams is not None:
            self._firsts[stream] = (position, 0)  # nothing that it must follow
        self.sequences[stream] = sequence

    def check_chain(self, position: Position, event: Event | Purged, digest: bytes) -> None:
        before = self.chains.get(event.origin, BEGINNING)
        own = event.origin == self._origin
        if (wrong := wrong_link(position, event.origin_seq, event.previous, before, own=own)) is not None:
            self.report(wrong)
        self.chains[event.origin] = Link(event.origin_seq, digest)

    def report(self, problem: Problem) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.unlisted += 1


class AuditOfPart(Audit):
    """The audit of a reader that sees some of the events: what lies between them is not missing.

    Each event is proved by itself, and the links between neighbours of a chain where both are seen.
    """

    def end(self, head: Position) -> None:
        """What was purged is known in part too, so that no count can be wrong."""
        self._compare_ids()

    def _account_for(self, position: Position) -> None:
        if position <= self.position:
            self.report(Problem(position, "out_of_order", f"it comes after position {self.position}"))
        self.position = position

    def check_sequence(self, place: Packed, event: Event) -> None:
        if len(self.sequences) >= STREAMS_MAX and event.stream not in self.sequences:
            self.sequences.clear()  # what is seen of a stream from here on is compared with itself
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


def id_twice(position: Position, id: str) -> Problem:
    return Problem(position, "id_twice", f"the id {id} stands at an earlier position too")


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
