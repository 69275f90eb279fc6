"""Sync over real HTTP on loopback, and what hostile peers get."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.nodes import close, nodes, open_node, texts, write

from everlog.errors import Conflict, PeerUnavailable, RejectedMessage
from everlog.sync.carriers import http_pace, http_server
from everlog.sync.carriers.http_client import HttpPeer
from everlog.sync.carriers.http_messages import unpacked
from everlog.sync.carriers.http_server import Asker, Listener
from everlog.sync.exchange import Node
from everlog.sync.wire import MESSAGE_BYTES_MAX

WINDOW_S = 0.5


def listen(node: Node, *, window_s: float = WINDOW_S) -> Listener:
    def answer(request: str, body: bytes, asker: Asker) -> bytes:
        return node.answer(request, body, peer=f"peer:{asker.address}")

    return Listener("127.0.0.1", 0, answer, window_s=window_s)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Node, Node, Listener]]:
    one, other = nodes("sqlite", tmp_path, 2)
    listener = listen(other)
    yield one, other, listener
    listener.close()
    close([one, other])


def test_two_nodes_agree_over_http(pair: tuple[Node, Node, Listener]) -> None:
    one, other, listener = pair
    for number in range(20):
        write(one, number)
        write(other, -number)
    peer = HttpPeer(listener.url)
    done = one.sync_with(peer)
    peer.close()
    assert (done.sent_count, done.received_count, done.equal) == (20, 20, True)
    assert texts(one) == texts(other)


def test_an_error_of_a_peer_arrives_as_an_error(pair: tuple[Node, Node, Listener], tmp_path: Path) -> None:
    _, _, listener = pair
    stranger = open_node("memory", tmp_path, "01JANOTHERLOG0000000000000", "stranger")
    peer = HttpPeer(listener.url)
    with pytest.raises(Conflict):
        stranger.sync_with(peer)
    with pytest.raises(RejectedMessage):
        peer("wants", b"[[[[")
    peer.close()


def test_a_peer_that_is_not_there_is_named(tmp_path: Path) -> None:
    (one,) = nodes("memory", tmp_path, 1)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    peer = HttpPeer(f"http://127.0.0.1:{port}", attempts=2, timeout_s=1)
    with pytest.raises(PeerUnavailable, match=str(port)):
        one.sync_with(peer)
    peer.close()


def raw(listener: Listener, data: bytes, *, end: bool = False) -> bytes:
    """Send bytes, and return all that comes back until the connection ends."""
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as connection:
        found = b""
        try:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                found += piece
        except (ConnectionError, TimeoutError):
            pass
        return found


POST = b"POST /sync/v1/events HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (POST + b"content-length: 99999999999\r\n\r\n", b"400"),
        (POST + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n", b"400"),
        (POST + b"content-encoding: zebra\r\ncontent-length: 1\r\n\r\nx", b"400"),
        (b"GET /sync/v1/secrets HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        (b"DELETE /sync/v1/heads HTTP/1.1\r\nhost: x\r\n\r\n", b"404"),
        (b"GET / HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 100_000 + b"\r\n\r\n", b"431"),
        (b"\x16\x03\x01 not http at all\r\n\r\n", b"400"),
    ],
)
def test_a_hostile_request_is_refused_and_others_are_served(
    pair: tuple[Node, Node, Listener], request_: bytes, status: bytes
) -> None:
    one, _, listener = pair
    if b"%d" in request_:
        bomb = packed(b" ", messages=20)
        request_ = request_ % len(bomb) + bomb
    began = time.monotonic()
    assert raw(listener, request_)[9:12] in (status, b"")  # a connection that is reset may take the answer with it
    assert time.monotonic() - began < 2
    peer = HttpPeer(listener.url)
    assert one.sync_with(peer).equal
    peer.close()


def test_endless_chunks_end_at_the_size_of_a_message(pair: tuple[Node, Node, Listener]) -> None:
    _, _, listener = pair
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as connection:
        connection.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sent = 0
        with pytest.raises(OSError, match=r"reset|[Bb]roken|abort"):
            while sent < 20 * MESSAGE_BYTES_MAX:
                connection.sendall(chunk)
                sent += len(chunk)
        assert sent < 4 * MESSAGE_BYTES_MAX


@pytest.mark.parametrize("begin", [b"", POST, POST + b"content-length: 1000\r\n\r\n"])
def test_a_sender_that_trickles_is_cut_off(pair: tuple[Node, Node, Listener], begin: bytes) -> None:
    one, _, listener = pair
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as connection:
        connection.sendall(begin)
        peer = HttpPeer(listener.url)
        assert one.sync_with(peer).equal  # meanwhile, others are served
        peer.close()
        try:
            while time.monotonic() - began < 5:
                connection.sendall(b"x")
                time.sleep(0.05)
        except OSError:
            pass
    assert WINDOW_S <= time.monotonic() - began < 3


def test_a_peer_that_does_not_read_is_cut_off(pair: tuple[Node, Node, Listener]) -> None:
    one, other, listener = pair
    for number in range(8):
        write(other, f"{number}" + "x " * 400_000)
    spans = b",".join(b'["%s",1,8]' % origin.encode() for origin in other.heads().origins)
    body = b'{"community_id":"%s","wants":[%s]}' % (other.log_id.encode(), spans)
    with socket.create_connection(("127.0.0.1", listener.port), timeout=5) as connection:
        connection.sendall(
            b"POST /sync/v1/wants HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        time.sleep(3 * WINDOW_S)
        assert not listener._connections
    assert one.heads().count == 0


def test_one_address_gets_a_few_connections_and_no_more(pair: tuple[Node, Node, Listener]) -> None:
    _, _, listener = pair
    opened = [socket.create_connection(("127.0.0.1", listener.port), timeout=5) for _ in range(30)]
    time.sleep(0.2)
    assert len(listener._connections) == http_server.CONNECTIONS_PER_ADDRESS
    for each in opened:
        each.close()


TRICKLES = {
    "in the body": (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"x"),
    "in a header": (b"HTTP/1.1 200 OK\r\nx: ", b"x"),
    "before the answer": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "in the size of a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;", b"x"),
}


@contextmanager
def answering(first: bytes, then: bytes, *, pause_s: float) -> Iterator[str]:
    """A peer that answers with one thing, and then with another one for ever."""
    server, ended = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def answer() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):
            connection.sendall(first)
            while not ended.wait(pause_s):
                connection.sendall(then)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    ended.set()
    thread.join(timeout=6)
    server.close()


@pytest.mark.parametrize("where", TRICKLES)
def test_an_answer_that_trickles_is_given_up(where: str) -> None:
    with answering(*TRICKLES[where], pause_s=0.05) as url:
        peer = HttpPeer(url, attempts=1, timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(PeerUnavailable, match="slowly"):
            peer("heads", b"")
        assert time.monotonic() - began < 3
        peer.close()


def test_an_answer_that_never_begins_is_given_up_however_much_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pace, "_READ_MAX", 100_000)
    with answering(*TRICKLES["before the answer"], pause_s=0) as url:
        peer = HttpPeer(url, attempts=1)
        with pytest.raises(RejectedMessage, match="too large"):
            peer("heads", b"")
        peer.close()


def packed(char: bytes, *, messages: int) -> bytes:
    """Pack so many of the longest messages of one character. Each begins afresh, so that one has to be packed."""
    packer = zlib.compressobj(9, wbits=31)
    one = packer.compress(char * MESSAGE_BYTES_MAX) + packer.flush(zlib.Z_FULL_FLUSH)
    return one + one[GZIP_HEADER_BYTES:] * (messages - 1)


GZIP_HEADER_BYTES = 10
REFUSED: dict[str, Callable[[], bytes]] = {
    "deep": lambda: b"[" * MESSAGE_BYTES_MAX,
    "digits": lambda: b'{"community_id":"x","wants":[["a",' + b"9" * 100_000 + b",1]]}",
    "events": lambda: b'{"community_id":"x","events":[' + b"{}," * 2_000_000 + b"{}]}",
    "forks": lambda: (
        b'{"community_id":"x","events":[],"forks":[' + b'["a",1,["","",1,1,[]],["","",1,1,[]]],' * 100_000 + b"[]]}"
    ),
    "wants": lambda: b'{"community_id":"x","wants":[' + b'["a",1,1],' * 700_000 + b"1]}",
    "quotes": lambda: b'{"community_id":"x","events":["' + b'\\",' * 2_000_000,
    "gzip": lambda: packed(b"[", messages=100),
}


def test_what_is_packed_by_repetition_is_what_it_stands_for() -> None:
    assert zlib.decompressobj(wbits=31).decompress(packed(b"[", messages=3)) == b"[" * (3 * MESSAGE_BYTES_MAX)


@pytest.mark.parametrize("made", REFUSED)
def test_what_is_refused_takes_little_memory_and_time(made: str, tmp_path: Path) -> None:
    body = REFUSED[made]()
    (one,) = nodes("memory", tmp_path, 1)

    def refuse(request: str) -> None:
        with pytest.raises((RejectedMessage, Conflict)):
            one.answer(request, unpacked(body, "gzip") if body[:2] == b"\x1f\x8b" else body)

    for request in ("events", "wants"):
        began = time.process_time()
        refuse(request)
        assert time.process_time() - began < 1
        tracemalloc.start()  # which makes everything slower
        refuse(request)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * 1024 * 1024
    close([one])
