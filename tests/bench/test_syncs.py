"""An acknowledgement means that the event is on the disk (G1): watched from outside, in the system calls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SYNCS = ROOT / "benchmarks" / "syncs.py"

# The same program on a connection that never flushes.
CARELESS = """
import runpy, sys
from everlog.stores.sqlite import connection

careful = connection.connect_writer

def connect_writer(path):
    writer = careful(path)
    writer.execute("PRAGMA synchronous = OFF")
    return writer

connection.connect_writer = connect_writer
runpy.run_path({workload!r}, run_name="__main__")
"""

# The same program, but the marker of an acknowledgement is written before the append.
HASTY = """
import runpy, sys
from everlog.log.log import Log
import os

append = Log.append

def hasty(self, *args, **named):
    number = int(named["key"].removeprefix("request-"))
    handle = next(fd for fd in range(3, 100) if os.path.exists(f"/proc/self/fd/{{fd}}")
                  and os.readlink(f"/proc/self/fd/{{fd}}").endswith("/acks"))
    os.write(handle, f"ack {{number}} {{number}}\\n".encode())
    return append(self, *args, **named)

Log.append = hasty
runpy.run_path({workload!r}, run_name="__main__")
"""


def watched(tmp_path: Path, acks: int, *, workload: str = "") -> tuple[int, list[dict[str, Any]]]:
    command = [sys.executable, str(SYNCS), "--acks", str(acks), "--directory", str(tmp_path)]
    if workload:
        script = tmp_path / "workload.py"
        script.write_text(workload.format(workload=str(ROOT / "benchmarks" / "sync_workload.py")))
        command += ["--workload", str(script)]
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    print(done.stdout, done.stderr)
    if done.stdout.startswith("skipped"):
        pytest.skip(done.stdout.strip())
    findings: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return done.returncode, findings


def test_no_append_is_acknowledged_before_its_flush(tmp_path: Path) -> None:
    status, findings = watched(tmp_path, 50)
    one, threads, batch = findings
    assert (one["acks"], threads["acks"], batch["acks"]) == (50, 48, 5)
    assert [finding["early"] for finding in findings] == [0, 0, 0]
    assert one["syncs_per_ack"] == 1.0
    assert batch["syncs_per_ack"] == 1.0
    assert threads["commit_syncs"] >= 1
    assert status == (0 if threads["holds"] else 1)


def test_a_store_that_does_not_flush_is_caught(tmp_path: Path) -> None:
    status, findings = watched(tmp_path, 16, workload=CARELESS)
    assert status == 1
    assert [finding["early"] for finding in findings] == [16, 16, 2]


def test_an_acknowledgement_that_comes_too_early_is_caught(tmp_path: Path) -> None:
    status, findings = watched(tmp_path, 16, workload=HASTY)
    assert status == 1
    assert findings[0]["early"] >= 16


def test_without_strace_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SYNCS)], capture_output=True, text=True, timeout=60, env={"PATH": str(tmp_path)}
    )
    assert done.returncode == 0
    assert done.stdout == "skipped: strace is not installed\n"
    assert shutil.which("strace", path=str(tmp_path)) is None
