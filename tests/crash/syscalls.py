"""System calls that fail, one at a time, in a real process: the n-th write, flush, rename, open or truncate (R5).

strace attaches to a victim that waits, injects an error into one call of it, and lets go. Whatever happens then, what
was acknowledged must be there afterwards, and the log must open and go on. A sweep goes up to the call that no longer
comes. The error is reported only, the kernel still has the data; `lost_flushes` is for a flush that loses it.

A short write comes from a limit on the size of files: the kernel then writes as much as fits, and refuses the rest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.crash.ledger import Ledger
from tests.crash.rows import Row, Skip
from tests.crash.victims import Nursery, Victim

import everlog
from everlog.errors import EverlogError

APPENDS = 6  # one of them a batch of three, twice: 10 events
ERRORS = ("EIO", "ENOSPC", "EINTR")
CALLS = ("pwrite64", "fdatasync", "fsync", "openat", "ftruncate", "rename", "write", "unlink", "mkdir")
_ATTACH_S = 20


def fail_calls(row: Row, *, runs: int) -> None:
    """Sweep every call and error, each n-th in turn, until `runs` were hit or none is left."""
    strace = shutil.which("strace")
    if strace is None:
        raise Skip("there is no strace here: apt-get install strace")
    refused = 0
    hits: dict[str, int] = {}
    with Nursery() as nursery, tempfile.TemporaryDirectory(prefix="everlog-syscalls-") as folder:
        for call, error, nth in _faults(hits):
            place = Path(folder) / f"{row.count}"
            place.mkdir()
            ledger = Ledger(f"{row.subject}:{place}/log")
            victim = nursery.start(ledger.url, count=APPENDS, name="w", wait=True)
            was_hit, output = _with_fault(strace, victim, place / "trace", f"{call}:error={error}:when={nth}")
            if was_hit:
                row.count += 1
                hits[call] = max(hits.get(call, 0), nth)
                refused += _judge(ledger, output, row, f"{error} from {call} {nth}")
            else:
                hits[f"{call} {error}"] = -1
            shutil.rmtree(place)
            if row.count >= runs:
                break
        for limit in range(64, 64 + 8 * 1000, 997):
            place = Path(folder) / f"limit{limit}"
            place.mkdir()
            ledger = Ledger(f"{row.subject}:{place}/log")
            victim = nursery.start(ledger.url, count=APPENDS, name="w", file_bytes_max=limit)
            row.count += 1
            refused += _judge(ledger, victim.wait(), row, f"files of at most {limit} bytes")
    row.remark = f"{refused} told to the caller; " + ", ".join(
        f"{call} 1-{nth}" for call, nth in hits.items() if nth > 0
    )


def _faults(hits: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    """All first calls, then all second ones, and so on; a call that does not come that often is left out."""
    for nth in range(1, 1000):
        went_on = False
        for call in CALLS:
            for error in ERRORS:
                if hits.get(f"{call} {error}") != -1:
                    went_on = True
                    yield call, error, nth
        if not went_on:
            return


def _with_fault(strace: str, victim: Victim, trace: Path, fault: str) -> tuple[bool, bytes]:
    """Let the victim go with one fault in it; whether it was hit, and what it said."""
    call = fault.partition(":")[0]
    command = [strace, "-f", "-qq", "-o", str(trace), "-e", f"trace={call}", "-e", f"inject={fault}"]
    tracer = subprocess.Popen([*command, "-p", str(victim.pid)], stderr=subprocess.PIPE)
    try:
        _await_tracer(victim.pid, tracer)
        victim.go()
        output = victim.wait()
    finally:
        tracer.wait(timeout=_ATTACH_S)
        assert tracer.stderr is not None
        tracer.stderr.close()
    return b"(INJECTED)" in trace.read_bytes(), output


def _await_tracer(pid: int, tracer: subprocess.Popen[bytes]) -> None:
    status = Path(f"/proc/{pid}/status")
    while f"TracerPid:\t{tracer.pid}\n" not in status.read_text():
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            os.kill(pid, 9)
            raise Skip(f"strace cannot attach here: {tracer.stderr.read().decode().strip()}")
    # It is seized; the options are set before it goes on.


def _judge(ledger: Ledger, output: bytes, row: Row, when: str) -> bool:
    ledger.take(output, row)
    if not ledger.began:
        try:
            everlog.open(ledger.url).close()  # it failed while it was made: made it must be now
        except (EverlogError, OSError) as error:
            row.broken(f"{when}: the log cannot be made any more: {error!r}")
            return True
    ledger.judge(row, unacknowledged_max=3, when=when)
    return bool(ledger.failures)
