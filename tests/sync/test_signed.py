"""Sync of signed logs: groups, proofs, forks, and events that do not count."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.nodes import STORES, close, new_log_id, open_node, signed_nodes, texts, write
from tests.trust.signing import Author

from everlog.application.trust.checkpoints import make_heads
from everlog.log.write.draft import Draft
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal
from everlog.sync.wire import Events, Received, Span, Wants, decode, encode, event_of
from everlog.testing.builders import event
from everlog.testing.signing import key
from everlog.trust.standing import Pinned

Open = Callable[..., list[Node]]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    made: list[Node] = []

    def open_nodes(count: int, **log: object) -> list[Node]:
        made.extend(signed_nodes(request.param, tmp_path, count, **log))
        return made

    yield open_nodes
    close(made)


def write_group(node: Node, count: int) -> None:
    node.log.append_batch([Draft("note.written", f"note/{number}", {"text": number}) for number in range(count)])


def origin(node: Node) -> str:
    return node.log.identity.origin


def assert_sound(*nodes: Node) -> None:
    for node in nodes:
        report = node.log.verify()
        assert report.ok, report.problems


def test_a_group_travels_with_one_signature_and_is_stored_with_it(opened: Open) -> None:
    one, other = opened(2)
    write_group(one, 40)
    message = next(one.batches([Span(origin(one), 1, 40)]))
    assert (len(message.events), len(message.groups)) == (40, 1)
    assert all(b'"signature"' not in bytes(text) for text in message.events)
    done = other.sync_with(one.answer)
    assert (done.received_count, done.rejected, done.equal) == (40, [], True)
    assert_sound(one, other)
    again = next(other.batches([Span(origin(one), 1, 40)]))
    assert again.groups == message.groups


def test_events_of_a_part_of_a_group_carry_their_proofs(opened: Open) -> None:
    one, other = opened(2)
    write_group(one, 20)
    asked = encode(Wants(community_id=one.log_id, wants=[Span(origin(one), 1, 7)]))
    message = decode(one.answer("wants", asked), Events)
    assert (len(message.events), message.groups) == (7, [])
    assert decode(other.answer("events", encode(message)), Received).accepted == 7
    done = other.sync_with(one.answer)
    assert (done.received_count, done.equal) == (13, True)
    assert_sound(one, other)


def test_an_event_without_its_signature_is_refused(opened: Open) -> None:
    one, other = opened(2)
    write_group(one, 5)
    message = msgspec.structs.replace(next(one.batches([Span(origin(one), 1, 5)])), groups=[])
    reply = decode(other.answer("events", encode(message)), Received)
    assert (reply.accepted, reply.rejected) == (0, 5)
    assert {each.reason for each in reply.rejected_reasons} == {"invalid_signature"}
    assert other.heads().count == 0


def test_a_fork_that_one_node_saw_ends_the_chain_on_both(opened: Open) -> None:
    one, other = opened(2)
    author = Author(9, one.log_id)
    common = author.write(3)
    twin = author.twin()
    branch, other_branch = author.write(2), twin.write(2, payload={"text": "other"})
    one.log.admit_each([*common, *branch])
    other.log.admit_each([*common, *other_branch])
    one.sync_with(other.answer)
    other.sync_with(one.answer)
    assert one.log.verdicts() == other.log.verdicts()
    assert proven_equal(one.heads(), other.heads())
    assert one.heads().origins[author.origin].end == 3
    assert [fork.origin_seq for fork in other.log.forks()] == [4]
    assert_sound(one, other)


@pytest.mark.parametrize("longer", [False, True])
def test_a_node_that_only_asks_finds_the_fork_of_a_chain_that_is_longer_or_shorter_elsewhere(
    opened: Open, longer: bool
) -> None:
    one, other = opened(2)
    author = Author(9, one.log_id)
    common, twin = author.write(3), author.twin()
    twin.ms += 1
    one.log.admit_each([*common, *author.write(2)])
    other.log.admit_each([*common, *twin.write(3 if longer else 1, payload={"text": "other"})])
    one.sync_with(other.answer)
    assert one.sync_with(other.answer).equal
    for node in (one, other):
        assert [fork.origin_seq for fork in node.log.forks()] == [4]
        assert node.heads().origins[author.origin].end == 3


def test_the_proof_of_a_fork_reaches_nodes_that_saw_one_branch(opened: Open, tmp_path: Path) -> None:
    one, other, third = opened(3)
    author = Author(9, one.log_id)
    common = author.write(3)
    twin = author.twin()
    one.log.admit_each([*common, *author.write(2), *twin.write(1, payload={"text": "other"})])
    assert one.log.forks()
    other.log.admit_each(common)
    done = other.sync_with(one.answer)  # it comes in the heads of the peer
    assert done.equal
    assert other.log.forks() == one.log.forks()
    done = other.sync_with(third.answer)  # and goes to one that asked for nothing
    assert done.equal
    assert third.log.forks() == one.log.forks()
    assert third.heads().origins[author.origin].end == 3


def test_events_that_lost_their_standing_leave_the_compared_set(tmp_path: Path) -> None:
    log_id = new_log_id()
    everyone = [key(1).public.origin, key(2).public.origin, key(3).public.origin]
    url = f"sqlite:{tmp_path / 'one'}"
    one = open_node("sqlite", tmp_path, log_id, "one", url=url, keys=[key(1)])
    other = open_node("memory", tmp_path, log_id, "other", keys=[key(2)], make_standing=lambda: Pinned(everyone[:2]))
    stray = open_node("memory", tmp_path, log_id, "stray", keys=[key(3)])
    write(one, "a")
    write(other, "b")
    write(stray, "not pinned")
    one.sync_with(stray.answer)
    assert set(one.heads().origins) == {everyone[0], everyone[2]}
    one.log.close()
    one = open_node(
        "sqlite", tmp_path, log_id, "one", url=url, keys=[key(1)], make_standing=lambda: Pinned(everyone[:2])
    )
    done = one.sync_with(other.answer)
    assert done.equal
    assert set(one.heads().origins) == set(everyone[:2])
    assert one.log.head() == 3  # it is still recorded
    assert list(one.batches([Span(everyone[2], 1, 9)])) == []  # and is not sent to anybody
    assert make_heads(one.log, None).text == make_heads(other.log, None).text
    close([one, other, stray])


def test_what_a_peer_holds_is_listed_as_held_and_not_fetched_again(tmp_path: Path) -> None:
    log_id = new_log_id()
    pinned = [key(1).public.origin]
    one = open_node("memory", tmp_path, log_id, "one", keys=[key(1)], make_standing=lambda: Pinned(pinned))
    stranger = open_node("memory", tmp_path, log_id, "stranger", keys=[key(2)])
    write_group(stranger, 3)
    message = next(stranger.batches([Span(key(2).public.origin, 1, 3)]))
    reply = decode(one.answer("events", encode(message)), Received)
    assert (reply.accepted, reply.rejected) == (0, 3)
    assert {(each.reason, each.held) for each in reply.rejected_reasons} == {("unknown_author", True)}
    trips: list[str] = []

    def ask(request: str, body: bytes) -> bytes:
        trips.append(request)
        return stranger.answer(request, body)

    done = one.sync_with(ask)
    assert (trips, done.equal) == (["heads"], False)
    close([one, stranger])


def test_nodes_that_differ_only_in_what_does_not_count_are_proven_equal(opened: Open) -> None:
    one, other = opened(2, make_standing=lambda: Pinned([key(1).public.origin, key(2).public.origin]))
    write(one, "a")
    write(other, "b")
    author = Author(9, one.log_id)
    assert {outcome.kind for outcome in one.log.admit_each(author.write(4))} == {"held"}
    done = one.sync_with(other.answer)
    assert done.equal
    assert texts(one) == texts(other) == ["a", "b"]


def test_a_restored_copy_continues_under_a_new_key_once_a_peer_shows_what_its_key_signed(tmp_path: Path) -> None:
    log_id = new_log_id()
    url = f"sqlite:{tmp_path / 'one' / 'log.db'}"
    (tmp_path / "one").mkdir()
    one = open_node("sqlite", tmp_path, log_id, "one", url=url, keys=[key(1)])
    other = open_node("memory", tmp_path, log_id, "other", keys=[key(2)])
    write(one, "before the backup")
    one.log.close()
    shutil.copytree(tmp_path / "one", tmp_path / "backup")
    one = open_node("sqlite", tmp_path, log_id, "one", url=url, keys=[key(1)])
    write(one, "lost")
    write(one, "lost, too")
    one.sync_with(other.answer)
    one.log.close()
    restored = open_node(
        "sqlite", tmp_path, log_id, "one", url=f"sqlite:{tmp_path / 'backup' / 'log.db'}", keys=[key(1)]
    )
    assert restored.sync_with(other.answer).equal
    assert texts(restored) == ["before the backup", "lost", "lost, too"]
    write(restored, "after")
    assert restored.log.identity.former == (key(1).public.origin,)
    assert restored.sync_with(other.answer).equal
    assert not other.log.forks()
    assert_sound(restored, other)
    close([restored, other])


def test_a_log_whose_key_writes_elsewhere_leaves_the_chain_that_forked(tmp_path: Path) -> None:
    log_id = new_log_id()
    one, copied = (open_node("memory", tmp_path, log_id, name, keys=[key(1)]) for name in ("one", "copied"))
    other = open_node("memory", tmp_path, log_id, "other", keys=[key(2)])
    write(one, "one")
    write(copied, "another one")
    one.sync_with(other.answer)
    copied.sync_with(other.answer)
    one.sync_with(other.answer)
    assert [fork.origin_seq for fork in other.log.forks()] == [1]
    for node in (one, copied):
        write(node, "again")
        assert node.log.identity.origin != key(1).public.origin
        node.sync_with(other.answer)
    one.sync_with(other.answer)
    assert proven_equal(one.heads(), other.heads())
    assert proven_equal(copied.heads(), other.heads()) or copied.sync_with(other.answer).equal
    close([one, copied, other])


def test_an_unsigned_event_does_not_take_the_id_of_a_signed_log(opened: Open) -> None:
    one, other = opened(2)
    write(one, "a")
    other.sync_with(one.answer)
    write(one, "b")
    text = next(one.batches([Span(origin(one), 2, 2)])).events[0]
    forged = {**msgspec.json.decode(text), "origin": "01TESTORGN0000000000000001"}
    message = Events(community_id=one.log_id, events=[msgspec.Raw(msgspec.json.encode(forged))])
    reply = decode(other.answer("events", encode(message)), Received)
    assert [each.reason for each in reply.rejected_reasons] == ["id_conflict"]
    assert other.sync_with(one.answer).equal


def test_who_passes_an_event_on_adds_nothing_to_it(opened: Open) -> None:
    """No signature covers which record allowed an erasure: this log finds that itself."""
    one, other = opened(2)
    write(one, "text")
    for message in one.batches(one.all_spans()):
        events = [msgspec.structs.replace(event_of(text), erased_by="x" * 100_000) for text in message.events]
        assert [outcome.kind for outcome in other.log.admit_each(events, message.groups)] == ["recorded"]
    assert [recorded.event.erased_by for recorded in other.log.read()] == [""]


def test_nobody_takes_the_id_of_a_pinned_author_of_whom_nothing_is_here_yet(tmp_path: Path) -> None:
    """The author's event would be refused for good, and so would all that follow."""
    log_id, pinned = new_log_id(), Pinned([key(1).public.origin, key(2).public.origin])
    one = open_node("memory", tmp_path, log_id, "one", keys=[key(1)])
    other = open_node("memory", tmp_path, log_id, "other", keys=[key(2)], make_standing=lambda: pinned)
    taken = event(id=write(one, "honest"), origin="01K9AAAAAAAAAAAAAAAAAAAAAA", origin_seq=1, previous=b"", lamport=1)
    (outcome,) = other.log.admit_each([taken])
    assert (outcome.kind, outcome.code) == ("refused", "id_conflict")
    assert other.sync_with(one.answer).equal
    assert texts(other) == ["honest"]
    close([one, other])


def test_nobody_takes_an_id_of_the_same_batch(tmp_path: Path) -> None:
    one, other = signed_nodes("memory", tmp_path, 2)
    taken = event(id=write(one, "honest"), origin="01K9AAAAAAAAAAAAAAAAAAAAAA", origin_seq=1, previous=b"", lamport=1)
    (message,) = one.batches(one.all_spans())
    outcomes = other.log.admit_each([taken, *map(event_of, message.events)], message.groups)
    assert [outcome.kind for outcome in outcomes] == ["refused", "recorded"]
    close([one, other])
