"""The tests of seed 002 that concern sync, under its names, over real HTTP, and once across network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
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


# ---- across network namespaces

NAMESPACES = ("everlog-test-1", "everlog-test-2")
ADDRESSES = ("10.213.77.1", "10.213.77.2")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)


@pytest.fixture
def two_networks() -> Iterator[None]:
    """Two network namespaces with one cable between them."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the program ip")
    try:
        for name in NAMESPACES:
            ip("netns", "add", name)
        ip(
            "link",
            "add",
            "evt1",
            "netns",
            NAMESPACES[0],
            "type",
            "veth",
            "peer",
            "name",
            "evt2",
            "netns",
            NAMESPACES[1],
        )
        for name, link, address in zip(NAMESPACES, ("evt1", "evt2"), ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", link)
            ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        stated = error.stderr.decode().strip() if error.stderr else str(error)
        pytest.skip(f"this machine makes no network namespaces: {stated}")
    finally:
        for name in NAMESPACES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=10)


def test_two_nodes_in_two_network_namespaces_agree(two_networks: None, tmp_path: Path) -> None:
    def everlog(place: int, folder: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [
            "ip",
            "netns",
            "exec",
            NAMESPACES[place],
            sys.executable,
            "-m",
            "everlog",
            "-C",
            str(tmp_path / folder),
        ]
        done = subprocess.run([*command, *words, "--json"], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    everlog(0, "one", "init")
    everlog(0, "one", "append", "note.added", "-s", "note/1", "text=over the cable")
    command = ["ip", "netns", "exec", NAMESPACES[0], sys.executable, "-m", "everlog", "-C", str(tmp_path / "one")]
    listening = subprocess.Popen(
        [*command, "sync", "--listen", f"{ADDRESSES[0]}:7474", "--open"], stderr=subprocess.PIPE, text=True
    )
    assert listening.stderr is not None
    try:
        assert "listening" in listening.stderr.readline()
        url = f"http://{ADDRESSES[0]}:7474"
        joined = json.loads(everlog(1, "other", "join", url).stdout)["data"]
        assert (joined["received"], joined["equal"]) == (1, True)
        everlog(1, "other", "append", "note.added", "-s", "note/1", "text=and back")
        assert json.loads(everlog(1, "other", "sync").stdout)["data"][0]["sent"] == 2  # with `origin.knows`
    finally:
        listening.send_signal(signal.SIGINT)
        listening.wait(timeout=20)
        listening.stderr.close()
    found = json.loads(everlog(0, "one", "log").stdout)["data"]
    assert {one["payload"].get("text") for one in found} == {"over the cable", None, "and back"}
