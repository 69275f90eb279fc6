"""Servers for tests of the client: in a thread of this process, or as a process that can be killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from tests.server.serving import Serving

import everlog
from everlog.server.app import App
from everlog.server.routes.route import Role

AnyLog = everlog.Log | everlog.RemoteLog

catalog = everlog.Catalog()


@catalog.event("expense.filed")
class Filed(msgspec.Struct):
    """Somebody asks for money back."""

    amount: float
    note: str = ""


class Served:
    """A log behind a server in this process."""

    def __init__(self, log: everlog.Log, app: App, url: str) -> None:
        self.log = log
        self.app = app
        self.url = url

    def token(self, name: str = "ada", *, actor: str = "user:ada", role: Role = "admin", within: str = "") -> str:
        return self.app.services["log"].tokens.new(name, actor=actor, role=role, within=within)


@contextmanager
def served(log: everlog.Log) -> Iterator[Served]:
    """Serve a log on a free port of the loopback address."""
    with Serving(log) as serving:
        yield Served(log, serving.app, f"http://127.0.0.1:{serving.port}")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Process:
    """`everlog serve` as a process, which can be killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._running: subprocess.Popen[str] | None = None

    def start(self) -> None:
        store = f"sqlite:{self.folder / 'log.db'}"
        command = [sys.executable, "-m", "everlog", "serve", "--log", store, "--port", str(self.port), "--json"]
        self._running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        assert self._running.stdout is not None
        assert json.loads(self._running.stdout.readline())["url"] == self.url

    def kill(self) -> None:
        if self._running is not None:
            self._running.send_signal(signal.SIGKILL)
            self._running.wait()
            if self._running.stdout is not None:
                self._running.stdout.close()
            self._running = None
