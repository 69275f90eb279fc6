"""A command that is refused and writes nothing else makes no flush, on any store that is a file."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log with a work package and an issue, whose views are up to date."""
    for command in (
        ("init", "--store", STORES[request.param]),
        ("append", "note.added", "--stream", "note/1", "text=hi"),
        ("wp", "create", "WP01", "a package"),
        ("issue", "create", "a bug"),
        ("issue", "list"),
        ("wp", "board"),
    ):
        everlog(tmp_path, *command, exit_code=0)
    everlog(tmp_path, "issue", "create", "a bug", exit_code=5)  # keeps the view that it decides by
    return tmp_path


def everlog(place: Path, *arguments: str, exit_code: int | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everlog", *arguments]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert exit_code is None or done.returncode == exit_code, done.stderr
    return done


def flushes(place: Path, *arguments: str) -> list[str]:
    """The flushes that a refused command makes."""
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


def test_a_refused_command_makes_no_flush_and_is_recorded(place: Path) -> None:
    for command in REFUSED:
        assert flushes(place, *command) == [], command
    assert len(everlog(place, "errors", exit_code=0).stdout.splitlines()) == len(REFUSED) + 1
    everlog(place, "append", "note.added", "--stream", "note/1", "text=hi", exit_code=0)
    assert len(everlog(place, "errors", exit_code=0).stdout.splitlines()) == len(REFUSED) + 1
    assert everlog(place, "verify", exit_code=0).stderr == ""
    assert list(place.rglob("*refusals*")) == []


def test_the_flush_of_a_write_is_seen(place: Path) -> None:
    with pytest.raises(AssertionError):
        flushes(place, "append", "note.added", "--stream", "note/1", "text=hi")
    assert "sync" in (place / "trace").read_text()


def test_it_does_not_flush_for_a_writer_that_was_killed(tmp_path: Path) -> None:
    everlog(tmp_path, "init", "--store", STORES["sqlite"], exit_code=0)
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = (tmp_path / ".everlog" / "log.db-wal").read_bytes()
    assert left
    for command in REFUSED[:3]:
        assert flushes(tmp_path, *command) == [], command
    assert (tmp_path / ".everlog" / "log.db-wal").read_bytes() == left
    everlog(tmp_path, "append", "note.added", "--stream", "note/1", "text=hi", exit_code=0)
    assert everlog(tmp_path, "verify", exit_code=0).stderr == ""


def test_errors_and_doctor_count_what_was_damaged(tmp_path: Path) -> None:
    everlog(tmp_path, "init", "--store", STORES["sqlite"], exit_code=0)
    for _ in range(2):
        everlog(tmp_path, *REFUSED[0], exit_code=3)
    file = tmp_path / ".everlog" / "log.db-refusals"
    file.write_bytes(file.read_bytes()[:-9])
    for _ in range(2):
        found = everlog(tmp_path, "errors", exit_code=0)
        assert len(found.stdout.splitlines()) == 1
        assert "damaged what was kept: 1 refusal" in found.stderr
        assert "1 in the last day; left out because they were damaged: 1" in everlog(tmp_path, "doctor").stdout
        everlog(tmp_path, "append", "note.added", "--stream", "note/1", "text=hi", exit_code=0)
        assert not file.exists()
