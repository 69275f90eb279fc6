"""The tests of seed 002 that concern sync, under its names, over real HTTP. In namespaces: `test_namespaces.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.support.http_nodes import reachable, sync
from tests.support.nodes import STORES, close, signed_nodes, texts, write

from everlog.sync.carriers.http_client import HttpPeer
from everlog.sync.exchange import Node
from everlog.sync.heads import proven_equal
from everlog.sync.wire import Received, Span, decode, encode
from everlog.testing.signing import key, unsigned_events


@pytest.fixture(params=STORES)
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Node]]:
    made = signed_nodes(request.param, tmp_path, 3)
    yield made
    close(made)


def assert_equal(nodes: Sequence[Node]) -> None:
    for node in nodes[1:]:
        assert proven_equal(nodes[0].heads(), node.heads())
        assert texts(nodes[0]) == texts(node)
        assert node.log.verify().ok


def test_two_node_sync_converges(three: list[Node]) -> None:
    one, other, _ = three
    with reachable(other) as (url,):
        for number in range(30):
            write(one, number)
            write(other, -number)
        done = sync(one, url)
        assert (done.sent_count, done.received_count, done.equal) == (30, 30, True)
        again = sync(one, url)
        assert (again.sent_count, again.received_count, again.round_trips) == (0, 0, 1)
    assert_equal([one, other])


def test_three_way_partition_then_heal(three: list[Node]) -> None:
    one, other, third = three
    with reachable(one, other, third) as (_, to_other, to_third):
        for number, node in enumerate(three):
            write(node, f"before {number}")
        sync(one, to_other)
        sync(one, to_third)
        sync(one, to_other)
        for number in range(10):  # one and other on this side, third on that side
            write(one, f"one {number}")
            write(other, f"other {number}")
            write(third, f"third {number}")
        assert sync(one, to_other).equal
        assert not proven_equal(one.heads(), third.heads())
        sync(other, to_third)  # healed
        sync(one, to_third)
    assert_equal(three)
    assert len(texts(one)) == 33


def test_append_local_persists_and_signs(three: list[Node]) -> None:
    node = three[0]
    event_id = write(node, "signed")
    found = node.log.get(event_id)
    assert found is not None
    assert found.event.signature
    assert unsigned_events(node.log.stored) == []


def test_append_received_rejects_bad_signature(three: list[Node]) -> None:
    one, other, _ = three
    write(one, "good")
    message = next(one.batches([Span(key(1).public.origin, 1, 1)]))
    forged = msgspec.structs.replace(message.groups[0], signature=bytes(64))
    with reachable(other) as (url,):
        peer = HttpPeer(url, key=one.log.signing_key())
        reply = decode(peer("events", encode(msgspec.structs.replace(message, groups=[forged]))), Received)
        peer.close()
    assert (reply.accepted, reply.rejected) == (0, 1)
    assert [each.reason for each in reply.rejected_reasons] == ["invalid_signature"]
    assert other.log.head() == 0
