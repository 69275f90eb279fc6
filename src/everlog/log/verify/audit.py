"""The audit of a log, position by position: what `verify` checks of each event and of its neighbours.

It compares every id and every stream with all others, and must not grow with the log. So these may wait in a
temporary file (`spill.py`).
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from msgspec.structs import replace

from everlog.core.canonical import canonical
from everlog.core.codec import Packed, commitment, header_bytes, header_hash, unpack
from everlog.core.event import BEGINNING, START, Event, Link, Position, Purge, Purged
from everlog.core.group import EventLink, GroupFacts, StoredEvent
from everlog.errors import Damaged, NotCanonical
from everlog.log.verify.removals import Erased, Removals
from everlog.log.verify.signatures import Signatures
from everlog.log.verify.spill import Spill, UniqueIds
from everlog.stores.contract import Problem
from everlog.stores.formats import FORMAT

PROBLEMS_MAX = 100_000
"""So many problems are listed, ranges of positions as one. What is beyond is counted."""

STREAMS_MAX = 50_000
"""The sequences of so many streams are held in memory. Those of more are compared when all have been seen."""

PAYLOAD_GONE = "the event was made here with a payload, and its payload is gone"
OTHER_PAYLOAD = "the payload is not the one that the header commits to"

_STRETCH = struct.Struct(">QQQ")  # of a stream: where it begins, its first sequence there (0: any), its last


def missing_between(first: Position, last: Position) -> Problem:
    reason = "no event and no purge accounts for it"
    return Problem(first, "position_missing", reason, upto=last if last > first else START)


class Verifier:
    """Find what is wrong with the slots of a log, which are passed one by one, in order; `end` comes after the last.

    Ids and streams are compared with all others without being held in memory, so it must be closed. With `head`, an
    event that was purged by a purge after that position counts as an event. With `upgraded`, an event that was purged
    in an older format must be at or below that position. With `log_id`, signatures are checked.
    """

    def __init__(
        self,
        origin: str,
        purges: Iterable[Purge],
        *,
        head: Position | None = None,
        upgraded: int | None = None,
        hash: Callable[[bytes], bytes] = header_hash,
        former: Collection[str] = (),
        log_id: str = "",
    ) -> None:
        self.events = 0
        self.purged = 0
        self.digest = hashlib.sha256()  # over every header's hash
        self.problems: list[Problem] = []
        self.faults: list[Problem] = []  # of other origins, whose events are as they were admitted
        self.position = START
        self.unlisted = 0
        self.sequences: dict[str, int] = {}  # the last of each stream, of those that were met lately
        self.chains: dict[str, Link] = {}  # the end of each origin's chain
        self._origin = origin
        self._made_here = {origin, *former}
        self._head = head
        self._upgraded = upgraded
        self._hash = hash
        self.signatures = Signatures(log_id) if log_id else None
        self.removals = Removals(self._made_here)
        self._purges = {purge.reserved: purge for purge in purges}
        self._reserved = sorted(self._purges)
        self._ids = UniqueIds()
        self._streams: Spill | None = None  # what was in `sequences` before, once there were too many
        self._firsts: dict[str, tuple[Position, int]] = {}

    def take(self, place: Packed | Purged) -> None:
        self._account_for(place.position)
        if isinstance(place, Purged):
            if self._head is not None and place.reserved > self._head:
                self.events += 1
            else:
                self.purged += 1
                self.removals.add_stub(place)
            self.saw(place.hash)
            if self._upgraded is not None and place.hash_format != FORMAT:
                self._check_format(place, self._upgraded)
            if self.signatures is not None and place.signature:
                for problem in self.signatures.of_stub(place):
                    self.report(problem)
            self.check_chain(place.position, place.origin, place.origin_seq, place.previous, place.hash)
            self._go_on_after_purged(place)
            return
        self.events += 1
        digest = self._hash(place.header)
        self.saw(digest)
        try:
            event = unpack(place).event
        except Damaged as error:
            self.report(Problem(place.position, "unreadable", error.why))
            return
        self._take_event(place, event, digest)

    def take_decoded(self, place: Packed, event: Event, digest: bytes) -> None:
        """Take the next slot, of which the caller has the event and its hash already."""
        self._account_for(place.position)
        self.events += 1
        self.saw(digest)
        self._take_event(place, event, digest)

    def _take_event(self, place: Packed, event: Event, digest: bytes) -> None:
        for code, reason in content_problems(place, event, own=event.origin in self._made_here):
            self.report(Problem(place.position, code, reason))
        if self.signatures is not None:
            for problem in self.signatures.of_slot(place, event, digest):
                self.report(problem)
        self._note_erased(place.position, event, event.origin, digest)
        self.look_at(place, event)
        self.check_identity(place.position, event.id)
        self.check_sequence(place.position, event.stream, place.sequence)
        self.check_chain(place.position, event.origin, event.origin_seq, event.previous, digest)

    def take_linked(self, stored: StoredEvent, link: EventLink, facts: GroupFacts) -> None:
        """Take an event of a stored group, whose hashes were computed from what is stored."""
        position, event, origin = stored.recorded.position, stored.recorded.event, facts.origin
        self._account_for(position)
        self.events += 1
        self.saw(link.hash)
        if not event.salt and not stored.payload:
            if origin in self._made_here and not event.erased_by:
                self.report(Problem(position, "payload_missing", PAYLOAD_GONE))
            self._note_erased(position, event, origin, link.hash)
        elif event.commitment is not None and commitment(event.salt, stored.payload) != link.commitment:
            self.report(Problem(position, "payload_changed", OTHER_PAYLOAD))
        self.check_identity(position, event.id)
        self.check_sequence(position, event.stream, stored.recorded.sequence)
        self.check_chain(position, origin, event.origin_seq, link.previous, link.hash)

    def _note_erased(self, position: Position, event: Event, origin: str, digest: bytes) -> None:
        if event.erased_by and not event.salt:
            self.removals.erased.append(Erased(position, origin, event.origin_seq, digest, event.erased_by))

    def take_run(self, linked: Sequence[tuple[StoredEvent, EventLink]], facts: GroupFacts) -> None:
        """Take the events of a stored group, all at once if nothing about them needs a closer look."""
        if not is_plain(linked):
            for stored, link in linked:
                self.take_linked(stored, link, facts)
            return
        (first, start), (last, end) = linked[0], linked[-1]
        position, upto, origin = first.recorded.position, last.recorded.position, facts.origin
        self._account_for(position)
        self.position = upto
        self.events += len(linked)
        self.saw(b"".join([link.hash for _, link in linked]))
        ids: list[str] = []
        sequences = self.sequences
        for stored, _ in linked:
            recorded = stored.recorded
            event, sequence = recorded.event, recorded.sequence
            ids.append(event.id)
            stream = event.stream
            if sequences.get(stream) == sequence - 1:  # as nearly always; the next lines are two calls
                sequences[stream] = sequence
            else:
                self.check_sequence(recorded.position, stream, sequence)
        self._ids.add(position, ids)
        self.check_chain(position, origin, first.recorded.event.origin_seq, start.previous, start.hash)
        self.chains[origin] = Link(last.recorded.event.origin_seq, end.hash)

    def _check_format(self, place: Purged, upgraded: int) -> None:
        if 0 < place.hash_format < FORMAT and place.position <= upgraded:
            return
        known = f"it was upgraded when its head was {upgraded}" if upgraded else "this log was never upgraded"
        reason = f"what a purge left here has a hash of format {place.hash_format}, and {known}"
        self.report(Problem(place.position, "purge_disagrees", reason))

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
        low, high = bisect_right(self._reserved, self.position), bisect_left(self._reserved, position)
        for reserved in self._reserved[low:high]:
            self._miss(first, reserved)
            self._go_on_after(self._purges[reserved])
            first = Position(reserved + 1)
        self._miss(first, position)
        self.position = position

    def _miss(self, first: Position, before: Position) -> None:
        if first < before:
            self.report(missing_between(first, Position(before - 1)))

    def look_at(self, place: Packed, event: Event) -> None:
        """Look at what an event says of itself; for audits that check more."""

    def check_identity(self, position: Position, event_id: str) -> None:
        self._ids.add(position, [event_id])

    def _compare_ids(self) -> None:
        for position, event_id in self._ids.twice():
            self.report(id_twice(position, event_id))

    def check_sequence(self, position: Position, stream: str, sequence: int) -> None:
        last = self._last_of(stream, position, sequence)
        if (wrong := wrong_sequence(stream, position, sequence, last)) is not None:
            self.report(wrong)
        self.sequences[stream] = sequence

    def _last_of(self, stream: str, position: Position, sequence: int) -> int:
        """Return the stream's last sequence. If it was spilled, assume the one that fits; `end` compares them."""
        last = self.sequences.get(stream)
        if last is not None:
            return last
        if len(self.sequences) >= STREAMS_MAX:
            self._spill_streams()
        if self._streams is None:
            return 0
        self._firsts[stream] = (position, sequence)
        return sequence - 1

    def _spill_streams(self) -> None:
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
        self._spill_streams()
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
        """Let the stream continue after the sequence that it had when it was purged."""
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

    def check_chain(self, position: Position, origin: str, origin_seq: int, previous: bytes, digest: bytes) -> None:
        before = self.chains.get(origin, BEGINNING)
        own = origin == self._origin
        if (wrong := wrong_link(position, origin_seq, previous, before, own=own)) is not None:
            self.report_link(origin, wrong)
        self.chains[origin] = Link(origin_seq, digest)

    def report_link(self, origin: str, wrong: Problem) -> None:
        """Report a broken link: damage in a chain that was made here, and a fault of its origin in any other."""
        self.report_of(origin, wrong if origin in self._made_here else replace(wrong, code="chain_fault"))

    def report_of(self, origin: str, wrong: Problem) -> None:
        if origin in self._made_here:
            self.report(wrong)
        elif len(self.faults) < PROBLEMS_MAX:
            self.faults.append(replace(wrong, reason=f"{wrong.reason}, {origin}"))

    def report(self, problem: Problem) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.unlisted += 1


