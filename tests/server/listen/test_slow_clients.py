"""Clients that send half of a request, or read nothing: they are dropped, and the others do not notice them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.server.listen.follower import Follower
from tests.server.listen.healthy import latencies, p99
from tests.server.running import NOTE, Running, new_log, problem_in, read_all, request, running

HALF_OPEN = (
    b"",  # nothing at all
    b"\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    request("POST", "/v1/events", "Content-Type: application/json", "Content-Length: 100", body=b"{"),
    request("POST", "/v1/events", "Content-Type: application/json", "Transfer-Encoding: chunked", body=b"5\r\n{"),
)
CLIENTS = 'everlog_stream_clients{log="log"}'
SLOWER_MAX = 3.0
"""How much longer 99 of 100 requests may take beside bad clients than without them.

Another server, which nobody disturbs, is asked at the same time: what the machine does to both is not counted."""


def slowest(alone: float, elsewhere: float, full: bool) -> float:
    """The short form measures for seconds, beside other tests: there, two seconds are always allowed. A client that
    waits for a bad one waits for its deadline, which is 10 seconds."""
    return max(SLOWER_MAX * max(alone, elsewhere), 0.0 if full else 2.0)


def test_half_open_requests_are_dropped_and_healthy_clients_do_not_notice(tmp_path: Path, full: bool) -> None:
    half_open = 300 if full else 60
    with running(new_log(tmp_path)) as server, undisturbed(tmp_path) as other:
        alone = p99(latencies(server, other, for_s=5.0 if full else 2.0)[0])
        before = server.metrics()
        with opened(server, half_open) as sockets:
            began = time.monotonic()
            beside, elsewhere = map(p99, latencies(server, other, for_s=9.0 if full else 3.0))
            for own in sockets:
                own.settimeout(max(0.1, began + 15.0 - time.monotonic()))
                read_all(own)  # ends when the server closes it, and raises if that does not happen in time
            dropped_s = time.monotonic() - began
            print(f"p99 alone {alone:.4f}, beside {half_open} half-open {beside:.4f}, elsewhere {elsewhere:.4f} s")
            assert beside < slowest(alone, elsewhere, full)
            assert dropped_s < 15.0
        after = server.metrics()
        assert after["everlog_connections"] == before["everlog_connections"]
        assert after["everlog_requests_in_flight"] == before["everlog_requests_in_flight"]
        assert after['everlog_connections_cut_total{reason="request_too_slow"}'] >= half_open * 5 // 6


def test_a_request_that_comes_byte_by_byte_gets_a_problem_at_its_deadline(server: Running) -> None:
    body = b"x" * 100
    with server.connect() as own:
        head = request("POST", "/v1/session", f"Authorization: Bearer {server.token}", "Content-Length: 100")
        own.sendall(head)
        began = time.monotonic()
        for one in body:
            if time.monotonic() - began > 13.0:
                break
            try:
                own.sendall(bytes((one,)))
            except OSError:
                break
            time.sleep(0.25)
        own.settimeout(5.0)
        answer = read_all(own)
    assert 9.0 < time.monotonic() - began < 15.0
    # The answer may be lost with the connection: bytes that come after it reset it.
    assert not answer or problem_in(answer) == (408, "request_timed_out")


def test_a_client_that_does_not_read_its_answer_is_cut(tmp_path: Path) -> None:
    """Its answer is larger than what the system keeps for it."""
    with running(new_log(tmp_path)) as server:
        with server.client() as client:
            big = {**NOTE, "payload": {"text": "x" * 9_000}}
            assert client.post("/v1/events:batch", json=[big] * 1000).status_code == 201
        with server.connect(receive_bytes=4096) as own:
            began = time.monotonic()
            own.sendall(request("GET", "/v1/events?limit=1000", f"Authorization: Bearer {server.token}"))
            wait_until(lambda: server.metrics()["everlog_connection_waiting_bytes"] > 0, upto_s=10.0)
            wait_until(
                lambda: server.metrics().get('everlog_connections_cut_total{reason="stalled"}', 0) == 1, upto_s=20.0
            )
            assert time.monotonic() - began > 9.0
        found = server.metrics()
        assert (found["everlog_connection_waiting_bytes"], found["everlog_connections"]) == (0, 1)


# ---- helpers


@contextmanager
def opened(server: Running, count: int) -> Iterator[list[socket.socket]]:
    """Connections that have sent a part of a request."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(server.connect()) for _ in range(count)]
        for n, own in enumerate(sockets):
            own.sendall(HALF_OPEN[n % len(HALF_OPEN)])
        yield sockets


