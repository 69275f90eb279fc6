"""Upgrades that are killed at a step. One process per line of standard input: it upgrades, and dies at its step.

    in    {"url": "segments:log", "base": "/a/folder", "step": 12}
    out   the number of steps that were made; -1 if it was killed

A step is anything that changes a name or a file: create, write, flush, rename, link, remove, and every statement to a
database.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from tests.crash.power_cuts import cut_power

_EVENTS = frozenset(("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "shutil.rmtree"))
_CALLS = ("pwrite", "fsync", "fdatasync")


class Victims:
    """A process that starts the victims, so that each of them costs a fork only."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.upgrade.victims"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def upgrade(self, url: str, base: Path, *, kill_at: int = 0, cut: Path | None = None) -> int:
        """Upgrade in a process of its own. Return how many steps that took, or -1 if it was killed at its step. With
        `cut`, the power of the file system that is mounted there goes first."""
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        to.write(json.dumps({"url": url, "base": str(base), "step": kill_at, "cut": str(cut or "")}) + "\n")
        to.flush()
        return int(answers.readline())

    def close(self) -> None:
        self._process.communicate()


class _Steps:
    def __init__(self, kill_at: int, cut: str) -> None:
        self.made = 0
        self._kill_at = kill_at
        self._cut = cut

    def watch(self) -> None:
        """Count from now on, for as long as this process lives."""
        sys.addaudithook(self._saw)
        for name in _CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        sqlite3.connect = self._traced(sqlite3.connect)  # type: ignore[assignment]

    def _saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS or (event == "open" and arguments[2] & (os.O_CREAT | os.O_TRUNC)):
            self._step()

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any) -> Any:
            self._step()
            return call(*arguments)

        return counted

    def _traced(self, connect: Callable[..., sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
        def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **options)
            connection.set_trace_callback(lambda statement: self._step())
            return connection

        return traced

    def _step(self) -> None:
        self.made += 1
        if self.made == self._kill_at:
            if self._cut:
                cut_power(Path(self._cut))
            os.kill(os.getpid(), signal.SIGKILL)


def main(lines: IO[str]) -> None:
    from everlog.upgrading import upgrade

    for name in ("jsonl.carried", "jsonl.store", "segments.store", "sqlite.store"):
        import_module(f"everlog.stores.{name}")  # once, not in every victim

    while line := lines.readline():
        asked = json.loads(line)
        child = os.fork()
        if not child:
            steps = _Steps(asked["step"], asked["cut"])
            steps.watch()
            upgrade(asked["url"], base=Path(asked["base"]))
            sys.stdout.write(f"{steps.made}\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            assert os.WIFSIGNALED(status), status
            sys.stdout.write("-1\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.stdin)
