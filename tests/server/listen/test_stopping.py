"""SIGTERM: streams get a bye, writes in flight are finished, and the process ends in time."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.listen.follower import Follower
from tests.server.running import NOTE, Running, new_log, problem_in, read_all, request, running, start

import everlog


def test_every_stream_gets_a_bye_with_a_cursor_that_continues_without_gap_or_repeat(
    tmp_path: Path, full: bool
) -> None:
    rounds, streams = (20, 100) if full else (2, 20)
    log = new_log(tmp_path)
    seen: list[list[int]] = [[] for _ in range(streams)]
    cursors = [""] * streams
    acknowledged = 0
    for _ in range(rounds):
        with running(log) as server:
            stop = threading.Event()
            counted: list[int] = []
            appender = threading.Thread(target=append_until, args=(server, stop, counted))
            followers = [Follower(server, cursor) for cursor in cursors]
            appender.start()
            time.sleep(1.0)
            took_s = server.terminate()
            stop.set()
            appender.join()
            for follower in followers:
                follower.end()
            assert server.process.returncode == 0, errors_of(server)
            assert took_s < 10.0
        acknowledged += len(counted)
        for n, follower in enumerate(followers):
            assert follower.bye["reason"] == "shutdown"
            assert follower.bye["next"] == follower.source.last_id
            cursors[n] = follower.bye["next"]
            seen[n] += follower.positions
    with everlog.open(log) as opened:
        head = opened.head()
        assert head >= acknowledged > 0
    for n, positions in enumerate(seen):
        assert positions == list(range(1, len(positions) + 1)), f"stream {n} has a gap or a repeat"
    with running(log) as server:  # what was recorded after a bye is behind its cursor
        with server.client() as client:
            page = client.get("/v1/events", params={"after": cursors[0], "limit": 10_000}).json()
        assert not page["reset_required"]
        assert [event["position"] for event in page["events"]] == list(range(len(seen[0]) + 1, head + 1))


def append_until(server: Running, stop: threading.Event, counted: list[int]) -> None:
    """Append until the server refuses, and count what it acknowledged."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        headers = {**server.headers, "content-type": "application/json"}
        while not stop.is_set():
            try:
                connection.request("POST", "/v1/events", json.dumps(NOTE), headers)
                answer = connection.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                return
            if answer.status == 503:
                assert json.loads(body)["code"] == "not_ready"
                return
            assert answer.status == 201, body
            counted.append(json.loads(body)["position"])


def test_half_a_request_and_a_waiting_poll_do_not_keep_the_server(tmp_path: Path) -> None:
    with running(new_log(tmp_path)) as server:
        head = [f"Authorization: Bearer {server.token}", "Content-Type: application/json", "Content-Length: 99"]
        with server.connect() as half, server.connect() as poll, server.connect() as idle:
            half.sendall(request("POST", "/v1/events", *head, body=b"{"))
            poll.sendall(request("GET", "/v1/events?after=0&wait=60", head[0]))
            idle.sendall(request("GET", "/healthz"))
            assert idle.recv(65536).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.5)
            assert server.terminate() < 10.0
            assert read_all(poll).startswith(b"HTTP/1.1 200 ")
        assert server.process.returncode == 0, errors_of(server)


def test_a_batch_in_flight_is_finished_and_acknowledged(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    batch = json.dumps([NOTE] * 5_000).encode()
    with running(log) as server:
        head = [f"Authorization: Bearer {server.token}", "Content-Type: application/json"]
        with server.connect() as own:
            own.sendall(request("POST", "/v1/events:batch", *head, f"Content-Length: {len(batch)}", body=batch))
            server.terminate()  # it is being read, prepared or written
            answer = read_all(own)
    with everlog.open(log) as opened:
        if opened.head():
            assert (answer.split()[1], opened.head()) == (b"201", 5_000)
        else:
            assert problem_in(answer) == (503, "not_ready")


def test_a_thread_that_does_not_end_does_not_keep_the_process(tmp_path: Path) -> None:
    """A planted one: it holds the process until the server exits by itself, after 10 s."""
    log = new_log(tmp_path)
    script = (
        "import sys, threading, time\n"
        "from everlog.server.service import Service\n"
        "whole = Service.close\n"
        "Service.close = lambda self: (time.sleep(60), whole(self))\n"
        "from everlog.cli.main import run\n"
        "run()\n"
    )
    command = [sys.executable, "-c", script, "serve", "--log", log, "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["url"]
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 1
        assert 8.0 < time.monotonic() - began < 10.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_success_and_the_log_is_closed(tmp_path: Path, number: signal.Signals) -> None:
    with running(new_log(tmp_path)) as server:
        with server.client() as client:
            refused = client.post("/v1/events", json={**NOTE, "type": "no.such"})
            assert refused.status_code == 422
        server.process.send_signal(number)
        assert server.process.wait(timeout=20) == 0
        assert errors_of(server) == ""
    with everlog.open(server.log) as opened:  # a refusal waits in memory until the log is closed
        assert [refusal.code for refusal in opened.refusals()] == ["unknown_type"]


def test_requests_are_refused_at_the_end_and_health_is_answered(tmp_path: Path) -> None:
    """While a slow request keeps the server, others see that it stops."""
    server = start(new_log(tmp_path))
    try:
        with server.connect() as slow, server.connect() as other:
            other.sendall(request("GET", "/healthz"))
            assert other.recv(65536).startswith(b"HTTP/1.1 200 ")
            head = request("POST", "/v1/session", f"Authorization: Bearer {server.token}", "Content-Length: 9")
            slow.sendall(head)
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            other.sendall(request("GET", "/readyz"))
            assert problem_in(read_all(other)) == (503, "not_ready")
            slow.sendall(b"x" * 9)
            assert read_all(slow).startswith(b"HTTP/1.1 ")
        assert server.process.wait(timeout=20) == 0
    finally:
        server.kill()
        for pipe in (server.process.stdout, server.process.stderr):
            if pipe is not None:
                pipe.close()


def errors_of(server: Running) -> str:
    assert server.process.stderr is not None
    return server.process.stderr.read()
