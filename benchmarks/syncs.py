"""Does an acknowledgement mean that the event is on the disk? Watched from outside, with strace.

    python -m benchmarks.syncs [--acks 200]

A child process appends and writes a marker for every acknowledgement. In its system calls we look for the write to
SQLite's write-ahead log (WAL) that holds the event, for the commit frame of that transaction, for a flush of the WAL
that began after it and succeeded, and only then for the marker. One acknowledgement without that is a failure.

Flushes are counted too: one for every append of a lone writer and for every batch, fewer when threads share them.
Those that a checkpoint makes (it moves the WAL into the database file) are counted apart.
Prints a table and, as its last line, JSON. Ends with 1 if anything does not hold, and says so if it cannot look.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

WORKLOAD = Path(__file__).with_name("sync_workload.py")
FRAME_HEADER_BYTES = 24
_CALL = re.compile(r"(\d+) +(\w+)\((\d+)<([^>]*)>(.*)")
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>.*= (-?\d+)")
_RESULT = re.compile(r"\) += (-?\d+)")
_DATA = re.compile(r'^, "((?:\\x[0-9a-f]{2})*)"')
_TOKEN = re.compile(rb"token-(\d{6})")


class Call(NamedTuple):
    """A finished system call. `began` and `ended` are lines of the trace, which is in the order of time."""

    name: str
    path: str
    data: bytes
    result: int
    began: int
    ended: int


class Finding(NamedTuple):
    mode: str
    acks: int
    commit_syncs: int
    checkpoint_syncs: int
    early: int  # acknowledgements that no flush of their commit came before

    @property
    def syncs_per_ack(self) -> float:
        return self.commit_syncs / self.acks if self.acks else 0.0

    @property
    def holds(self) -> bool:
        if self.early or not self.acks:
            return False
        return self.syncs_per_ack <= 0.4 if self.mode == "threads" else self.syncs_per_ack == 1.0


def why_not() -> str:
    """Why nothing can be watched here; "" when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"strace may not watch a process here: {tried.stderr.strip()[:200]}"
    return ""


def watch(mode: str, acks: int, *, workload: Path = WORKLOAD, directory: Path | None = None) -> Finding:
    """Run the workload under strace and judge its trace."""
    with tempfile.TemporaryDirectory(prefix="everlog-syncs-", dir=directory) as name:
        trace = Path(name) / "trace"
        watched = ["strace", "-f", "-y", "-xx", "-s", "8192", "-e", "trace=fsync,fdatasync,write,pwrite64"]
        child = [sys.executable, str(workload), name, mode, str(acks)]
        # The workload imports from `benchmarks`, and a script finds only what is beside it.
        paths = os.pathsep.join(filter(None, [str(WORKLOAD.parents[1]), os.environ.get("PYTHONPATH", "")]))
        subprocess.run([*watched, "-o", str(trace), *child], check=True, env={**os.environ, "PYTHONPATH": paths})
        with trace.open(encoding="ascii") as lines:
            return judge(mode, calls(lines))


def calls(lines: Iterable[str]) -> list[Call]:
    """The calls of a trace. One that another thread's call interrupts is printed in two lines."""
    found: list[Call] = []
    open_calls: dict[str, tuple[int, re.Match[str]]] = {}
    for number, line in enumerate(lines):
        if begun := _CALL.match(line):
            if "<unfinished ...>" in line:
                open_calls[begun[1]] = (number, begun)
            elif result := _RESULT.search(begun[5]):
                found.append(_call(begun, int(result[1]), number, number))
        elif (resumed := _RESUMED.match(line)) and resumed[1] in open_calls:
            began, begun = open_calls.pop(resumed[1])
            found.append(_call(begun, int(resumed[2]), began, number))
    return sorted(found, key=lambda call: call.began)


