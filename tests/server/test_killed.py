"""Servers and clients that are killed: nothing that was acknowledged is lost, and a key has one answer."""

from __future__ import annotations

import hashlib
import http.client
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.server.key_client import send
from tests.server.running import Running, new_log, start

import everlog
from everlog.server.callers.tokens import Tokens

LINE = re.compile(r"(\d+) (\d+) ([0-9a-f]{64})\n")
UNLIMITED = {"EVERLOG_REQUESTS_PER_SECOND": "0"}


class Restarted:
    """A server that is killed and started again, always at the same port and with the same token."""

    def __init__(self, log: str) -> None:
        self.log = log
        self.port = free_port()
        with everlog.open(log) as opened:
            self.token = Tokens(opened).new("load", actor="service:load")
        self.kills = 0
        self._running = self._start()

    def kill_and_start(self) -> None:
        self.close()
        self.kills += 1
        self._running = self._start()

    def close(self) -> None:
        self._running.kill()
        for pipe in (self._running.process.stdout, self._running.process.stderr):
            if pipe is not None:
                pipe.close()

    def _start(self) -> Running:
        return start(self.log, "--port", str(self.port), environment=UNLIMITED)


@contextmanager
def restarted(log: str) -> Iterator[Restarted]:
    server = Restarted(log)
    try:
        yield server
    finally:
        server.close()


def free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@pytest.mark.parametrize("kind", ["sqlite", "jsonl", "segments", "postgres"])
def test_a_killed_server_loses_nothing_that_it_acknowledged(
    tmp_path: Path, kind: str, full: bool, request: pytest.FixtureRequest
) -> None:
    kills = 60 if full else 4 if kind == "sqlite" else 2
    if kind == "postgres":
        log = request.getfixturevalue("postgres_url")
        everlog.open(log, actor="user:host").close()
    else:
        log = new_log(tmp_path, kind)
    answers: dict[int, set[bytes]] = {}
    stop, chosen = threading.Event(), random.Random(7)
    with restarted(log) as server:
        threads = [threading.Thread(target=load, args=(server, n, 4, answers, stop)) for n in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(kills):
                time.sleep(chosen.uniform(0.1, 0.6))
                server.kill_and_start()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        print(f"{kind}: {server.kills} kills, {len(answers)} acknowledged")
        assert server.kills == kills
        assert len(answers) > kills
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        for n in list(answers):
            status, body = send(connection, server.token, n)
            assert status == 201
            answers[n].add(body)
        connection.close()
    assert [n for n, bodies in answers.items() if len(bodies) != 1] == []
    with everlog.open(log) as opened:
        recorded = [record.event.payload["text"] for record in opened.read()]
        assert sorted(recorded) == sorted(f"text {n}" for n in answers)
        assert opened.verify().ok


def load(server: Restarted, n: int, step: int, answers: dict[int, set[bytes]], stop: threading.Event) -> None:
    """Send keyed appends, each until it is answered."""
    connection: http.client.HTTPConnection | None = None
    while not stop.is_set():
        while True:
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
                status, body = send(connection, server.token, n)
                break
            except (OSError, http.client.HTTPException):
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(0.02)
        assert status == 201, body
        answers[n] = {body}
        n += step
    if connection is not None:
        connection.close()


def test_keys_from_many_killed_clients_make_one_event_and_one_answer_each(tmp_path: Path, full: bool) -> None:
    keys, clients, kills = (1000, 16, 24) if full else (60, 4, 6)
    log = new_log(tmp_path)
    chosen = random.Random(11)
    files = [tmp_path / f"client-{n}.txt" for n in range(clients)]
    with restarted(log) as server:

        def client(n: int) -> subprocess.Popen[bytes]:
            given = [str(server.port), server.token, str(keys), str(chosen.random())[2:], str(files[n])]
            return subprocess.Popen([sys.executable, "-m", "tests.server.key_client", *given])

        processes = [client(n) for n in range(clients)]
        try:
            for _ in range(kills):
                time.sleep(chosen.uniform(0.1, 0.5))
                victim = chosen.randrange(clients)
                processes[victim].kill()
                processes[victim].wait()
                processes[victim] = client(victim)
                if chosen.random() < 0.6:
                    server.kill_and_start()
            assert [process.wait(timeout=300) for process in processes] == [0] * clients
        finally:
            for process in processes:
                process.kill()
                process.wait()
        assert server.kills > 0
    with everlog.open(log) as opened:
        recorded = {record.event.idempotency_key: record for record in opened.read()}
        assert opened.head() == len(recorded) == keys
        assert opened.verify().ok
    lines = [found for file in files for found in LINE.findall(file.read_text(encoding="utf-8"))]
    assert {status for _, status, _ in lines} == {"201"}
    assert len({(n, digest) for n, _, digest in lines}) == keys
    assert len({n for n, _, _ in lines}) == keys
    assert len(lines) >= keys * clients
    assert hashlib.sha256(b"").hexdigest() not in {digest for _, _, digest in lines}
