"""Events without their payloads, and stubs: taken only with a record that is recorded and counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.log.admit.test_admission import author_of, kinds, stored
from tests.support.nodes import close, signed_nodes, texts, write
from tests.trust.signing import Author

from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Event
from everlog.log.admit.admission import Gate
from everlog.log.log import Log
from everlog.log.records import FORGETS, FORGOTTEN, PURGED, PURGES, listed
from everlog.sync.exchange import Node
from everlog.sync.wire import Events, decode, encode, event_of, event_text
from everlog.testing.builders import Chain
from everlog.testing.signing import key
from everlog.trust.forks import leaf_of
from everlog.trust.standing import Pinned
from everlog.trust.stubs import Stub

KINDS = ["memory", "sqlite", "jsonl", "segments"]


@pytest.fixture(params=KINDS)
def node(request: pytest.FixtureRequest, make_log: Callable[..., Log], tmp_path: Path) -> Log:
    return make_log(request.param, tmp_path / "node")


def hash_of(event: Event) -> bytes:
    return header_hash(header_bytes(event))


def bare(event: Event) -> Event:
    return replace(event, payload={}, salt=b"")


def record(author: Author, events: Sequence[Event], kind: str = FORGOTTEN) -> Event:
    """The record of an author that lists events as removed, as the next of its chain."""
    (places,) = listed((one.origin, one.origin_seq, hash_of(one)) for one in events)
    if kind == FORGOTTEN:
        payload: dict[str, object] = {"keys": [], "erased": places, "follows": ""}
        return author.write(1, type=kind, stream=FORGETS, payload=payload)[0]
    payload = {"stream": events[0].stream, "reason": "a test", "removed": places}
    return author.write(1, type=kind, stream=PURGES, payload=payload, lamport=author.lamport + 100)[0]


def stub(event: Event) -> Stub:
    leaf = leaf_of(event, hash_of(event))
    place = (event.id, event.origin, event.origin_seq, leaf.hash, event.previous, event.lamport)
    return Stub(*place, leaf.signature, leaf.first_seq, leaf.count, leaf.path)


def payloads(log: Log, author: Author) -> list[object]:
    """What an author's events say, as far as they are here."""
    return [one.payload.get("text") for one in stored(log) if one.origin == author.origin]


