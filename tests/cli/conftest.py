"""The command line as a test runs it: in this process, in a folder of its own, with both streams caught."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everlog.cli.main import main
from everlog.programs import GROUPS

EVERY = ",".join(GROUPS)
"""The programs of everlog are on in these tests; tests/cli/programs/test_on.py is about where they are not."""

SOURCE = Path(__file__).resolve().parents[2] / "src"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """What was piped: one row a line, fields parted by tabs."""
        return [line.split("\t") for line in self.out.splitlines()]

    @property
    def data(self) -> Any:
        """The data of the JSON envelope, whose shape is checked on the way."""
        found = json.loads(self.out)
        assert list(found) == ["schema_version", "data", "next", "warnings"]
        assert found["schema_version"] == 1
        return found["data"]

    @property
    def next(self) -> Any:
        return json.loads(self.out)["next"]

    @property
    def error(self) -> dict[str, Any]:
        found = json.loads(self.err)
        assert list(found) == ["schema_version", "error"]
        error: dict[str, Any] = found["error"]
        assert list(error) == ["code", "message", "why", "hint", "details", "retryable", "request_id"]
        return error


Run = Callable[..., Result]


def clean_environment(home: Path) -> dict[str, str]:
    """This process's environment without anything that would steer everlog."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVERLOG_", "XDG_"))}
    for name in ("NO_COLOR", "COLUMNS"):
        kept.pop(name, None)
    return {**kept, "HOME": str(home), "PYTHONPATH": str(SOURCE), "TERM": "xterm", "EVERLOG_PROGRAMS": EVERY}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and an empty home."""
    home = tmp_path / "home"
    home.mkdir()
    for name in list(os.environ):
        if name.startswith(("EVERLOG_", "XDG_")) or name in ("NO_COLOR", "COLUMNS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("EVERLOG_PROGRAMS", EVERY)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.fixture
def everlog(place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str, stdin: bytes = b"") -> Result:
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(arguments)
        caught = capsys.readouterr()
        return Result(code, caught.out, caught.err)

    return run


@pytest.fixture
def log(everlog: Run) -> Run:
    """The command line in a folder with an empty log."""
    assert everlog("init").code == 0
    return everlog


@pytest.fixture
def notes(log: Run) -> Run:
    """The command line in a folder with five notes: four on note/1, one on note/2."""
    for number in range(1, 5):
        assert log("append", "note.added", "-s", "note/1", f"text=note {number}").code == 0
    assert log("append", "note.added", "-s", "note/2", "text=other", "--actor", "user:ada").code == 0
    return log
