"""Purges that travel: no node brings an event back, and nodes are proven equal all the time."""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.nodes import CATALOG, STORES, close, new_log_id, open_node, signed_nodes, texts, write
from tests.sync.histories import Members, new_catalog
from tests.trust.signing import Author

from everlog.catalog.catalog import Catalog
from everlog.core.codec import header_bytes, header_hash
from everlog.core.event import Event, Purged
from everlog.errors import Conflict, NotFound
from everlog.log.admit.branches import branch_here
from everlog.log.records import FORGETS, FORGOTTEN, PURGED, PURGES, Listed, StreamPurged, SubjectForgotten, listed
from everlog.log.write.draft import Draft
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal
from everlog.sync.wire import Events, Received, Span, decode, encode, event_of
from everlog.testing.signing import key
from everlog.trust.signer import KeysInMemory
from everlog.trust.standing import Limit, Rights

Open = Callable[[int], list[Node]]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    made: list[Node] = []

    def open_nodes(count: int) -> list[Node]:
        made.extend(signed_nodes(request.param, tmp_path, count))
        return made

    yield open_nodes
    close(made)


def write_some(node: Node) -> None:
    """Write two groups with events of two streams each."""
    for start in (0, 4):
        node.log.append_batch(
            [Draft("note.written", f"note/{number % 2}", {"text": number}) for number in range(start, start + 4)]
        )


def purge(node: Node) -> None:
    node.log.purge("note/1", reason="a test")


def notes(node: Node) -> list[object]:
    return [text for text in texts(node) if text is not None]


def assert_sound(*nodes: Node) -> None:
    for node in nodes:
        report = node.log.verify()
        assert report.ok, report.problems


def test_a_node_that_has_the_events_removes_them_too(opened: Open) -> None:
    one, other, third = opened(3)
    write_some(one)
    for node in (other, third):
        node.sync_with(one.answer)
    purge(one)
    assert proven_equal(one.heads(), other.heads()) is False  # the record is new
    done = other.sync_with(one.answer)
    assert done.equal
    assert notes(other) == notes(one) == [0, 2, 4, 6]
    third.sync_with(other.answer)
    assert notes(third) == [0, 2, 4, 6]
    assert proven_equal(third.heads(), one.heads())
    assert_sound(one, other, third)


def test_a_node_that_lacks_the_events_gets_stubs_and_passes_them_on(opened: Open) -> None:
    one, other, third = opened(3)
    write_some(one)
    purge(one)
    write(one, "after", "note/1")
    done = other.sync_with(one.answer)
    assert done.equal
    assert notes(other) == [0, 2, 4, 6, "after"]
    assert other.log.stored.purges()
    assert third.sync_with(other.answer).equal
    assert proven_equal(third.heads(), one.heads())
    assert_sound(one, other, third)
    write(third, "still works", "note/1")
    assert one.sync_with(third.answer).equal
    assert_sound(one, third)


