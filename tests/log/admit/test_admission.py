"""What another node sent: one outcome per event, and the honest ones are always recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.nodes import new_log_id, open_node
from tests.trust.signing import Author, unproven

from everlog.core import group
from everlog.core.clock import JUMP_MAX
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Event
from everlog.log.admit.admission import Gate
from everlog.log.admit.outcomes import CODES, Outcome
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.memory import MemoryStore
from everlog.testing.builders import Chain, event
from everlog.testing.signing import key
from everlog.trust.standing import Pinned

KINDS = ["memory", "sqlite", "jsonl", "segments"]


def kinds(outcomes: list[Outcome]) -> list[str]:
    assert all(one.code in CODES for one in outcomes if one.kind in ("held", "refused"))
    return [one.code if one.kind == "refused" else f"{one.kind} {one.code}".strip() for one in outcomes]


def stored(log: Log) -> list[Event]:
    return [recorded.event for recorded in log.stored.read()]


@pytest.fixture(params=KINDS)
def node(request: pytest.FixtureRequest, make_log: Callable[..., Log], tmp_path: Path) -> Log:
    return make_log(request.param, tmp_path / "node")


def author_of(log: Log, seed: int = 1) -> Author:
    return Author(seed, log.identity.log_id)


def test_a_whole_group_is_stored_with_one_signature(node: Log) -> None:
    author = author_of(node)
    sent = author.write(8)
    assert kinds(node.admit_each(unproven(sent), author.groups)) == ["recorded"] * 8
    assert stored(node) == sent
    assert {slot.signed_with for slot in node.stored.slots()} == {(1, 8)}
    assert kinds(node.admit_each(sent)) == ["known"] * 8
    assert node.verify().ok


def test_a_whole_group_is_found_by_the_proofs_of_its_events(node: Log) -> None:
    author = author_of(node)
    sent = [*author.write(3), *author.write(2)]
    assert kinds(node.admit_each(sent)) == ["recorded"] * 5
    assert [slot.signed_with for slot in node.stored.slots()] == [(1, 3)] * 3 + [(4, 2)] * 2
    assert stored(node) == sent


def test_an_event_without_its_group_is_stored_with_its_proof(node: Log) -> None:
    author = author_of(node)
    sent = author.write(5)
    assert kinds(node.admit_each(sent[:2])) == ["recorded"] * 2
    assert [slot.signed_with for slot in node.stored.slots()] == [(0, 0)] * 2
    assert stored(node) == sent[:2]
    assert kinds(node.admit_each(sent[2:])) == ["recorded"] * 3
    assert stored(node) == sent
    assert node.verify().ok


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"signature": b""}, "invalid_signature"),
        ({"path": ()}, "invalid_signature"),
        ({"payload": {"text": "forged"}}, "invalid_signature"),
        ({"actor": "user:eve"}, "invalid_signature"),
        ({"lamport": 0}, "schema_unknown"),
        ({"lamport": 2**60}, "schema_unknown"),
        ({"lamport": -1}, "schema_unknown"),
        ({"id": "01K00000000000000000000000"}, "id_conflict"),
        ({"id": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"}, "clock_too_far"),
        ({"id": "x"}, "schema_unknown"),
        ({"stream": "nostream"}, "schema_unknown"),
        ({"origin": "z6MkhaXgBZD"}, "id_conflict"),
        ({"origin": "01TESTORGN0000000000000000"}, "invalid_signature"),
    ],
    ids=str,
)
def test_one_bad_event_is_refused_alone(node: Log, change: dict[str, Any], code: str) -> None:
    author = author_of(node)
    sent = author.write(5)
    bad = replace(sent[3], **change)
    assert kinds(node.admit_each([bad, *sent[:3]], sender="peer:mallory")) == [code, *["recorded"] * 3]
    (refusal,) = node.refusals()
    assert (refusal.code, refusal.actor, refusal.operation) == (code, "peer:mallory", "admit")
    assert stored(node) == sent[:3]
    assert node.verify().ok


def test_an_event_of_another_log_is_worth_nothing_here(node: Log) -> None:
    elsewhere = Author(1, "01K9ZZZZZZZZZZZZZZZZZZZZZ0")
    sent = elsewhere.write(2)
    assert kinds(node.admit_each(sent)) == ["invalid_signature"] * 2
    assert kinds(node.admit_each(sent, sent_for=elsewhere.log_id)) == ["replayed_elsewhere"] * 2
    assert node.head() == 0


def test_a_forged_event_in_the_middle_does_not_spoil_a_group(node: Log) -> None:
    """It has a number of the group, and no signature of its own."""
    author = author_of(node)
    sent = author.write(4)
    forged = replace(sent[2], actor="user:eve")
    outcomes = node.admit_each([*unproven(sent[:2]), *unproven([forged]), *unproven(sent[2:])], author.groups)
    assert kinds(outcomes) == ["recorded", "recorded", "invalid_signature", "recorded", "recorded"]


def test_refusals_are_counted_per_sender(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    bad = [replace(event(), stream="nostream") for _ in range(150)]
    log.admit_each(bad, sender="peer:one")
    log.admit_each(bad[:20], sender="peer:other")
    found = log.refusals(limit=None)
    assert len([one for one in found if one.actor == "peer:one"]) == 100
    assert len([one for one in found if one.actor == "peer:other"]) == 20
    (left,) = log.writer.refusals.left_out()
    assert (left.actor, left.left_out) == ("peer:one", 50)


def test_unsigned_origins_are_admitted_as_they_come(node: Log) -> None:
    chain = Chain()
    sent = [chain.next(stream="note/1").event for _ in range(4)]
    assert kinds(node.admit_each([sent[3], sent[0], sent[0]])) == ["recorded", "recorded", "known"]
    assert kinds(node.admit_each(sent)) == ["known", "recorded", "recorded", "known"]
    assert node.verify().ok


def test_nobody_writes_in_the_name_of_this_log(node: Log) -> None:
    node.append("thing.said", stream="thing/1")
    own = node.identity.origin
    other = event(origin=own, origin_seq=1)
    beyond = event(origin=own, origin_seq=2, lamport=2)
    assert kinds(node.admit_each([other, beyond, event()])) == ["fork", "fork", "recorded"]


def test_a_purged_event_is_refused_and_the_others_are_recorded(node: Log) -> None:
    author = author_of(node)
    sent = author.write(3, stream="note/1")
    node.admit_each(sent)
    node.purge("note/1", reason="test")
    more = author.write(2, stream="note/2")
    assert kinds(node.admit_each([*sent, *more])) == ["purged"] * 3 + ["recorded"] * 2
    assert node.verify().ok


def test_a_conflicting_id_is_refused_and_the_others_are_recorded(node: Log) -> None:
    first = event(id="01K00000000000000000000000")
    node.admit_each([first])
    other = replace(first, actor="user:eve")
    assert kinds(node.admit_each([other, event(), first])) == ["id_conflict", "recorded", "known"]


# ---- the clock


def test_an_event_too_far_ahead_is_not_stored_and_can_be_sent_again(node: Log) -> None:
    author, other = author_of(node, 1), author_of(node, 2)
    far = author.write(1, lamport=JUMP_MAX + 100)
    near = other.write(1, lamport=5)
    assert kinds(node.admit_each([*far, *near])) == ["clock_too_far", "recorded"]
    assert node.head() == 1
    assert kinds(node.admit_each(other.write(1, lamport=JUMP_MAX))) == ["recorded"]
    assert kinds(node.admit_each(far)) == ["recorded"]


def test_a_batch_ticks_the_clock_once(node: Log) -> None:
    sent = author_of(node).write(100)
    node.admit_each(sent)
    assert node.append("thing.said", stream="thing/1").event.lamport == 103  # after `origin.knows`


def test_the_order_within_a_batch_does_not_matter_to_the_clock(node: Log) -> None:
    one, other = author_of(node, 1), author_of(node, 2)
    far = [*one.write(1, lamport=2 * JUMP_MAX), *one.write(1)]
    near = other.write(1, lamport=JUMP_MAX)
    assert kinds(node.admit_each([*far, *near])) == ["recorded"] * 3


# ---- holes and forks


def reopened(log: Log, make_log: Callable[..., Log], kind: str, path: Path) -> Log:
    log.close()
    return make_log(kind, path)


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments"])
def test_an_event_beyond_a_hole_waits_until_the_hole_is_filled(
    make_log: Callable[..., Log], tmp_path: Path, kind: str
) -> None:
    """Also over a restart, and it is not among the events before that."""
    log = make_log(kind, tmp_path / "node")
    author = author_of(log)
    sent = [*author.write(1), *author.write(2), *author.write(1)]
    assert kinds(log.admit_each(sent[2:])) == ["held out_of_order"] * 2
    assert kinds(log.admit_each(sent[2:])) == ["held out_of_order"] * 2
    assert stored(log) == []
    log = reopened(log, make_log, kind, tmp_path / "node")
    assert kinds(log.admit_each(sent[:1])) == ["recorded"]
    assert stored(log) == sent[:1]
    assert kinds(log.admit_each(sent[1:2])) == ["recorded"]
    assert stored(log) == sent
    assert kinds(log.admit_each(sent)) == ["known"] * 4
    assert log.verify().ok


def test_a_stray_event_far_ahead_moves_nothing(node: Log) -> None:
    """A revocation names the contiguous end of a chain, which is what the writer knows as its link."""
    author = author_of(node)
    sent = author.write(2)
    author.number = 999_999_999
    far = author.write(1)
    assert kinds(node.admit_each([*far, *sent])) == ["held out_of_order", "recorded", "recorded"]
    assert node.writer.write(lambda write: write.link(author.origin).origin_seq) == 2
    chain = Chain()
    plain = [chain.next(stream="note/1").event, event(origin=chain.origin, origin_seq=10**9, lamport=2)]
    assert kinds(node.admit_each(plain)) == ["recorded", "recorded"]
    assert node.writer.write(lambda write: write.link(chain.origin).origin_seq) == 1


def test_of_two_events_with_one_number_neither_counts(node: Log) -> None:
    author = author_of(node)
    shared = author.write(2)
    twin = author.twin()
    one, other = author.write(3), twin.write(2, payload={"text": "other"}, stream="note/other")
    assert kinds(node.admit_each([*shared, *one])) == ["recorded"] * 5
    assert kinds(node.admit_each(other)) == ["held fork"] * 2
    (fork,) = node.forks()
    assert (fork.origin, fork.origin_seq) == (author.origin, 3)
    assert fork.holds(node.identity.log_id)
    assert node.verdicts().limits[author.origin].upto == 2
    assert kinds(node.admit_each(author.write(1))) == ["held fork"]
    assert [node.verdicts().counts(one) for one in stored(node)] == [True, True, False, False, False]
    assert node.verify().ok


def test_a_proof_of_a_fork_is_checked_and_needs_neither_its_events_nor_its_finder(
    make_log: Callable[..., Log], tmp_path: Path
) -> None:
    finder = make_log("memory")
    node = Log(MemoryStore(identity=finder.identity), finder.catalog)
    author = author_of(finder)
    shared = author.write(2)
    twin = author.twin()
    finder.admit_each([*shared, *author.write(1)])
    finder.admit_each(twin.write(1, payload={"text": "other"}))
    (fork,) = finder.forks()
    for forged in (
        replace(fork, one=replace(fork.one, hash=b"\0" * 32)),
        replace(fork, origin_seq=2),
        replace(fork, origin=Author(9).origin),
        replace(fork, other=fork.one),
        replace(fork, one=replace(fork.one, path=(b"x" * 32,))),
    ):
        node.admit_each([], forks=[forged])
        assert node.forks() == []
    node.admit_each(shared)
    node.admit_each([], forks=[fork])
    assert node.forks() == [fork]
    assert kinds(node.admit_each(twin.write(1))) == ["held fork"]


def test_a_key_that_gives_one_id_to_two_numbers_stops_its_chain(node: Log) -> None:
    author = author_of(node)
    first = author.write(2)
    second = author.write(1, id=first[0].id)
    assert kinds(node.admit_each([*first, *second]))[:2] == ["recorded"] * 2
    assert stored(node) == first
    assert kinds(node.admit_each(second)) == ["id_conflict"]
    assert kinds(node.admit_each(author.write(1))) == ["held out_of_order"]
    assert node.verify().ok


def test_a_forked_proof_comes_before_the_events(node: Log) -> None:
    author = author_of(node)
    shared = author.write(1)
    twin = author.twin()
    one, other = author.write(1), twin.write(1, payload={"text": "other"})
    outcomes = node.admit_each([*other, *one, *shared])
    assert kinds(outcomes) == ["held fork", "held fork", "recorded"]
    assert len(node.forks()) == 1
    assert stored(node) == shared


def test_an_event_that_does_not_follow_is_held(node: Log) -> None:
    author = author_of(node)
    sent = author.write(1)
    author.previous = b"x" * 32
    assert kinds(node.admit_each([*sent, *author.write(1)])) == ["recorded", "held fork"]
    assert node.verify().ok


def test_a_broken_link_of_an_unsigned_origin_is_a_fault_of_that_origin(node: Log) -> None:
    first = event(origin_seq=1)
    broken = event(origin_seq=2, lamport=2, previous=b"x" * 32)
    second = event(origin_seq=2, lamport=3, previous=b"y" * 32)
    assert kinds(node.admit_each([first, broken, second])) == ["recorded"] * 3
    report = node.verify()
    assert report.ok
    assert [(fault.position, fault.code) for fault in report.faults] == [(2, "chain_fault"), (3, "chain_fault")]


def test_the_room_for_events_that_wait_is_bounded(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlog.log.admit.quarantine.ORIGIN_EVENTS_MAX", 3)
    monkeypatch.setattr("everlog.log.admit.quarantine.EVENTS_MAX", 5)
    log = make_log("memory")
    one, other = author_of(log, 1), author_of(log, 2)
    first, second = one.write(6), other.write(6)
    assert kinds(log.admit_each(first[1:])) == ["held out_of_order"] * 3 + ["out_of_order"] * 2
    assert kinds(log.admit_each(second[1:])) == ["held out_of_order"] * 2 + ["out_of_order"] * 3
    assert kinds(log.admit_each(first)) == ["recorded"] * 6
    assert kinds(log.admit_each(second)) == ["recorded"] * 6


def test_strangers_make_room_for_known_authors(make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.log.admit.quarantine.EVENTS_MAX", 4)
    log = make_log("memory")
    member, stranger = author_of(log, 1), author_of(log, 2)
    log.writer._made_gate = Gate(Pinned([member.origin]))
    assert kinds(log.admit_each(stranger.write(5))) == ["held unknown_author"] * 4 + ["unknown_author"]
    sent = member.write(3)
    assert kinds(log.admit_each(sent[1:])) == ["held out_of_order"] * 2
    assert kinds(log.admit_each(sent[:1])) == ["recorded"]
    assert stored(log) == sent


def test_a_fork_is_not_missed_where_the_log_is_damaged(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_log("memory")
    author = author_of(log)
    first = author.write(1)
    twin = author.twin()
    log.admit_each([*first, *author.write(2)])
    slots = log.stored.slots
    monkeypatch.setattr(log.stored, "slots", lambda **where: (slot for slot in slots(**where) if slot.position != 2))
    assert kinds(log.admit_each(twin.write(1, actor="user:eve"))) == ["db_corrupt"]
    monkeypatch.undo()
    assert kinds(log.admit_each(author.twin().write(1))) == ["recorded"]


@pytest.mark.parametrize("store", ["sqlite", "jsonl", "segments"])
def test_the_hash_of_a_signed_event_is_computed_without_its_path(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path takes the hashes of the whole group: for every event of it, that is the square of its size."""
    node = open_node(store, tmp_path, new_log_id(), "n", keys=[key(1)])
    node.log.append_batch([Draft("note.written", "note/1", {"text": n}) for n in range(8)])
    events = [recorded.event for recorded in node.log.stored.read()]
    monkeypatch.setattr(group, "path", lambda hashes, place: pytest.fail("the path was computed"))
    hashes = [header_hash(header_bytes(event)) for event in events]
    assert hashes[:-1] == [event.previous for event in events[1:]]
    node.log.close()