def judge(mode: str, trace: list[Call]) -> Finding:
    """What the calls say: which token was written, committed and flushed when, and acknowledged when."""
    committed_at: dict[int, int] = {}  # the line on which the commit frame of a token's transaction was written
    pending: list[int] = []  # tokens of the transaction that is being written
    last_frame = last_commit = False  # whether the frame, and with it the transaction, ends with the next page
    flushes: list[Call] = []
    commits_unflushed = commit_syncs = checkpoint_syncs = 0
    acks: list[tuple[int, int, int]] = []
    for call in trace:
        if call.path.endswith("/acks"):
            _, first, last = call.data.split()
            acks.append((int(first), int(last), call.began))
        elif call.path.endswith("/log.db") and call.name in ("fsync", "fdatasync"):
            checkpoint_syncs += 1
        elif not call.path.endswith("/log.db-wal"):
            continue
        elif call.name in ("fsync", "fdatasync"):
            if call.result == 0:
                flushes.append(call)
            # A flush with no commit since the last one belongs to a checkpoint, or to a new WAL's own header.
            commit_syncs += bool(commits_unflushed)
            checkpoint_syncs += not commits_unflushed
            commits_unflushed = 0
        elif len(call.data) == FRAME_HEADER_BYTES:
            # Bytes 4 to 8 of a frame's header are the size of the database if the frame ends a transaction, else 0.
            last_frame, last_commit = True, call.data[4:8] != b"\0\0\0\0"
        elif last_frame:
            pending += [int(token) for token in _TOKEN.findall(call.data)]
            if last_commit:
                for token in pending:
                    committed_at.setdefault(token, call.ended)  # its page may be written again by later commits
                pending = []
                commits_unflushed += 1
            last_frame = last_commit = False
    early = sum(not _flushed_before(ack, committed_at, flushes) for ack in acks)
    return Finding(mode, len(acks), commit_syncs, checkpoint_syncs, early)


def _flushed_before(ack: tuple[int, int, int], committed_at: dict[int, int], flushes: list[Call]) -> bool:
    first, last, acknowledged = ack
    for token in range(first, last + 1):
        written = committed_at.get(token)
        if written is None:
            return False
        if not any(written < flush.began and flush.ended < acknowledged for flush in flushes):
            return False
    return True


def _call(begun: re.Match[str], result: int, began: int, ended: int) -> Call:
    data = _DATA.match(begun[5])
    return Call(begun[2], _unhex(begun[4]).decode(), _unhex(data[1]) if data else b"", result, began, ended)


def _unhex(text: str) -> bytes:
    """Bytes as strace -xx prints them, paths included."""
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()


def main() -> int:
    parser = argparse.ArgumentParser(description="Check with strace that no append is acknowledged before its flush.")
    parser.add_argument("--acks", type=int, default=200, help="acknowledgements to watch for in each mode")
    parser.add_argument("--workload", type=Path, default=WORKLOAD, help="the program to watch")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; on a disk")
    arguments = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    findings = []
    print(f"{'mode':8} {'acks':>6} {'commit syncs':>13} {'per ack':>8} {'checkpoint syncs':>17} {'acked early':>12}")
    for mode, acks in (("one", arguments.acks), ("threads", arguments.acks), ("batch", max(arguments.acks // 10, 2))):
        finding = watch(mode, acks, workload=arguments.workload, directory=arguments.directory)
        findings.append(finding)
        print(
            f"{mode:8} {finding.acks:6} {finding.commit_syncs:13} {finding.syncs_per_ack:8.2f}"
            f" {finding.checkpoint_syncs:17} {finding.early:12}  {'holds' if finding.holds else 'DOES NOT HOLD'}"
        )
    facts = [
        {**finding._asdict(), "syncs_per_ack": finding.syncs_per_ack, "holds": finding.holds} for finding in findings
    ]
    print(json.dumps(facts))
    return 0 if all(finding.holds for finding in findings) else 1


if __name__ == "__main__":
    sys.exit(main())
