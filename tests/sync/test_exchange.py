"""Two nodes exchange what either lacks. The carrier here is a function call; tests/sync/carriers has real ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.nodes import STORES, close, nodes, open_node, texts, write

from everlog.core.codec import header_bytes, header_hash
from everlog.errors import Conflict, RejectedMessage
from everlog.log.write.draft import Draft
from everlog.sync.exchange import Node
from everlog.sync.wire import BATCH_EVENTS, MESSAGE_BYTES_MAX, Events, Heads, Received, Span, Wants, decode, encode
from everlog.testing.builders import Chain

Open = Callable[[int], list[Node]]


@pytest.fixture(params=STORES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    made: list[Node] = []

    def open_nodes(count: int) -> list[Node]:
        made.extend(nodes(request.param, tmp_path, count))
        return made

    yield open_nodes
    close(made)


def asked(node: Node, log: list[tuple[str, int]]) -> Callable[[str, bytes], bytes]:
    """Return a carrier that counts what goes over it."""

    def ask(request: str, body: bytes) -> bytes:
        reply = node.answer(request, body)
        log.append((request, len(body) + len(reply)))
        return reply

    return ask


def test_both_nodes_have_everything_after_one_sync(opened: Open) -> None:
    one, other = opened(2)
    for number in range(30):
        write(one, number, f"note/{number % 3}")
        write(other, -number, "note/x")
    done = one.sync_with(other.answer)
    assert (done.sent_count, done.received_count, done.equal) == (30, 30, True)
    assert texts(one) == texts(other)
    assert one.log.verify().ok
    assert other.log.verify().ok


def test_equal_nodes_know_it_after_one_small_round_trip(opened: Open) -> None:
    made = opened(5)
    for place, node in enumerate(made):
        write(node, place)
    for _ in range(2):
        for node in made[1:]:
            node.sync_with(made[0].answer)
    trips: list[tuple[str, int]] = []
    done = made[1].sync_with(asked(made[0], trips))
    assert (done.equal, done.sent_count, done.received_count) == (True, 0, 0)
    assert [request for request, _ in trips] == ["heads"]
    assert trips[0][1] < 2_000


def test_a_second_sync_changes_nothing(opened: Open) -> None:
    one, other = opened(2)
    write(one, "a")
    one.sync_with(other.answer)
    heads = (one.log.head(), other.log.head())
    again = other.sync_with(one.answer)
    assert (again.sent_count, again.received_count, again.equal) == (0, 0, True)
    assert (one.log.head(), other.log.head()) == heads


def test_a_difference_takes_two_round_trips_and_the_events(opened: Open) -> None:
    one, other = opened(2)
    write(one, "a")
    one.sync_with(other.answer)
    write(other, "b")
    trips: list[tuple[str, int]] = []
    one.sync_with(asked(other, trips))
    assert [request for request, _ in trips] == ["heads", "wants", "heads"]  # the last one proves it


def test_many_events_travel_in_batches(opened: Open) -> None:
    one, other = opened(2)
    drafts = 2 * BATCH_EVENTS + 300
    with_batches(one, drafts)
    trips: list[tuple[str, int]] = []
    done = other.sync_with(asked(one, trips))
    assert (done.received_count, done.equal) == (drafts, True)
    assert [request for request, _ in trips].count("wants") == 3


def test_large_events_end_a_batch_early(opened: Open) -> None:
    one, other = opened(2)
    for number in range(11):
        write(one, f"{number}" + "x " * 400_000)
    trips: list[tuple[str, int]] = []
    done = other.sync_with(asked(one, trips))
    assert (done.received_count, done.equal) == (11, True)
    assert [request for request, _ in trips].count("wants") == 3
    assert all(size < MESSAGE_BYTES_MAX for _, size in trips)


def test_an_interrupted_sync_continues_where_it_stopped(opened: Open) -> None:
    one, other = opened(2)
    with_batches(one, 2 * BATCH_EVENTS)
    trips: list[tuple[str, int]] = []

    def breaks(request: str, body: bytes) -> bytes:
        if len(trips) == 2:
            raise ConnectionError
        return asked(one, trips)(request, body)

    with pytest.raises(ConnectionError):
        other.sync_with(breaks)
    assert other.log.head() == BATCH_EVENTS
    assert other.sync_with(one.answer).received_count == BATCH_EVENTS


def test_a_hole_is_filled_and_nothing_is_sent_twice(opened: Open) -> None:
    one, other = opened(2)
    with_batches(one, 30)
    events = [recorded.event for recorded in one.log.read()]
    other.log.admit([*events[:5], *events[10:12], *events[20:]])
    head = other.heads().origins[one.log.identity.origin]
    assert head.holes == [(6, 10), (13, 20)]
    done = other.sync_with(one.answer)
    assert (done.received_count, done.sent_count, done.equal) == (13, 0, True)
    done = one.sync_with(other.answer)
    assert done.equal


def test_a_fork_of_an_unsigned_chain_is_found_by_ranges(opened: Open) -> None:
    one, other = opened(2)
    chain, fork = Chain("01TESTORGN0000000000000001"), Chain("01TESTORGN0000000000000001")
    common = [chain.next(lamport=5).event for _ in range(40)]
    for node, last in ((one, chain.next().event), (other, None)):
        node.log.admit(common)
        if last is not None:
            node.log.admit([last])
    fork._link, fork._lamport = chain._link, 3
    forked = msgspec.structs.replace(fork.next().event, origin_seq=41, previous=header_hash(header_bytes(common[-1])))
    other.log.admit([forked])
    done = one.sync_with(other.answer)
    assert done.received_count == done.sent_count == 1
    assert {each.event.id for each in one.log.read()} == {each.event.id for each in other.log.read()}
    assert done.equal


def test_a_bad_event_is_refused_alone(opened: Open) -> None:
    one, other = opened(2)
    with_batches(one, 10)
    message = next(one.batches(spans(one)))
    events = list(message.events)
    broken = msgspec.json.decode(events[3])
    broken["payload"] = {"text": "changed"}
    events[3] = msgspec.Raw(msgspec.json.encode(broken))
    events[7] = msgspec.Raw(b'{"id":"01H","no":"event"}')
    reply = decode(other.answer("events", encode(msgspec.structs.replace(message, events=events))), Received)
    assert (reply.accepted, reply.rejected) == (8, 2)
    assert {(each.event_id, each.reason) for each in reply.rejected_reasons} == {
        (broken["id"], "invalid_signature"),
        ("01H", "schema_unknown"),
    }
    assert {refusal.code for refusal in other.log.refusals()} == {"invalid_signature", "schema_unknown"}
    assert {refusal.operation for refusal in other.log.refusals()} == {"admit"}


def test_another_log_is_refused(opened: Open, tmp_path: Path) -> None:
    (one,) = opened(1)
    other = open_node("memory", tmp_path, "01JANOTHERLOG0000000000000", "other")
    write(other, "not yours")
    with pytest.raises(Conflict, match="only copies of one log"):
        one.sync_with(other.answer)
    for request, body in (
        ("wants", encode(Wants(community_id=other.log_id))),
        ("events", encode(Events(community_id=other.log_id, events=[]))),
    ):
        with pytest.raises(Conflict):
            one.answer(request, body)
    close([other])


def test_heads_have_the_shape_of_the_seed(opened: Open) -> None:
    one, other = opened(2)
    write(one, "a")
    write(other, "b")
    one.sync_with(other.answer)
    found = msgspec.json.decode(one.answer("heads", b""))
    assert found["community_id"] == one.log_id
    assert found["head"] == 1
    assert found["heads_by_type"] == {"note.written": 1}
    assert set(found["origins"]) == {one.log.identity.origin, other.log.identity.origin}
    assert decode(one.answer("heads", b""), Heads).origins == one.heads().origins


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 4_000_000,
        b'{"community_id":"x","events":[' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
        b'{"community_id":"x","wants":[["a",' + b"9" * 100_000 + b",1]]}",
        b'{"community_id":"x","events":[' + b",".join([b"{}"] * 1_001) + b"]}",
        b'{"community_id":"x","events":"' + b"\xff" * 10 + b'"}',
        b"x" * (MESSAGE_BYTES_MAX + 1),
        b"",
        b"[]",
    ],
)
def test_a_hostile_message_is_refused_quickly(body: bytes, tmp_path: Path) -> None:
    (one,) = nodes("memory", tmp_path, 1)
    for request in ("wants", "events", "ranges", "nothing"):
        began = time.monotonic()
        with pytest.raises((RejectedMessage, Conflict)):
            one.answer(request, body)
        assert time.monotonic() - began < 1


def with_batches(node: Node, count: int) -> None:
    for start in range(0, count, 500):
        numbers = range(start, min(count, start + 500))
        node.log.append_batch([Draft("note.written", f"note/{number % 7}", {"text": number}) for number in numbers])


def spans(node: Node) -> list[Span]:
    return [Span(origin, 1, head.end) for origin, head in node.heads().origins.items()]
