"""A server as a process of its own, on a free port of this machine, and plain sockets to reach it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

START_S = 60.0
NOTE = {"type": "note.added", "stream": "note/1", "payload": {"text": "hello"}}


class Running:
    """A server that answers."""

    def __init__(self, process: subprocess.Popen[str], url: str, token: str, log: str) -> None:
        self.process = process
        self.url = url
        self.token = token
        self.log = log
        self.port = int(url.rpartition(":")[2])

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def client(self, **given: Any) -> httpx2.Client:
        """Return a client with the server's own token, which the caller closes."""
        return httpx2.Client(base_url=self.url, headers=self.headers, timeout=30.0, trust_env=False, **given)

    def raw(self, data: bytes, *, wait_s: float = 20.0) -> bytes:
        """Send bytes on a connection of their own, and return everything until the server closes it."""
        with self.connect(wait_s=wait_s) as own:
            own.sendall(data)
            return read_all(own)

    def connect(self, *, wait_s: float = 20.0, receive_bytes: int = 0) -> socket.socket:
        own = socket.socket()
        if receive_bytes:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        own.settimeout(wait_s)
        own.connect(("127.0.0.1", self.port))
        return own

    def metrics(self) -> dict[str, float]:
        """Return every metric, by its name with its labels."""
        answer = httpx2.get(f"{self.url}/metrics", headers=self.headers, timeout=30.0, trust_env=False)
        assert answer.status_code == 200, answer.text
        found = re.findall(r"^([a-z]\S*) (\S+)$", answer.text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def terminate(self) -> float:
        """Ask the server to stop, and return how many seconds that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        return time.monotonic() - began

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=30)


def read_all(own: socket.socket) -> bytes:
    """Return everything that comes until the other side closes, or resets, the connection."""
    pieces = []
    try:
        while piece := own.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass  # what came before it counts
    return b"".join(pieces)


def request(method: str, path: str, *headers: str, body: bytes = b"", host: str = "127.0.0.1") -> bytes:
    """Return the bytes of a request as they are given, well-formed or not."""
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host else []), *headers]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def problem_in(answer: bytes) -> tuple[int, str]:
    """Return the status and the code of an answer that reports a problem."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head.lower(), answer
    return int(head.split()[1]), json.loads(body)["code"]


def start(log: str, *options: str, environment: Mapping[str, str] | None = None) -> Running:
    """Start a server, and return when it answers. The caller stops it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "everlog", "serve", "--log", log, "--port", "0", "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EVERLOG_ACTOR": "user:host", **(environment or {})},
    )
    assert process.stdout is not None
    line = process.stdout.readline()  # it ends with the process, if that fails
    if not line:
        _, errors = process.communicate(timeout=START_S)
        raise AssertionError(f"the server did not start: {errors}")
    found = json.loads(line)
    return Running(process, found["url"], found["token"], log)


@contextmanager
def running(log: str, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run a server for as long as the context lasts."""
    server = start(log, *options, environment=environment)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()
        for pipe in (server.process.stdout, server.process.stderr):
            if pipe is not None:
                pipe.close()


def new_log(folder: Path, kind: str = "sqlite") -> str:
    """Make a log, and return its URL."""
    import everlog

    url = {"sqlite": f"sqlite:{folder}/log.db", "jsonl": f"jsonl:{folder}/log", "segments": f"segments:{folder}/log"}
    everlog.open(url[kind], actor="user:host").close()
    return url[kind]