@contextmanager
def undisturbed(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "other").mkdir()
    with running(new_log(tmp_path / "other")) as other:
        yield other


def wait_until(holds: object, *, upto_s: float) -> None:
    assert callable(holds)
    until = time.monotonic() + upto_s
    while not holds():
        if time.monotonic() > until:
            pytest.fail(f"it did not become true within {upto_s:g} s")
        time.sleep(0.1)


def test_stalled_streams_are_dropped_and_the_others_get_every_event(tmp_path: Path, full: bool) -> None:
    """They read nothing, while more is recorded than the system and the server keep for them."""
    stalled, healthy = (50, 5) if full else (8, 2)
    with running(new_log(tmp_path)) as server, undisturbed(tmp_path) as other:
        alone = p99(latencies(server, other, for_s=3.0 if full else 1.0)[0])
        before = server.metrics()
        streams = [Follower(server) for _ in range(healthy)]
        with ExitStack() as stack:
            sockets = [stack.enter_context(server.connect(receive_bytes=4096)) for _ in range(stalled)]
            for own in sockets:
                own.sendall(request("GET", "/v1/events/stream", f"Authorization: Bearer {server.token}"))
            wait_until(lambda: server.metrics()[CLIENTS] == stalled + healthy, upto_s=20.0)
            began = time.monotonic()
            appended = record_much(server)
            beside, elsewhere = map(p99, latencies(server, other, for_s=6.0 if full else 2.0))
            wait_until(lambda: server.metrics()[CLIENTS] == healthy, upto_s=40.0)
            gone_s = time.monotonic() - began
            print(f"p99 alone {alone:.4f}, beside {stalled} stalled {beside:.4f}, elsewhere {elsewhere:.4f} s")
            assert gone_s < 30.0
            assert beside < slowest(alone, elsewhere, full)
        head = int(server.metrics()['everlog_log_head{log="log"}'])
        assert head > appended
        for follower in streams:
            wait_until(lambda: len(follower.positions) >= head, upto_s=10.0)  # noqa: B023 - it is called here
            follower.leave()
            assert follower.positions == list(range(1, head + 1))
        gauges = ["everlog_connections", "everlog_streaming_connections", "everlog_connection_waiting_bytes"]
        gauges += ["everlog_requests_in_flight", CLIENTS]
        wait_until(lambda: all(server.metrics()[name] == before[name] for name in gauges), upto_s=10.0)
        assert server.metrics()['everlog_stream_queued_bytes{log="log"}'] == 0


def record_much(server: Running) -> int:
    """Record 8 MB of events, and return how many."""
    batch = [{**NOTE, "payload": {"text": "x" * 8_000}}] * 100
    with server.client() as client:
        for _ in range(10):
            assert client.post("/v1/events:batch", json=batch).status_code == 201
    return 1000


def test_clients_that_leave_in_the_middle_of_an_answer_do_not_end_the_server(tmp_path: Path) -> None:
    """A write to a connection that is closed raises SIGPIPE, which ends a program that does not ignore it."""
    with running(new_log(tmp_path)) as server:
        record_much(server)
        for _ in range(3):
            with ExitStack() as stack:
                sockets = [stack.enter_context(server.connect(receive_bytes=4096)) for _ in range(20)]
                for n, own in enumerate(sockets):
                    path = ("/v1/events/stream", "/v1/events?limit=1000")[n % 2]
                    own.sendall(request("GET", path, f"Authorization: Bearer {server.token}"))
                time.sleep(0.5)  # more waits for them than the system takes
            assert server.raw(request("GET", "/healthz", "Connection: close")).startswith(b"HTTP/1.1 200 ")
        time.sleep(1.0)
        assert server.process.poll() is None
        assert server.terminate() < 10.0
        assert server.process.returncode == 0
