"""Events that another node sent: each gets an outcome, and the honest ones of a batch are always recorded.

An origin that is a key is recorded in the order of its chain, without a hole, as far as its standing goes. What lies
beyond waits in the quarantine, and is looked at again when its chain or the history that decides on it grows. So what
counts is a function of what has arrived, and not of the order in which it did.

An origin that is no key is recorded as it comes: anybody can write under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from everlog.core.clock import JUMP_MAX, LAMPORT_MAX
from everlog.core.event import Event, Link
from everlog.core.ids import EventId, signed_part, signed_part_of
from everlog.errors import NoKey
from everlog.log.admit.branches import end_on, judged
from everlog.log.admit.erased import Forgotten, bare, is_bare
from everlog.log.admit.history_rights import HistoryRights
from everlog.log.admit.intake import Intake, WholeGroup
from everlog.log.admit.outcomes import (
    CODES,
    Outcome,
    if_known,
    outcome_of,
    recorded,
    refuse_clock,
    without_payload,
)
from everlog.log.admit.plain import PlainEvents
from everlog.log.admit.quarantine import ORIGIN_EVENTS_MAX, Held, Quarantine
from everlog.log.admit.recorded_proof import recorded_leaf
from everlog.log.admit.removals import Removals, place_of
from everlog.log.admit.sent_groups import SentGroups
from everlog.log.admit.stubs import Proven, Stubs, place_stubs
from everlog.log.records import FORGOTTEN
from everlog.stores.contract import Encoded
from everlog.stores.open_write import OpenWrite
from everlog.trust.forks import ForkProof, fork_of, leaf_of
from everlog.trust.keys import is_key
from everlog.trust.standing import Branch, Limit, Open, Rights, Standing, branch_of
from everlog.trust.stubs import Stub
from everlog.trust.succession import SUCCEEDED, put_succession, succession_of, successions_in
from everlog.trust.verdicts import forks_in, put_fork, put_verdicts, refuse_lost_verdicts


class Gate(HistoryRights):
    """Decides on the events of others, for one open log. `recorded` is called in every write that records some."""

    def __init__(
        self, standing: Standing | None = None, *, recorded: Callable[[OpenWrite], None] = lambda write: None
    ) -> None:
        super().__init__(standing or Open())
        self.recorded = recorded
        self._settled = False

    def admit_each(
        self,
        write: OpenWrite,
        intake: Intake,
        forks: Iterable[ForkProof] = (),
        stubs: Iterable[Stub] = (),
        *,
        jump_max: int = JUMP_MAX,
    ) -> dict[int, Outcome]:
        """Record what passed the intake check; return an outcome for each, by its place in the batch."""
        batch = _Batch(write, self, intake.groups, jump_max)
        found = batch.admit(intake.accepted, forks, stubs)
        self._settled = True
        return found

    def settle(self, write: OpenWrite) -> None:
        """Look again at what waits and at what counts, because this log recorded something that decides on it."""
        _Batch(write, self, {}, JUMP_MAX).settle()

    @property
    def settled(self) -> bool:
        """Whether what counts was compared with the standing since the log was opened."""
        return self._settled


class _Candidate(NamedTuple):
    """An event that may be next in its chain: from the batch, or one that waits."""

    hash: bytes
    encoded: Encoded | None
    held: Held | None


class _Batch:
    """One batch inside an open write."""

    def __init__(self, write: OpenWrite, gate: Gate, groups: Mapping[bytes, WholeGroup], jump_max: int) -> None:
        self._write = write
        self._gate = gate
        self._groups = SentGroups(groups)
        self._jump_max = jump_max
        self._quarantine = Quarantine(write)
        refuse_lost_verdicts(write.committed_state)
        self._forks = forks_in(write)
        self._own = write.own_origin()
        self._waiting: dict[str, dict[bytes, Encoded]] = {}  # of the batch, by origin and hash
        self._removals = Removals(write, counts=self._may_remove)
        self._stubs = Stubs(write, (), self._removals)
        self._forgotten = Forgotten(write)
        self._looks_ahead = False  # something may be allowed by a record that is not recorded yet
        self._rights = self._judged()
        self._places: dict[bytes, list[int]] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._decided = False  # something was recorded, or waits, that decides on others
        self._changed = not gate.settled  # what counts may have changed
        self._recorded = False
        self._new_ids: set[str] = set()
        self._again: set[str] = set()  # origins that named a successor: what follows is judged by that
        self._too_far: set[str] = set()  # origins that wait for the clock
        self._plain = PlainEvents(write, self._outcomes, self._append, lambda: self._rights.named, jump_max)

    # ---- the batch

    def admit(
        self, accepted: Mapping[int, Encoded], forks: Iterable[ForkProof], stubs: Iterable[Stub]
    ) -> dict[int, Outcome]:
        known = self._write.known({encoded.event.id for encoded in accepted.values()})
        plain: list[tuple[int, Encoded]] = []
        plain_bare: list[tuple[int, Encoded]] = []
        self._removals = Removals(
            self._write,
            lambda: self._records(accepted.values()),
            counts=self._may_remove,
            cannot_wait=self._cannot_wait,
        )
        for place, encoded in accepted.items():
            event = encoded.event
            outcome = if_known(encoded, known.get(event.id))
            if outcome is not None and not (outcome.code == "id_conflict" and self._forks_here(event)):
                self._outcomes[place] = outcome
                continue
            encoded = self._forgotten.without(encoded)
            if is_key(event.origin):
                self._take(place, encoded)
            else:
                (plain_bare if is_bare(encoded.event) else plain).append((place, encoded))
        for fork in forks:
            self._take_fork(fork)
        stubs = list(stubs)
        self._look_for_forks_of(stubs)
        self._stubs = Stubs(self._write, stubs, self._removals)
        self._look_ahead()
        self._decided = self._decided or bool(self._gate.deciding)  # what waits in the batch may decide
        of_batch = {signed_part_of(origin) for origin in self._waiting}
        later = [one for one in plain if signed_part(one[1].event.id) in of_batch]  # than what has a right to the id
        self._plain.admit([one for one in plain if one not in later] if later else plain)
        # The standing itself may be another one than when the log was open last.
        waiting = () if self._gate.settled and not self._looks_ahead else sorted(self._quarantine.origins())
        self._advance_all(dict.fromkeys((*self._waiting, *filter(is_key, self._stubs.origins()), *waiting)))
        self._hold_the_rest()
        self._plain.admit(later)
        removals = Removals(self._write, counts=self._may_remove)  # only what is recorded by now
        self._plain.admit_bare(plain_bare, removals)
        self._recorded |= self._plain.place(stubs, removals)
        self._end()
        return self._outcomes

    def _take(self, place: int, encoded: Encoded) -> None:
        """Have an event of a key wait for its turn. One without its payload gives way to the same one with it."""
        event, of_origin = encoded.event, self._waiting.setdefault(encoded.event.origin, {})
        if is_bare(event):
            encoded = of_origin.get(encoded.hash) or self._quarantine.whole(event.origin, encoded.hash) or encoded
        found = encoded.event
        if is_bare(found) and not found.erased_by and not self._removals.lists(FORGOTTEN, place_of(encoded)):
            self._outcomes[place] = without_payload(event)
            return
        of_origin[encoded.hash] = encoded
        self._places.setdefault(encoded.hash, []).append(place)

    def _records(self, sent: Collection[Encoded]) -> Iterator[Encoded]:
        """Return the events that came, and those that wait of every origin that the history names."""
        held = (
            self._quarantine.event(origin, one)
            for origin in sorted(self._quarantine.origins())
            if not _is_stranger(self._rights, origin)
            for one in list(self._quarantine.of(origin))
        )
        yield from (one for one in (*sent, *held) if one is not None)

    def _look_ahead(self) -> None:
        """Find out whether records must be looked for that are not recorded yet: something here may need them."""
        self._looks_ahead = (
            bool(self._stubs.origins())
            or any(is_bare(one.event) for events in self._waiting.values() for one in events.values())
            or self._quarantine.some_are_bare()
        )
        self._decided = self._decided or self._looks_ahead

    def _forks_here(self, event: Event) -> bool:
        """Return whether the number of an event is taken: a key that signs two events may give both one id."""
        return is_key(event.origin) and event.origin_seq <= self._write.link(event.origin).origin_seq

    def settle(self) -> None:
        self._removals = Removals(
            self._write, lambda: self._records(()), counts=self._may_remove, cannot_wait=self._cannot_wait
        )
        self._look_ahead()
        self._decided = self._changed = True
        self._advance_all(sorted(self._quarantine.origins()))
        self._end()

    def _end(self) -> None:
        if self._recorded:
            self._write.tick()  # once for the whole batch: a member cannot exhaust the clock with many small events
            self._gate.recorded(self._write)
        self._quarantine.save()
        if self._changed:
            self._judge_recorded()

    def _judge_recorded(self) -> None:
        """Mark the chains of which more was recorded than counts now."""
        put_verdicts(self._write, judged(self._write, self._limit, lambda origin: branch_of(self._rights, origin)))

    # ---- chains of keys

    def _advance_all(self, origins: Iterable[str]) -> None:
        """Record what is next in each chain, until nothing more can be."""
        dirty = set(origins)
        while True:
            clock = self._write.clock
            numbers = {origin: self._look_for_a_fork(origin) for origin in sorted(dirty)}
            if self._decided:
                self._decided, self._changed = False, True
                if concerned := self._with_new_rights():
                    dirty |= concerned
                    continue  # what is here of them may have forked
            for origin in sorted(dirty):
                self._advance(origin, numbers.pop(origin, None))
            dirty, self._again = self._again, set()
            if self._write.clock > clock:
                dirty |= self._too_far
            if not (dirty or self._decided):
                return

    def _with_new_rights(self) -> set[str]:
        """Read the history again; return the origins of which something waits and the limit is another one."""
        before, self._rights = self._rights, self._judged()
        concerned = {*self._waiting, *self._quarantine.origins()}
        return {
            origin
            for origin in concerned
            if before.limit(origin) != self._rights.limit(origin)
            or branch_of(before, origin) != branch_of(self._rights, origin)
        }

    def _judged(self) -> Rights:
        """Return what the history says, if the records of removals count that the chains reach."""
        if not self._looks_ahead:
            return self._history()
        self._removals.assume_all()
        while True:
            self._rights = self._history()
            if self._removals.keep(self._reached()):
                return self._rights

    def _history(self) -> Rights:
        """Return what the history says, with the events that wait of every origin that it names."""
        if not self._gate.deciding:
            return self._gate.rights(self._write, self._forks)
        found: dict[str, list[Event]] = {}
        concerned = {*self._waiting, *self._quarantine.origins()}
        while True:
            rights = self._gate.rights(self._write, self._forks, [one for some in found.values() for one in some])
            new = {
                origin: self._deciding_events(origin)
                for origin in sorted(concerned - found.keys())
                if not (rights.begun and _is_stranger(rights, origin))
            }
            if not rights.begun:
                new = {origin: some for origin, some in new.items() if self._gate.begin(some)}
            if not new:
                return rights
            found |= new

    def _deciding_events(self, origin: str) -> list[Event]:
        """Return the events that decide, and continue the chain that is recorded without a hole or a fork."""
        fork = self._forks.get(origin)
        way = self._way(origin, self._write.link(origin), None if fork is None else fork.origin_seq - 1)
        steps = (step.event for step in way if isinstance(step, Encoded))
        return [event for event in steps if event.type in self._gate.deciding]

    def _reached(self) -> set[bytes]:
        """Return the hashes of the events that can be recorded now, if the records that are assumed allow it."""
        found: set[bytes] = set()
        concerned = {*self._waiting, *self._quarantine.origins(), *filter(is_key, self._stubs.origins())} - {
            self._own
        }
        ends = {origin: self._write.link(origin) for origin in sorted(concerned)}
        clock, moved, ended = self._write.clock, True, set[str]()
        while moved:
            moved = False
            for origin, end in ends.items():
                limit = Limit(0, "") if origin in ended else self._limit(origin)
                for step in self._way(origin, end, None if limit is None else limit.upto):
                    one = step.event if isinstance(step, Encoded) else step.stub
                    if one.lamport > clock + self._jump_max:
                        break
                    clock, moved = max(clock, one.lamport), True
                    hash = step.hash if isinstance(step, Encoded) else step.stub.hash
                    ends[origin] = Link(one.origin_seq, hash)
                    found.add(hash)
                    if isinstance(step, Encoded) and step.event.type == SUCCEEDED:
                        ended.add(origin)
                        break
        return found

    def _way(self, origin: str, end: Link, upto: int | None) -> Iterator[Encoded | Proven]:
        """Return what follows the end of a chain: events, and stubs that a record allows."""
        by_number = self._by_number(origin)
        while upto is None or end.origin_seq < upto:
            step = self._next(origin, by_number.get(end.origin_seq + 1, ()), end)
            if step is not None:
                yield step
                end = Link(step.event.origin_seq, step.hash)
                continue
            stub = self._stubs.after(origin, end, lamport_max=LAMPORT_MAX)
            if stub is None:
                return
            yield stub
            end = Link(stub.stub.origin_seq, stub.stub.hash)

    def _advance(self, origin: str, by_number: dict[int, list[_Candidate]] | None) -> None:
        self._too_far.discard(origin)
        if origin == self._own and not self._left_own_chain(origin):
            return  # only this log adds to its chain
        end, limit, branch = self._write.link(origin), self._limit(origin), branch_of(self._rights, origin)
        if branch is not None and limit is not None and branch.first <= limit.upto:
            end = end_on(self._write, origin, branch)  # another branch may be recorded
        if by_number is None or branch is not None:
            by_number = self._by_number(origin, branch)
        clock, run, ids = self._write.clock, list[Encoded](), self._new_ids
        while limit is None or end.origin_seq < limit.upto:
            found = self._next(origin, by_number.get(end.origin_seq + 1, ()), end)
            if found is not None and branch is not None and self._write.known((found.event.id,)):
                break  # an event of another branch has its id: it cannot be recorded here
            if found is None or found.event.id in ids:  # a key may give one id to two numbers: nothing follows then
                if run:
                    self._record(origin, run)
                    run = []
                before, end = end, self._place_stubs(origin, end, limit, branch)
                if end == before:
                    break
                clock = self._write.clock
                continue
            if found.event.lamport > clock + self._jump_max:
                self._too_far.add(origin)
                break
            clock = max(clock, found.event.lamport)
            run.append(found)
            ids.add(found.event.id)
            end = Link(found.event.origin_seq, found.hash)
            if found.event.type == SUCCEEDED:
                self._again.add(origin)
                break
        if run:
            self._record(origin, run)

    def _place_stubs(self, origin: str, end: Link, limit: Limit | None, branch: Branch | None) -> Link:
        """Record the stubs of one purge that follow the end of a chain, and return the new end."""
        found: list[Stub] = []
        record: Event | None = None
        while limit is None or end.origin_seq < limit.upto:
            one = self._stubs.after(origin, end, lamport_max=self._write.clock + self._jump_max)
            if one is None or (record is not None and one.record is not record):
                break
            if branch is not None and not branch.has(one.stub.origin_seq, one.stub.hash):
                break
            found.append(one.stub)
            record = one.record
            end = Link(one.stub.origin_seq, one.stub.hash)
        if record is not None:
            place_stubs(self._write, found, record)
            self._recorded = True
            for stub in found:
                self._quarantine.remove(origin, stub.hash)
        return end

    def _may_remove(self, record: Event) -> bool:
        """Return whether a record that events were purged or erased counts."""
        limit = self._limit(record.origin)
        return (limit is None or record.origin_seq <= limit.upto) and self._rights.may_remove(record)

    def _cannot_wait(self, record: Event) -> bool:
        """Return whether a record is so far ahead in its chain that the events before it have no room to wait."""
        origin, ahead = record.origin, record.origin_seq - self._write.link(record.origin).origin_seq
        size = sum(len(one.payload) for one in self._waiting.get(origin, {}).values())
        return ahead > ORIGIN_EVENTS_MAX or self._quarantine.is_crowded(origin, size)

    def _left_own_chain(self, origin: str) -> bool:
        """Continue under a new origin if this log's key has signed events elsewhere that are not here.

        Then this log was restored from an older copy, or copied together with its key, and would fork its chain.
        """
        end = self._write.link(origin).origin_seq
        if origin not in self._forks and all(number <= end for number, _ in self._candidates(origin)):
            return False
        with suppress(NoKey):  # without its key it only reads, and what came waits
            self._own = self._write.take_new_origin()
        return self._own != origin

    def _by_number(self, origin: str, branch: Branch | None = None) -> dict[int, list[_Candidate]]:
        """Return what may be next in a chain, by number; with a branch, only what is on it."""
        found: dict[int, list[_Candidate]] = {}
        for number, candidate in self._candidates(origin):
            if branch is None or branch.has(number, candidate.hash):
                found.setdefault(number, []).append(candidate)
        return found

    def _candidates(self, origin: str) -> Iterator[tuple[int, _Candidate]]:
        batch = self._waiting.get(origin, {})
        for hash, encoded in batch.items():
            yield encoded.event.origin_seq, _Candidate(hash, encoded, None)
        for held in self._quarantine.of(origin):
            if held.hash not in batch:
                yield held.origin_seq, _Candidate(held.hash, None, held)

    def _next(self, origin: str, candidates: Iterable[_Candidate], end: Link) -> Encoded | None:
        for candidate in candidates:
            encoded = self._encoded(origin, candidate)
            if encoded is None or encoded.event.previous != end.hash:
                continue
            if candidate.held is not None and self._write.known((encoded.event.id,)):
                continue
            if is_bare(encoded.event) and not encoded.event.erased_by:  # unless it was forgotten here
                record = self._removals.allows(FORGOTTEN, place_of(encoded))
                if record is None:
                    continue
                encoded = bare(encoded, record.id)
            return encoded
        return None

    def _encoded(self, origin: str, candidate: _Candidate) -> Encoded | None:
        if candidate.held is None:
            return candidate.encoded
        return self._quarantine.event(origin, candidate.held)

    def _record(self, origin: str, run: list[Encoded]) -> None:
        """Record events that follow each other. A signed group that is there whole is stored as one."""
        run = [self._forgotten.without(encoded) for encoded in run]  # it may have waited since before
        waiting = self._waiting.get(origin, {})
        is_second = self._write.chain(origin).has(run[0].event.origin_seq)  # another branch has this number
        kept = self._groups.in_groups(self._write, origin, run, whole=not is_second)
        self._append(kept)
        self._removals.now_recorded(encoded.hash for encoded in run)
        for encoded in run:
            waiting.pop(encoded.hash, None)
            self._quarantine.remove(origin, encoded.hash)
            for where in self._places.get(encoded.hash, ()):
                self._outcomes[where] = recorded(encoded.event)

    def _append(self, events: list[Encoded]) -> None:
        self._write.append(events, fresh=True)
        self._recorded = True
        deciding = self._gate.deciding
        for encoded in events:
            if encoded.event.type == SUCCEEDED:
                self._end_chain(encoded.event)
            elif encoded.event.type in deciding:
                self._decided = True

    def _end_chain(self, event: Event) -> None:
        stated = succession_of(self._write.identity.log_id, event)
        if stated is not None and stated.origin not in successions_in(self._write):
            put_succession(self._write, stated)
            self._decided = True

    def _hold_the_rest(self) -> None:
        for origin, events in self._waiting.items():
            end, limit = self._write.link(origin), self._limit(origin)
            for hash, encoded in events.items():
                outcome = refuse_clock(encoded.event, self._write.clock, self._jump_max)
                if outcome is None:
                    outcome = self._hold(encoded, self._why(origin, encoded, end, limit))
                for place in self._places[hash]:
                    self._outcomes[place] = outcome

    def _hold(self, encoded: Encoded, code: str) -> Outcome:
        event = encoded.event
        if self._quarantine.add(self._groups.with_proof(encoded), code, stranger=code == "unknown_author"):
            return outcome_of(event, "held", code, CODES[code])
        return outcome_of(event, "refused", code, f"{CODES[code]}, and there is no room to keep it until then")

    def _why(self, origin: str, encoded: Encoded, end: Link, limit: Limit | None) -> str:
        """Return the code that explains why an event waits."""
        number = encoded.event.origin_seq
        if limit is not None and number > limit.upto:
            return limit.code
        follows = number == end.origin_seq + 1 and encoded.event.previous != end.hash
        return "fork" if number <= end.origin_seq or follows or origin == self._own else "out_of_order"

    def _limit(self, origin: str) -> Limit | None:
        limit, fork, branch = self._rights.limit(origin), self._forks.get(origin), branch_of(self._rights, origin)
        if branch is not None and (fork is None or branch.first <= fork.origin_seq):
            upto = branch.last
        elif fork is not None:
            upto = fork.origin_seq - 1
        else:
            return limit
        return Limit(upto, "fork") if limit is None or upto < limit.upto else limit

    # ---- forks

    def _look_for_a_fork(self, origin: str) -> dict[int, list[_Candidate]] | None:
        """Keep the proof of the lowest fork, if the batch has a second event with a number that one has already.

        Return what may be next in the chain, if that was looked at.
        """
        end = self._write.link(origin).origin_seq
        if _is_stranger(self._rights, origin) and not end:
            return None  # the forks of strangers concern nobody
        numbers = self._by_number(origin)
        before = self._forks.get(origin)
        twice = [number for number, found in numbers.items() if number <= end or len(found) > 1]
        number = min(twice, default=0)
        if not number or (before is not None and before.origin_seq <= number):
            return numbers
        leaves = [
            leaf_of(self._groups.with_proof(encoded).event, encoded.hash)
            for encoded in (self._encoded(origin, candidate) for candidate in numbers[number][:2])
            if encoded is not None
        ]
        if number <= end and (recorded := recorded_leaf(self._write, origin, number)) is not None:
            leaves.append(recorded)
        if len(leaves) > 1:
            self._take_fork(fork_of(origin, number, leaves[0], leaves[-1]))
        return numbers

    def _look_for_forks_of(self, stubs: Iterable[Stub]) -> None:
        """Keep the proof of a fork of which one branch was purged, or both."""
        stubs = [stub for stub in stubs if is_key(stub.origin)]
        known = self._write.known({EventId(stub.id) for stub in stubs})
        for stub in sorted(stubs, key=lambda stub: stub.origin_seq):
            same = known.get(EventId(stub.id))
            if (same is not None and same.hash == stub.hash) or not self._has(stub.origin, stub.origin_seq):
                continue
            before = self._forks.get(stub.origin)
            if (before is None or stub.origin_seq < before.origin_seq) and stub.holds(self._write.identity.log_id):
                recorded = recorded_leaf(self._write, stub.origin, stub.origin_seq)
                if recorded is not None and recorded.hash != stub.hash:
                    self._take_fork(fork_of(stub.origin, stub.origin_seq, stub.leaf, recorded))

    def _has(self, origin: str, number: int) -> bool:
        return 1 <= number <= self._write.link(origin).origin_seq

    def _take_fork(self, fork: ForkProof) -> None:
        """Keep a proof that is new and valid, of an origin that is known here, no matter who delivered it."""
        before = self._forks.get(fork.origin)
        if before is not None and before.origin_seq <= fork.origin_seq:
            return
        if _is_stranger(self._rights, fork.origin) and not self._write.link(fork.origin).origin_seq:
            return
        if fork.holds(self._write.identity.log_id):
            put_fork(self._write, fork)
            self._forks[fork.origin] = fork
            self._decided = True
            if fork.origin == self._own:
                self._left_own_chain(fork.origin)


def _is_stranger(rights: Rights, origin: str) -> bool:
    """Return whether nothing in the history names an origin."""
    limit = rights.limit(origin)
    return limit is not None and limit.code == "unknown_author"
