"""Bugs planted in admission and standing, each of which a check must notice. Without them, the checks pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.conftest import CATALOG
from tests.log.admit import test_removals
from tests.programs.community import test_standing
from tests.programs.community.test_standing import World, counting, member_names
from tests.programs.community.test_standing import node as community_node
from tests.trust import test_adversaries
from tests.trust.signing import LOG_ID, Author

from everlog.core.chain import Chain
from everlog.core.event import Event, Link, Purge
from everlog.core.ids import signed_part_of
from everlog.log.admit import admission, intake, plain, removals
from everlog.log.admit.quarantine import Quarantine, held_rows
from everlog.log.log import Log
from everlog.log.write import purge as purging
from everlog.programs.community import standing
from everlog.stores.contract import Encoded, Identity
from everlog.stores.memory import MemoryStore
from everlog.stores.open_write import OpenWrite
from everlog.testing.builders import Chain as PlainChain
from everlog.testing.builders import event
from everlog.trust.forks import ForkProof
from everlog.trust.group_signature import proof_of
from everlog.trust.standing import Limit, Pinned

IDENTITY = Identity(log_id=LOG_ID, origin="01TESTNODE0000000000000001", epoch="epoch1", created_us=1)


def a_log() -> Log:
    return Log(MemoryStore(identity=IDENTITY), CATALOG)


# ---- checks


def attacks(*names: str) -> Callable[[], None]:
    def check() -> None:
        for name in names:
            test_adversaries.test_an_attack_changes_nothing(test_adversaries.Scene(a_log()), name)

    return check


def a_revoked_member_counts_up_to_the_point_that_is_named() -> None:
    world = World()
    bob = world.member("bob", 2)
    kept = world.chat(bob, "kept")
    world.chat(bob, "late")
    world.revoke(world.ada, bob, {bob.origin: kept.origin_seq})
    found = []
    for order in (world.events, [*world.events[:1], *world.events[-1:], *world.events[1:-1]]):
        log = community_node(world)
        log.admit_each(order)
        assert kept.commitment in counting(log)
        assert len(counting(log)) == len(world.events) - 1
        found.append(counting(log))
    assert found[0] == found[1]


def the_end_of_a_chain_is_before_its_first_hole() -> None:
    log, chain = a_log(), PlainChain()
    first = chain.next(stream="note/1").event
    log.admit_each([first, event(origin=chain.origin, origin_seq=10**9, lamport=2)])
    assert log.writer.write(lambda write: write.link(chain.origin).origin_seq) == 1


def the_fork_of_a_purged_event_is_proven() -> None:
    log, author = a_log(), Author(1)
    twin = author.twin()
    log.admit_each(author.write(2, stream="note/1"))
    log.purge("note/1", reason="asked to")
    log.admit_each(twin.write(2, stream="note/2", payload={"text": "other"}))
    (fork,) = log.forks()
    assert fork.holds(LOG_ID)
    assert fork.origin_seq == 1


def evidence_against_a_revoked_member_counts() -> None:
    """The finder of a fork, or the one who forked, may have been revoked since."""
    world = World()
    bob = world.member("bob", 2)
    twin = bob.author.twin()
    world.chat(bob, "one")
    world.chat(bob, "two")
    world.revoke(world.ada, bob)
    finder, log = community_node(world), community_node(world)
    finder.admit_each(world.events[:-1])
    finder.admit_each(twin.write(1, payload={"text": "other"}))
    (fork,) = finder.forks()
    log.admit_each(world.events)
    log.admit_each([], forks=[fork])
    assert log.verdicts().limits[bob.origin] == Limit(1, "fork")
    assert member_names(log, world)["user:bob"] == "revoked"


def nodes_agree_whatever_came_first() -> None:
    for seed in (301, 302, 303):
        chance = random.Random(seed)
        world = test_standing.history(chance)
        logs = [community_node(world) for _ in range(3)]
        for log in logs:
            test_standing.deliver(log, world.events, chance)
        test_standing.agree(logs)


# ---- bugs


def accept_without_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intake, "_proves_itself", lambda log_id, encoded: True)


def current_membership_instead_of_history(patch: pytest.MonkeyPatch) -> None:
    real = standing._MemberRights.limit

    def limit(self: Any, origin: str) -> Limit | None:
        found = real(self, origin)
        return None if found is None else Limit(0, "revoked_author")

    patch.setattr(standing._MemberRights, "limit", limit)


def greatest_number_instead_of_contiguous_end(patch: pytest.MonkeyPatch) -> None:
    def end(self: Chain) -> Link:
        return self.greatest

    patch.setattr(Chain, "end", property(end))


def path_ignored(patch: pytest.MonkeyPatch) -> None:
    def proves(log_id: str, encoded: Encoded) -> bool:
        signature, first, count = proof_of(encoded.event)
        return len(signature) == 64 and first <= encoded.event.origin_seq < first + count

    patch.setattr(intake, "_proves_itself", proves)


def purge_that_drops_signatures(patch: pytest.MonkeyPatch) -> None:
    real = OpenWrite.purge

    def purge(self: OpenWrite, stream: str, **given: Any) -> Purge:
        done = real(self, stream, **given)
        record, gone = self.staged_purges.pop()
        bare = [replace(one, signature=b"", signed_with=(0, 0)) for one in gone]
        self.staged_purges.append((record, bare))
        return done

    patch.setattr(OpenWrite, "purge", purge)
    patch.setattr(purging, "keep_proofs", lambda write, stubs: None)


def fork_evidence_that_needs_standing(patch: pytest.MonkeyPatch) -> None:
    real = admission._Batch._take_fork

    def take(self: Any, fork: ForkProof) -> None:
        if self._rights.limit(fork.origin) is None:
            real(self, fork)

    patch.setattr(admission._Batch, "_take_fork", take)


def payload_that_nobody_checks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission, "is_bare", lambda event: False)


def log_id_that_is_not_signed(patch: pytest.MonkeyPatch) -> None:
    real = intake._is_signed

    def signed(log_id: str, group: Any, hashes: Any) -> bool:
        return any(real(one, group, hashes) for one in (log_id, "01K9ZZZZZZZZZZZZZZZZZZZZZ0"))

    patch.setattr(intake, "_is_signed", signed)


def ids_that_anybody_may_take(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(intake, "id_matches", lambda event_id, origin, number: True)


def order_of_arrival_that_decides(patch: pytest.MonkeyPatch) -> None:
    """Only recorded events are the history, so what a revoked member sent before counts where it came first."""
    real = admission._Batch._deciding_events

    def only_the_first(self: Any, origin: str) -> list[Event]:
        return [one for one in real(self, origin) if self._gate.begin([one])]

    patch.setattr(admission._Batch, "_deciding_events", only_the_first)


def records_that_only_wait_allow_removals(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(removals.Removals, "keep", lambda self, reached: True)


def a_bare_copy_that_hides_the_whole_event(patch: pytest.MonkeyPatch) -> None:
    real = Quarantine.add

    def add(self: Quarantine, encoded: Encoded, code: str, *, stranger: bool) -> bool:
        held = any(row.hash == encoded.hash for row in self.of(encoded.event.origin))
        return held or real(self, encoded, code, stranger=stranger)

    patch.setattr(Quarantine, "add", add)


def strangers_that_decide_on_ids(patch: pytest.MonkeyPatch) -> None:
    real = plain.PlainEvents._parts_of_keys

    def parts(self: Any) -> set[int]:
        return real(self) | {signed_part_of(origin) for origin, _ in held_rows(self._write)}

    patch.setattr(plain.PlainEvents, "_parts_of_keys", parts)


def a_record_that_waits_takes_no_payload() -> None:
    test_removals.test_a_record_beyond_a_hole_takes_no_payload_of_others(a_log())


def the_whole_event_wins_while_both_wait() -> None:
    log, ada, eve = a_log(), Author(1), Author(2)
    sent = ada.write(3)
    eve.write(1)
    log.admit_each([test_removals.record(eve, sent[1:2]), test_removals.bare(sent[1])])
    log.admit_each(sent[1:2])
    log.admit_each(sent[:1])
    assert [recorded.event.payload for recorded in log.stored.read()] == [one.payload for one in sent[:2]]


def nodes_decide_the_same_on_the_id_of_a_stranger() -> None:
    found = []
    for met in (True, False):
        log, stranger = a_log(), Author(9)
        log.writer._made_gate = admission.Gate(Pinned([Author(1).origin]))
        sent = stranger.write(1)
        if met:
            log.admit_each(sent)
        found.append(log.admit_each([event(id=sent[0].id)])[0].kind)
    assert found[0] == found[1]


PLANTED: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[], None]]] = [
    (accept_without_signature, attacks("a_signature_that_was_removed", "a_changed_author")),
    (current_membership_instead_of_history, a_revoked_member_counts_up_to_the_point_that_is_named),
    (greatest_number_instead_of_contiguous_end, the_end_of_a_chain_is_before_its_first_hole),
    (path_ignored, attacks("a_path_of_another_event", "a_path_that_was_removed")),
    (purge_that_drops_signatures, the_fork_of_a_purged_event_is_proven),
    (fork_evidence_that_needs_standing, evidence_against_a_revoked_member_counts),
    (payload_that_nobody_checks, attacks("a_removed_payload", "a_forged_erasure")),
    (log_id_that_is_not_signed, attacks("an_event_that_was_signed_for_another_log")),
    (
        ids_that_anybody_may_take,
        attacks("the_id_of_another_author_afterwards", "the_id_of_another_author_beforehand"),
    ),
    (order_of_arrival_that_decides, nodes_agree_whatever_came_first),
    (records_that_only_wait_allow_removals, a_record_that_waits_takes_no_payload),
    (a_bare_copy_that_hides_the_whole_event, the_whole_event_wins_while_both_wait),
    (strangers_that_decide_on_ids, nodes_decide_the_same_on_the_id_of_a_stranger),
]

ASKED_FOR = (
    accept_without_signature,
    current_membership_instead_of_history,
    greatest_number_instead_of_contiguous_end,
    path_ignored,
    purge_that_drops_signatures,
    fork_evidence_that_needs_standing,
)


def test_the_six_bugs_that_must_be_noticed_are_planted() -> None:
    assert {plant for plant, _ in PLANTED} >= set(ASKED_FOR)


@pytest.mark.parametrize(("plant", "check"), PLANTED, ids=lambda one: one.__name__)
def test_a_planted_bug_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    plant(monkeypatch)
    with pytest.raises((AssertionError, LookupError, ValueError)):
        check()