def test_a_record_beyond_a_hole_takes_no_payload_of_others(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent, (first, missing) = ada.write(3), eve.write(2)
    forgot = record(eve, sent[1:2])
    assert kinds(node.admit_each([first, forgot, sent[0], bare(sent[1]), sent[2]])) == [
        "recorded",
        "held out_of_order",
        "recorded",
        "held out_of_order",
        "held out_of_order",
    ]
    assert kinds(node.admit_each(sent[1:2])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2", "3"]
    assert kinds(node.admit_each([missing])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2", "3"]
    assert kinds(node.admit_each([bare(sent[1])])) == ["known"]
    report = node.verify()
    assert (report.ok, report.faults) == (True, ())


def test_what_waits_without_its_payload_is_recorded_when_the_record_is(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent, (first, missing) = ada.write(3), eve.write(2)
    forgot = record(eve, sent[1:2])
    node.admit_each([first, forgot, sent[0], bare(sent[1]), sent[2]])
    assert kinds(node.admit_each([missing])) == ["recorded"]
    assert payloads(node, ada) == ["1", None, "3"]
    assert [one.erased_by for one in stored(node) if one.origin == ada.origin] == ["", forgot.id, ""]
    report = node.verify()
    assert (report.ok, report.erased, report.faults) == (True, 1, ())


def test_a_record_beyond_a_hole_brings_no_stub_of_others(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent, (first, missing) = ada.write(3, stream="note/1"), eve.write(2)
    purged = record(eve, sent[1:2], PURGED)
    outcomes = node.admit_each([first, purged, sent[0], sent[2]], stubs=[stub(sent[1])])
    assert kinds(outcomes) == ["recorded", "held out_of_order", "recorded", "held out_of_order"]
    assert kinds(node.admit_each(sent[1:2])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2", "3"]
    assert kinds(node.admit_each([missing])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2", "3"]
    assert not node.stored.purges()
    assert node.verify().ok


def test_a_stub_comes_with_a_record_that_is_recorded(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent, others = ada.write(3, stream="note/1"), eve.write(2)
    purged = record(eve, sent[1:2], PURGED)
    node.admit_each([others[0], purged, sent[0], sent[2]], stubs=[stub(sent[1])])
    assert payloads(node, ada) == ["1"]
    assert kinds(node.admit_each(others[1:], stubs=[stub(sent[1])])) == ["recorded"]
    assert payloads(node, ada) == ["1", "3"]
    assert len(node.stored.purges()) == 1
    assert kinds(node.admit_each(sent[1:2])) == ["purged"]
    assert node.verify().ok


@pytest.mark.parametrize("kind", [FORGOTTEN, PURGED])
def test_a_record_of_a_stranger_removes_nothing(make_log: Callable[..., Log], kind: str) -> None:
    log = make_log("memory")
    ada, eve = author_of(log, 1), author_of(log, 2)
    log.writer._made_gate = Gate(Pinned([ada.origin]))
    sent = ada.write(2, stream="note/1")
    removed = record(eve, sent[1:], kind)
    if kind == FORGOTTEN:
        log.admit_each([removed, sent[0], bare(sent[1])])
    else:
        log.admit_each([removed, sent[0]], stubs=[stub(sent[1])])
    assert payloads(log, ada) == ["1"]
    assert kinds(log.admit_each(sent[1:])) == ["recorded"]
    assert payloads(log, ada) == ["1", "2"]


def test_a_record_at_or_after_a_fork_removes_nothing(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent, first, twin = ada.write(2), eve.write(1), eve.twin()
    twin.number, twin.previous, twin.lamport = eve.number, eve.previous, eve.lamport
    forgot, other = record(eve, sent[1:]), twin.write(1)
    node.admit_each([*first, forgot, *other, sent[0], bare(sent[1])])
    assert payloads(node, ada) == ["1"]
    assert kinds(node.admit_each(sent[1:])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2"]


def test_the_record_may_be_later_in_the_same_chain_and_the_group_stays_whole(node: Log) -> None:
    ada = author_of(node)
    sent = ada.write(3)
    forgot = record(ada, sent[1:2])
    assert kinds(node.admit_each([forgot, sent[2], bare(sent[1]), sent[0]])) == ["recorded"] * 4
    assert [slot.signed_with for slot in node.stored.slots()] == [(1, 3)] * 3 + [(4, 1)]
    assert [one.erased_by for one in stored(node)] == ["", forgot.id, "", ""]
    assert node.verify().ok


def test_an_own_record_beyond_a_hole_is_not_enough_either(node: Log) -> None:
    ada = author_of(node)
    sent = ada.write(4)
    forgot = record(ada, sent[1:2])
    node.admit_each([sent[0], bare(sent[1]), sent[2], forgot])
    assert payloads(node, ada) == ["1"]
    assert kinds(node.admit_each([sent[1]])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2", "3"]
    assert kinds(node.admit_each([sent[3]])) == ["recorded"]
    assert payloads(node, ada) == ["1", "2", "3", "4", None]  # the last is the record


def test_two_chains_that_each_have_the_record_of_the_other_are_recorded(node: Log) -> None:
    ada, bob = author_of(node, 1), author_of(node, 2)
    ours, theirs = ada.write(2), bob.write(2)
    of_theirs, of_ours = record(ada, theirs[:1]), record(bob, ours[:1])
    batch = [bare(ours[0]), ours[1], of_theirs, bare(theirs[0]), theirs[1], of_ours]
    assert set(kinds(node.admit_each(batch[:-1]))) == {"held out_of_order", "invalid_signature"}
    assert stored(node) == []
    assert kinds(node.admit_each(batch)) == ["recorded"] * 6
    assert node.verify().ok
    assert node.verify().erased == 2


def test_of_two_copies_in_one_batch_the_one_with_its_payload_is_taken(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent, others = ada.write(2), eve.write(1)
    forgot = record(eve, sent)
    for order in ([sent[0], bare(sent[0])], [bare(sent[1]), sent[1]]):
        assert kinds(node.admit_each([*others, forgot, *order]))[2:] == ["recorded"] * 2
    assert payloads(node, ada) == ["1", "2"]


def test_a_copy_without_its_payload_does_not_hide_the_one_that_waits(node: Log) -> None:
    ada, eve = author_of(node, 1), author_of(node, 2)
    sent = ada.write(3)
    forgot = record(eve, sent[1:2])
    assert kinds(node.admit_each(sent[1:2])) == ["held out_of_order"]
    assert kinds(node.admit_each([forgot, bare(sent[1])])) == ["recorded", "held out_of_order"]
    node.admit_each([sent[0], bare(sent[1])])
    assert payloads(node, ada) == ["1", "2"]


def test_an_author_is_believed_about_its_own_event_if_the_record_cannot_wait(
    make_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no new node could take a long chain with one erased event."""
    monkeypatch.setattr("everlog.log.admit.admission.ORIGIN_EVENTS_MAX", 5)
    monkeypatch.setattr("everlog.log.admit.quarantine.ORIGIN_EVENTS_MAX", 5)
    log = make_log("memory")
    ada, eve = author_of(log, 1), author_of(log, 2)
    sent, others = ada.write(8), eve.write(9)
    own, foreign = record(ada, sent[1:2]), record(eve, sent[2:3])
    outcomes = log.admit_each([sent[0], bare(sent[1]), bare(sent[2]), sent[3], own, foreign])
    assert kinds(outcomes)[:3] == ["recorded", "recorded", "held out_of_order"]
    log.admit_each(sent[2:])
    log.admit_each([own])
    assert payloads(log, ada) == ["1", None, *"345678", None]
    assert kinds(log.admit_each([*others, foreign])) == ["recorded"] * 10
    assert log.verify().ok


def test_an_event_of_nobody_needs_a_recorded_record_too(node: Log) -> None:
    eve, chain = author_of(node, 2), Chain()
    plain = chain.next(stream="note/1", payload={"text": "plain"}).event
    others = eve.write(1)
    forgot = record(eve, [plain])
    assert kinds(node.admit_each([forgot, bare(plain)])) == ["held out_of_order", "invalid_signature"]
    assert kinds(node.admit_each([*others])) == ["recorded"]
    assert kinds(node.admit_each([bare(plain)])) == ["recorded"]
    (found,) = [one for one in stored(node) if one.origin == chain.origin]
    assert (found.payload, found.erased_by) == ({}, forgot.id)


def test_in_whatever_order_a_record_and_its_event_come_the_node_ends_the_same(make_log: Callable[..., Log]) -> None:
    """Without the full event anywhere, the one without its payload is recorded as soon as the record is."""
    found = set()
    for order in itertools.permutations(range(5)):
        log = make_log("memory")
        ada, eve = Author(1, log.identity.log_id), Author(2, log.identity.log_id)
        sent, others = ada.write(2), eve.write(1)
        forgot = record(eve, sent[:1])
        parts = [bare(sent[0]), sent[1], *others, forgot]
        parts = [*parts, record(eve, sent[1:])]  # nobody erased that one here
        for place in order:
            if parts[place] is parts[0]:
                log.admit_each([forgot, parts[0]])  # as a node sends it
            else:
                log.admit_each([parts[place]])
        found.add((tuple(payloads(log, ada)), len(payloads(log, eve))))
        assert log.verify().ok
        log.close()
    assert found == {((None, "2"), 3)}


# ---- nodes


def hostile_answers(honest: Node, hidden: Event, forged: Event) -> Callable[[str, bytes], bytes]:
    """A peer that leaves one payload out, and adds a record that never gets into its chain."""

    def ask(request: str, body: bytes) -> bytes:
        reply = honest.answer(request, body)
        if request != "wants":
            return reply
        message = decode(reply, Events)
        events = [event_of(text) for text in message.events]
        changed = [bare(one) if one.id == hidden.id else one for one in events]
        return encode(replace(message, events=[event_text(one, proof=True) for one in (*changed, forged)]))

    return ask


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_hostile_relay_does_not_keep_a_payload_from_a_node(tmp_path: Path, store: str) -> None:
    one, other = made = signed_nodes(store, tmp_path, 2)
    for text in ("first", "second", "third"):
        write(one, text)
    events = [found.event for found in one.log.stored.read()]
    eve = Author(int.from_bytes(key(3).seed, "big"), one.log_id)
    eve.write(5)
    forged = record(eve, events[1:2])
    other.sync_with(hostile_answers(one, events[1], forged), peer="peer:hostile")
    assert texts(other) == ["first"]
    assert other.sync_with(one.answer).equal
    assert texts(other) == ["first", "second", "third"]
    assert other.log.verify().ok
    close(made)
