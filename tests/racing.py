"""Processes that run the same command line at the same moment, each with a handle of its own on the log."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NamedTuple, Self

from everlog.programs import GROUPS

_START_S = 60
_ROUND_S = 120


class Answered(NamedTuple):
    code: int
    out: str
    err: str


class Racers:
    """`count` processes in a folder. They stay for many rounds, so that a round costs no start of Python.

    They are forked from a process that has imported the command line and has nothing open.
    """

    def __init__(self, place: Path, count: int) -> None:
        context: Any = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["everlog.cli.main"])
        self._barrier = context.Barrier(count)
        self._ends: list[Connection] = []
        self._processes = []
        environment = {**os.environ, "EVERLOG_PROGRAMS": ",".join(GROUPS)}
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_run, args=(there, self._barrier, str(place), environment), daemon=True)
            process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def race(self, *arguments: str) -> list[Answered]:
        """What each process answers to the same command line."""
        return self.race_each([arguments] * len(self._ends))

    def race_each(self, commands: Sequence[Sequence[str]]) -> list[Answered]:
        """What each process answers to a command line of its own, all at the same moment."""
        for end, command in zip(self._ends, commands, strict=True):
            end.send(list(command))
        answers = []
        for end in self._ends:
            if not end.poll(_ROUND_S):
                raise TimeoutError(f"no answer to {commands[0]} in {_ROUND_S} s")
            answers.append(Answered(*end.recv()))
        return answers

    def alone(self, *arguments: str) -> Answered:
        """What one process answers while the others wait."""
        self._ends[0].send([None, *arguments])
        if not self._ends[0].poll(_ROUND_S):
            raise TimeoutError(f"no answer to {arguments} in {_ROUND_S} s")
        return Answered(*self._ends[0].recv())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(10)
            if process.is_alive():
                process.terminate()


def _run(end: Connection, barrier: Barrier, place: str, environ: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environ)  # of the test, not of the one that the server of forks was started by
    os.chdir(place)
    from everlog.cli.main import main

    while True:
        try:
            command = end.recv()
        except EOFError:
            return
        if command[0] is None:
            command = command[1:]
        else:
            barrier.wait(_START_S)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(command)
        end.send((code, out.getvalue(), err.getvalue()))