def test_a_stub_whose_record_comes_batches_later_is_taken_in_the_same_sync(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The author never learned of the purge, so only the other node has a record, late in its own chain."""
    monkeypatch.setattr("everlog.sync.batches.BATCH_EVENTS", 5)
    one, other, third = opened(3)
    write_some(one)
    other.sync_with(one.answer)
    for number in range(12):
        write(other, f"other {number}", "note/2")
    purge(other)
    assert third.sync_with(other.answer).equal
    assert notes(third) == notes(other)
    assert 1 not in notes(third)
    assert_sound(other, third)


def test_events_that_the_purge_did_not_know_stay(opened: Open) -> None:
    one, other = opened(2)
    write_some(one)
    other.sync_with(one.answer)
    write(other, "not known to the purge", "note/1")
    purge(one)
    write(one, "after the purge", "note/1")
    other.sync_with(one.answer)
    one.sync_with(other.answer)
    assert notes(one) == notes(other)
    assert {"not known to the purge", "after the purge"} <= set(notes(one))
    assert 1 not in notes(other)
    assert_sound(one, other)


def test_a_node_whose_events_others_purged_signs_a_record_too(opened: Open) -> None:
    one, other = opened(2)
    write_some(one)
    other.sync_with(one.answer)
    purge(other)
    one.sync_with(other.answer)
    assert notes(one) == [0, 2, 4, 6]
    assert_sound(one, other)
    assert other.sync_with(one.answer).equal
    assert_sound(one, other)


def test_a_node_may_keep_what_others_purged_and_is_still_equal(tmp_path: Path) -> None:
    (one,) = signed_nodes("memory", tmp_path, 1)
    keeps = open_node("memory", tmp_path, one.log_id, "keeps", keys=[key(2)])
    keeps = Node(keeps.log, follow_purges=False)
    write_some(one)
    keeps.sync_with(one.answer)
    purge(one)
    assert keeps.sync_with(one.answer).equal
    assert len(notes(keeps)) == 8
    assert one.sync_with(keeps.answer).equal
    assert notes(one) == [0, 2, 4, 6]
    close([one, keeps])


def test_nobody_brings_a_purged_event_back(opened: Open) -> None:
    one, other = opened(2)
    write_some(one)
    before = next(one.batches([Span(key(1).public.origin, 1, 8)]))
    other.sync_with(one.answer)
    purge(one)
    other.sync_with(one.answer)
    for node in (one, other):
        reply = decode(node.answer("events", encode(before)), Received)
        assert {each.reason for each in reply.rejected_reasons} == {"purged"}
        assert notes(node) == [0, 2, 4, 6]


def test_a_stub_without_a_record_or_with_a_wrong_proof_is_not_taken(opened: Open) -> None:
    one, other = opened(2)
    write_some(one)
    purge(one)
    message = next(one.batches([Span(key(1).public.origin, 1, 8)]))
    assert len(message.purged) == 4
    record = next(text for text in message.events if b"stream.purged" in bytes(text))
    without = msgspec.structs.replace(message, events=[text for text in message.events if text is not record])
    other.answer("events", encode(without))
    assert other.heads().count == 1  # the event before the first stub
    stubs = [msgspec.structs.replace(stub, path=()) for stub in message.purged]
    other.answer("events", encode(msgspec.structs.replace(message, purged=stubs)))
    assert other.heads().count == 1
    stubs = [msgspec.structs.replace(stub, hash=b"x" * 32) for stub in message.purged]
    other.answer("events", encode(msgspec.structs.replace(message, purged=stubs)))
    assert other.heads().count == 1
    other.answer("events", encode(message))
    assert other.heads().count == 9
    assert_sound(other)


def test_an_event_that_is_purged_between_plan_and_answer_is_answered_as_purged(opened: Open) -> None:
    one, other = opened(2)
    write_some(one)
    plan = one.heads()
    purge(one)
    asked = []

    def ask(request: str, body: bytes) -> bytes:
        asked.append(request)
        return encode(plan) if asked == ["heads"] else one.answer(request, body)

    other.sync_with(ask)
    assert notes(other) == [0, 2, 4, 6]
    assert other.sync_with(one.answer).equal
    message = decode(encode(next(one.batches([Span(key(1).public.origin, 2, 2)]))), Events)
    assert [stub.origin_seq for stub in message.purged] == [2]


def erase(node: Node) -> None:
    """Erase the payload of every event of note/1, with the record that allows it."""
    found = [one.event for one in node.log.read(stream="note/1")]
    places = next(listed((one.origin, one.origin_seq, header_hash(header_bytes(one))) for one in found))
    record = node.log.append(FORGOTTEN, stream=FORGETS, payload=SubjectForgotten(["a key"], places))
    node.log.writer.write(lambda write: write.erase([one.id for one in found], by=record.event.id), exclusive=True)


def test_an_erased_event_travels_with_the_record_that_allows_it(opened: Open) -> None:
    one, other, third = opened(3)
    write_some(one)
    erase(one)
    assert other.sync_with(one.answer).equal
    assert third.sync_with(other.answer).equal
    for node in (one, other, third):
        assert [text for text in texts(node) if text is not None] == [0, 2, 4, 6]
    assert_sound(one, other, third)


def test_an_event_whose_payload_somebody_left_out_is_refused(opened: Open) -> None:
    one, other = opened(2)
    write_some(one)
    message = next(one.batches([Span(key(1).public.origin, 1, 8)]))
    events = [msgspec.json.decode(text) for text in message.events]
    for name in ("payload", "salt"):
        del events[3][name]
    events[3]["erased_by"] = events[0]["id"]
    stripped = [msgspec.Raw(msgspec.json.encode(event)) for event in events]
    reply = decode(other.answer("events", encode(msgspec.structs.replace(message, events=stripped))), Received)
    assert (events[3]["id"], "invalid_signature", False) in {
        (each.event_id, each.reason, each.held) for each in reply.rejected_reasons
    }
    assert other.sync_with(one.answer).equal
    assert len(notes(other)) == 8


@pytest.mark.parametrize("stream", [PURGES, FORGETS])
def test_the_records_of_removals_are_not_purged(opened: Open, stream: str) -> None:
    """Without them, verify would report what was purged, and a new node could take neither stubs nor what follows."""
    one, other = opened(2)
    write(one, "secret")
    purge(one)
    write(one, "after", "note/2")
    with pytest.raises(Conflict, match="is not purged"):
        one.log.purge(stream, reason="a test")
    assert other.sync_with(one.answer).equal
    assert_sound(one, other)


def test_a_record_that_lists_records_of_removals_is_not_followed(opened: Open) -> None:
    one, other = opened(2)
    write(one, "secret")
    purge(one)
    other.sync_with(one.answer)
    (record,) = one.log.read(stream=PURGES)
    place = (record.event.origin, record.event.origin_seq, header_hash(header_bytes(record.event)))
    (removed,) = listed([place])
    hostile = StreamPurged(PURGES, "a test", removed)
    asked = other.log.writer.request([Draft(PURGED, "note/9", hostile)], "", "purge", decided=True)
    other.log.writer.prepare([asked])
    other.log.writer.write(asked.do)
    one.sync_with(other.answer)
    assert [found.event.id for found in one.log.read(stream=PURGES)] == [record.event.id]
    assert_sound(one)


def test_who_passes_a_stub_on_cannot_have_it_take_the_id_of_another_event(opened: Open) -> None:
    """The header is gone, so nothing shows the id of a stub; the author's later event would be refused for good."""
    one, other = opened(2)
    write(one, "secret")
    purge(one)
    later = write(one, "after", "note/2")
    for message in one.batches([Span(one.log.identity.origin, 1, 2)]):
        forged = [msgspec.structs.replace(stub, id=later) for stub in message.purged]
        assert forged
        other.take(msgspec.structs.replace(message, purged=forged), peer="peer:hostile")
    assert other.sync_with(one.answer).equal
    assert notes(other) == ["after"]
    assert_sound(other)


def test_who_passes_a_stub_on_cannot_raise_the_clock(opened: Open) -> None:
    one, other = opened(2)
    write(one, "secret")
    purge(one)
    for message in one.batches([Span(one.log.identity.origin, 1, 2)]):
        forged = [msgspec.structs.replace(stub, lamport=1_000_000) for stub in message.purged]
        other.take(msgspec.structs.replace(message, purged=forged), peer="peer:hostile")
    assert other.sync_with(one.answer).equal
    assert other.heads().head == one.heads().head


class Promoted:
    """Everybody counts; the purges of the others are followed once somebody said so."""

    deciding: Collection[str] = ("note.promoted",)
    begun = True
    named: Collection[str] = ()

    def __init__(self, promoted: bool = False) -> None:
        self._promoted = promoted

    def rights(self, history: Iterable[Event]) -> Rights:
        return Promoted(any(event.type == "note.promoted" for event in history))

    def begins(self, event: Event) -> bool:
        return False

    def may_remove(self, record: Event) -> bool:
        return self._promoted

    def limit(self, origin: str) -> Limit | None:
        return None


def test_a_purge_is_followed_when_the_right_to_it_comes_later(tmp_path: Path) -> None:
    """What gives the right may be in another chain, which comes with another sync of the same process."""
    catalog = Catalog()
    catalog.include(CATALOG)
    catalog.event("note.promoted")(msgspec.defstruct("NotePromoted", []))
    one, other, third = made = signed_nodes("memory", tmp_path, 3, catalog=catalog, make_standing=Promoted)
    write(one, "secret", "note/1")
    other.sync_with(one.answer)
    one.log.purge("note/1", reason="a test")
    other.sync_with(one.answer)
    assert "secret" in notes(other)
    third.log.append("note.promoted", stream="note/3")
    other.sync_with(third.answer)
    assert "secret" not in notes(other)
    assert_sound(other)
    close(made)


def record_of_anybody(tmp_path: Path, one: Node, kind: str, payload: Callable[[Listed], object]) -> Node:
    """Return a node without a key that has recorded the removal of what another one signed."""
    anybody = open_node("memory", tmp_path, one.log_id, "anybody")
    places = ((event.origin, event.origin_seq, header_hash(header_bytes(event))) for event in events_of(one))
    (removed,) = listed(places)
    asked = anybody.log.writer.request([Draft(kind, "note/9", payload(removed))], "", "purge", decided=True)
    anybody.log.writer.prepare([asked])
    anybody.log.writer.write(asked.do)
    return anybody


def events_of(node: Node) -> list[Event]:
    return [recorded.event for recorded in node.log.read()]


def test_a_purge_that_nobody_signed_removes_nothing(opened: Open, tmp_path: Path) -> None:
    (one,) = opened(1)
    write(one, "stays")
    anybody = record_of_anybody(tmp_path, one, PURGED, lambda removed: StreamPurged("note/1", "a test", removed))
    one.sync_with(anybody.answer)
    assert PURGED in {event.type for event in events_of(one)}
    assert "stays" in notes(one)
    close([anybody])


def test_an_erasure_that_nobody_signed_takes_no_payload_of_a_key(opened: Open, tmp_path: Path) -> None:
    one, other = opened(2)
    write(one, "stays")
    anybody = record_of_anybody(tmp_path, one, FORGOTTEN, lambda removed: SubjectForgotten([], removed))
    other.sync_with(anybody.answer)
    (message,) = one.batches(one.all_spans())
    bare = [msgspec.structs.replace(event_of(text), payload={}, salt=b"") for text in message.events]
    assert {outcome.kind for outcome in other.log.admit_each(bare, message.groups)} == {"refused"}
    assert other.sync_with(one.answer).received_count
    assert "stays" in notes(other)
    close([anybody])


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory"])
def test_a_log_that_was_put_back_follows_the_purge_that_it_made_itself(store: str, tmp_path: Path) -> None:
    """Its record comes back from a peer, and the events that it purged came back with the older copy."""
    kept, log_id = KeysInMemory([key(1)]), new_log_id()
    here, backup = tmp_path / "here", tmp_path / "backup"
    here.mkdir()

    def opened() -> Node:
        return open_node(store, here, log_id, "one", keys=[key(1)], kept=kept)

    other = open_node("memory", tmp_path, log_id, "other", keys=[key(2)])
    one = opened()
    write(one, "gone", "note/1")
    write(one, "stays", "note/2")
    assert one.sync_with(other.answer).equal
    one.log.close()
    shutil.copytree(here, backup)
    one = opened()
    one.log.purge("note/1", reason="a test")
    assert one.sync_with(other.answer).equal
    one.log.close()
    shutil.rmtree(here)
    backup.rename(here)
    one = opened()
    assert notes(one) == ["gone", "stays"]
    one.sync_with(other.answer)
    assert one.sync_with(other.answer).equal
    assert notes(one) == notes(other) == ["stays"]
    assert_sound(one, other)
    close([one, other])


class RevokedLater:
    """The chains of all count, and of the second one up to the number that the first one has stated."""

    deciding: Collection[str] = ("note.revoked",)
    begun = True
    named: Collection[str] = ()

    def __init__(self, upto: int | None = None) -> None:
        self._upto = upto

    def rights(self, history: Iterable[Event]) -> Rights:
        stated = [int(event.payload["upto"]) for event in history if event.origin == key(1).public.origin]
        return RevokedLater(min(stated, default=None))

    def begins(self, event: Event) -> bool:
        return False

    def may_remove(self, record: Event) -> bool:
        return True

    def limit(self, origin: str) -> Limit | None:
        is_second = origin == key(2).public.origin
        return Limit(self._upto, "revoked_author") if is_second and self._upto is not None else None


def with_revocation(store: str, tmp_path: Path, count: int) -> list[Node]:
    catalog = Catalog()
    catalog.include(CATALOG)
    catalog.event("note.revoked")(msgspec.defstruct("NoteRevoked", [("upto", int)]))
    return signed_nodes(store, tmp_path, count, catalog=catalog, make_standing=RevokedLater)


@pytest.mark.parametrize("first_seen", ["purge", "revocation"])
@pytest.mark.parametrize("store", STORES)
def test_a_purge_counts_if_its_author_was_revoked_only_after_it(store: str, first_seen: str, tmp_path: Path) -> None:
    """On every node, whether the record or the revocation arrives first: the number decides, not who is a member."""
    admin, member, third = made = with_revocation(store, tmp_path, 3)
    write_some(admin)
    for node in (member, third):
        node.sync_with(admin.answer)
    purge(member)
    upto = member.heads().origins[member.log.identity.origin].end
    if first_seen == "purge":
        third.sync_with(member.answer)
    admin.log.append("note.revoked", stream="note/9", payload={"upto": upto})
    third.sync_with(admin.answer)
    write(member, "too late", "note/2")
    for node, peer in ((third, member), (admin, third), (member, admin)) * 2:
        node.sync_with(peer.answer)
    assert notes(admin) == notes(third) == [0, 2, 4, 6]
    assert proven_equal(admin.heads(), third.heads())
    assert proven_equal(admin.heads(), member.heads())
    assert_sound(*made)
    close(made)


@pytest.mark.parametrize("admin_has", ["the events", "stubs"])
@pytest.mark.parametrize("store", STORES)
def test_a_purge_with_a_record_that_counts_makes_nodes_equal_again(
    store: str, admin_has: str, tmp_path: Path
) -> None:
    """Some nodes followed the purge of a member before they learned that its chain ends before the record."""
    admin, member, third, fourth = made = with_revocation(store, tmp_path, 4)
    write_some(third)
    for node in (admin, member, fourth):
        node.sync_with(third.answer)
    purge(member)
    followed, kept = (fourth, admin) if admin_has == "the events" else (admin, fourth)
    followed.sync_with(member.answer)
    admin.log.append("note.revoked", stream="note/9", payload={"upto": 0})
    for node, peer in ((third, admin), (fourth, admin), (fourth, third), (third, admin)):
        node.sync_with(peer.answer)
    assert [1 in notes(node) for node in (followed, kept)] == [False, True]
    assert proven_equal(admin.heads(), fourth.heads())
    admin.log.purge("note/1", reason="once more")
    for node in (third, fourth) * 2:  # the author of the events signs a record, too
        node.sync_with(admin.answer)
    for node in (third, fourth):
        assert proven_equal(admin.heads(), node.heads())
        assert notes(node) == notes(admin) == [0, 2, 4, 6]
    assert_sound(admin, third, fourth)
    with pytest.raises(NotFound):
        admin.log.purge("note/1", reason="nothing is left to purge")
    close(made)


@pytest.mark.parametrize("store", [store for store in STORES if store != "memory"])
def test_a_node_that_was_killed_before_it_removed_the_events_removes_them_though_nothing_new_comes(
    store: str, tmp_path: Path
) -> None:
    log_id = new_log_id()
    one = open_node("memory", tmp_path, log_id, "one", keys=[key(1)])
    other = open_node(store, tmp_path, log_id, "other", keys=[key(2)], kept=(kept := KeysInMemory([key(2)])))
    write_some(one)
    other.sync_with(one.answer)
    purge(one)
    (message,) = one.batches([Span(one.log.identity.origin, 9, 10)])
    events = [event_of(text) for text in message.events]
    assert {outcome.kind for outcome in other.log.admit_each(events, message.groups)} == {"recorded"}
    other.log.close()  # before it followed the record
    other = open_node(store, tmp_path, log_id, "other", keys=[key(2)], kept=kept)
    assert 1 in notes(other)
    assert other.sync_with(one.answer).equal
    assert notes(other) == notes(one) == [0, 2, 4, 6]
    assert_sound(other)
    close([one, other])


def test_an_event_that_waited_is_removed_if_a_purge_lists_it(opened: Open) -> None:
    """The node has followed the record before, and the event that was missing is not one of those."""
    one, other, third = opened(3)
    write_some(one)
    other.sync_with(one.answer)
    events = [recorded.event for recorded in one.log.read()]
    purge(other)
    third.log.admit_each(events[:4])
    for message in other.batches([Span(other.log.identity.origin, 1, 9)]):
        third.take(message, peer="peer:other")
    assert [text for text in notes(third) if text in (1, 3, 5, 7)] == []
    waits = third.log.admit_each(events[5:])
    assert {outcome.kind for outcome in waits} == {"held"}
    (missing,) = one.batches([Span(one.log.identity.origin, 5, 5)])
    third.take(missing, peer="peer:one")
    assert notes(third) == notes(other) == [0, 2, 4, 6]
    assert_sound(third)


@pytest.mark.parametrize("store", STORES)
def test_what_a_purge_leaves_of_two_branches_is_not_taken_for_one_group(store: str, tmp_path: Path) -> None:
    """The branch that came second was named, and has the numbers of a group that the first one signed."""
    (node,) = signed_nodes(store, tmp_path, 1, catalog=new_catalog(), make_standing=Members)
    author = Author(21, node.log_id)
    twin = author.twin()
    twin.ms += 5
    fields = {"type": "note.written", "stream": "note/1"}
    first, second = author.write(2, payload={"text": 1}, **fields), twin.write(2, payload={"text": 2}, **fields)
    node.log.admit_each(first)
    node.log.admit_each(second)
    branch = node.log.writer.write(lambda write: branch_here(write, author.origin, second[-1].id))
    payload = {"origin": author.origin, "first": 1, "hashes": [b64encode(one).decode() for one in branch.hashes]}
    node.log.append("branch.named", stream="member/1", payload=payload)
    purge(node)
    gone = [slot for slot in node.log.stored.slots() if isinstance(slot, Purged)]
    assert len(gone) == 4
    assert [slot.signed_with for slot in gone if slot.hash in branch.hashes] == [(0, 0)] * 2
    assert_sound(node)
    close([node])