def is_plain(linked: Sequence[tuple[StoredEvent, EventLink]]) -> bool:
    """Return whether nothing about the events of a group needs a closer look.

    An event that stores no commitment has a payload that fits it, and one that stores no previous hash follows.
    """
    first, last = linked[0][0].recorded, linked[-1][0].recorded
    if not last.position - first.position == len(linked) - 1 == last.event.origin_seq - first.event.origin_seq:
        return False
    for _, link in linked:  # noqa: SIM110 - a generator would double the cost
        if link.stored:
            return False
    return True


class PartVerifier(Verifier):
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

    def check_sequence(self, position: Position, stream: str, sequence: int) -> None:
        if len(self.sequences) >= STREAMS_MAX and stream not in self.sequences:
            self.sequences.clear()  # what is seen of a stream from here on is compared with itself
        last = self.sequences.get(stream, 0)
        if sequence <= last:
            reason = f"{stream} has sequence {sequence} after {last}"
            self.report(Problem(position, "sequence_gap", reason))
        self.sequences[stream] = sequence

    def check_chain(self, position: Position, origin: str, origin_seq: int, previous: bytes, digest: bytes) -> None:
        before = self.chains.get(origin, BEGINNING)
        if (wrong := wrong_link(position, origin_seq, previous, before, own=False)) is not None:
            self.report_link(origin, wrong)
        self.chains[origin] = Link(origin_seq, digest)


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
    elif origin_seq == before.origin_seq:
        return Problem(position, "chain_broken", f"it is a second event {origin_seq} of its origin")
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
        # A peer may have erased a payload before the event came here; an erasure by this log is on record.
        if own and not event.erased_by:
            yield "payload_missing", PAYLOAD_GONE
        return
    if commitment(event.salt, place.payload) != event.commitment:
        yield "payload_changed", OTHER_PAYLOAD
        return
    try:
        if canonical(event.payload) != place.payload:
            yield "payload_changed", "the payload is not in its canonical form"
    except NotCanonical as error:
        yield "payload_changed", str(error)
