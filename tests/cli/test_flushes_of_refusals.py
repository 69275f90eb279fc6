"""A command that is refused and writes nothing else makes no flush, on any store that is a file."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Result, Run

STORES = {"sqlite": "sqlite:log.db", "jsonl": "jsonl:events", "segments": "segments:data"}

REFUSED = [
    ("append", "no.such", "--stream", "note/1"),
    ("append", "note.added", "--stream", "note/1", "text=hi", "--expect", "9"),
    ("append", "note.added", "--stream", "note/1", "text=hi", "--expect", "9", "--key", "k"),
    ("wp", "move", "WP01", "done"),
    ("wp", "move", "WP01", "done", "--key", "k"),
    ("issue", "create", "a bug"),
    ("issue", "create", "a bug", "--key", "k"),
]

KILLED = """
import os, signal
from everlog import wiring
from pathlib import Path
wiring.open_folder(Path(".everlog")).append("note.added", stream="note/1", payload={"text": "x"})
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(params=sorted(STORES))
def log(request: pytest.FixtureRequest, everlog: Run) -> Run:
    """A log with a work package and an issue, whose views are up to date."""
    for command in (
        ("init", "--store", STORES[request.param]),
        ("append", "note.added", "--stream", "note/1", "text=hi"),
        ("wp", "create", "WP01", "a package"),
        ("issue", "create", "a bug"),
        ("issue", "list"),
        ("wp", "board"),
    ):
        done(everlog, *command)
    done(everlog, "issue", "create", "a bug", code=5)  # keeps the view that it decides by
    return everlog


def done(everlog: Run, *arguments: str, code: int = 0) -> Result:
    found = everlog(*arguments)
    assert found.code == code, found.err
    return found


def flushes(place: Path, *arguments: str) -> list[str]:
    """The flushes that a refused command makes, as a process of its own."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("there is no strace here: apt-get install strace")
    trace = place / "trace"
    calls = "trace=fsync,fdatasync,sync_file_range,syncfs,sync,msync"
    tracer = [strace, "-f", "-qq", "-y", "-e", calls, "-o", str(trace)]
    command = [*tracer, sys.executable, "-m", "everlog", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr or "PTRACE" in done.stderr:
        pytest.skip(f"strace cannot trace here: {done.stderr.strip()}")
    assert done.returncode in (3, 5), done.stderr
    return re.findall(r"(\w*sync\w*\(.*)", trace.read_text())


def test_a_refused_command_makes_no_flush_and_is_recorded(log: Run, place: Path) -> None:
    for command in REFUSED:
        assert flushes(place, *command) == [], command
    assert len(done(log, "errors").rows) == len(REFUSED) + 1
    done(log, "append", "note.added", "--stream", "note/1", "text=hi")
    assert len(done(log, "errors").rows) == len(REFUSED) + 1
    assert done(log, "verify").err == ""
    assert list(place.rglob("*refusals*")) == []


@pytest.mark.usefixtures("log")
def test_the_flush_of_a_write_is_seen(place: Path) -> None:
    with pytest.raises(AssertionError):
        flushes(place, "append", "note.added", "--stream", "note/1", "text=hi")
    assert "sync" in (place / "trace").read_text()


def test_it_does_not_flush_for_a_writer_that_was_killed(everlog: Run, place: Path) -> None:
    done(everlog, "init", "--store", STORES["sqlite"])
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=place, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = (place / ".everlog" / "log.db-wal").read_bytes()
    assert left
    for command in REFUSED[:3]:
        assert flushes(place, *command) == [], command
    assert (place / ".everlog" / "log.db-wal").read_bytes() == left
    done(everlog, "append", "note.added", "--stream", "note/1", "text=hi")
    assert done(everlog, "verify").err == ""


def test_errors_and_doctor_count_what_was_damaged(everlog: Run, place: Path) -> None:
    done(everlog, "init", "--store", STORES["sqlite"])
    for _ in range(2):
        done(everlog, *REFUSED[0], code=3)
    file = place / ".everlog" / "log.db-refusals"
    file.write_bytes(file.read_bytes()[:-9])
    for _ in range(2):
        found = done(everlog, "errors")
        assert len(found.rows) == 1
        assert "damaged what was kept: 1 refusal" in found.err
        assert "1 in the last day; left out because they were damaged: 1" in everlog("doctor").out
        done(everlog, "append", "note.added", "--stream", "note/1", "text=hi")
        assert not file.exists()
