"""Many processes on one log: all may write, or only one (G3, G4, G13, R10, R11)."""

from __future__ import annotations

import signal
import tempfile
import time
from itertools import groupby
from pathlib import Path

from tests.crash.ledger import Ledger
from tests.crash.rows import Row, Skip
from tests.crash.victims import FAILED, Nursery
from tests.crash.writer import events_in

import everlog
from everlog.demo.postgres_server import NoServer, start_server

PROCESSES = 8
REFUSED_WITHIN_S = 1.5  # the store gives up after 0.8 s; the rest is for a busy machine


def write_at_once(row: Row, *, appends: int) -> None:
    """Eight processes append as fast as they can; afterwards there is no gap, no duplicate and no reorder."""
    if row.subject == "postgres":
        try:
            server = start_server()
        except NoServer as error:
            raise Skip(f"no PostgreSQL: {error}") from error
        with server:
            _write_at_once(row, f"{server.url}&schema=log", appends)
        return
    with tempfile.TemporaryDirectory(prefix="everlog-processes-") as folder:
        _write_at_once(row, f"{row.subject}:{folder}/log", appends)


def _write_at_once(row: Row, url: str, appends: int) -> None:
    everlog.open(url).close()
    ledger = Ledger(url)
    with Nursery() as nursery:
        victims = [nursery.start(url, count=appends, name=f"w{number}") for number in range(PROCESSES)]
        for victim in victims:
            output = victim.wait()
            own = [int(line.split()[0]) for line in output.splitlines() if line[:1].isdigit()]
            if own != sorted(own):
                row.changed("one process's appends were reordered")
            ledger.take(output, row)
    for failure in ledger.failures:
        row.broken(failure)
    expected = PROCESSES * events_in(appends)
    row.count = len(ledger.acknowledged)
    if row.count != expected:
        row.lost(f"{row.count} acknowledgements in place of {expected}")
    ledger.judge(row, unacknowledged_max=0, when="afterwards", append=False)
    with everlog.open(url, create=False) as log:
        _require_order(row, list(log.read()), expected)


def _require_order(row: Row, records: list[everlog.Recorded], expected: int) -> None:
    wanted = list(range(1, expected + 1))
    if [recorded.event.lamport for recorded in records] != wanted:
        row.changed("clock values are missing, repeated or out of order")
    if [recorded.event.origin_seq for recorded in records] != wanted:
        row.changed("the origin's numbers are missing, repeated or out of order")
    by_stream = sorted(records, key=lambda recorded: (recorded.event.stream, recorded.position))
    for stream, history in groupby(by_stream, key=lambda recorded: recorded.event.stream):
        sequences = [recorded.sequence for recorded in history]
        if sequences != list(range(1, len(sequences) + 1)):
            row.changed(f"sequences of {stream} are missing, repeated or out of order")


def refuse_second_writers(row: Row, *, rounds: int) -> None:
    """A segments log has one writer: a second one is refused soon, with the name of the first, who may even sleep."""
    with tempfile.TemporaryDirectory(prefix="everlog-second-") as folder, Nursery() as nursery:
        for number in range(rounds):
            row.count += 1
            ledger = Ledger(f"segments:{folder}/log{number}")
            first = nursery.start(ledger.url, name="first")
            output = first.watch(5, until_bytes=200)
            first.signal(signal.SIGSTOP)  # with the lock in its hand, perhaps in the midst of a write
            started = time.monotonic()
            second = nursery.start(ledger.url, count=1, name="second").wait()
            waited = time.monotonic() - started
            if FAILED + b"Busy" not in second or str(first.pid).encode() not in second:
                row.changed(f"round {number}: the second writer was not refused by name: {second!r}")
            if waited > REFUSED_WITHIN_S:
                row.broken(f"round {number}: the refusal took {waited:.1f} s")
            first.signal(signal.SIGCONT)
            output += first.watch(0.02)
            ledger.take(output + first.kill(), row)
            ledger.judge(row, unacknowledged_max=3, when=f"round {number}")


def wake_replaced_writers(row: Row, *, rounds: int) -> None:
    """A writer sleeps, its lock file is taken away and another one writes: woken, it acknowledges nothing more.

    The kernel gives a lock back only when its holder dies, so that a writer is replaced only if somebody removes the
    lock: as a cleaning script does, or a move to another machine. It sleeps between two writes here; in the midst of
    one nothing but the lock keeps it from writing where the other has written.
    """
    with tempfile.TemporaryDirectory(prefix="everlog-replaced-") as folder, Nursery() as nursery:
        for number in range(rounds):
            row.count += 1
            path = Path(folder) / f"log{number}"
            ledger = Ledger(f"segments:{path}")
            old = nursery.start(ledger.url, name="old", stop_after=1 + number % 7)
            ledger.take(old.await_stop(), row)
            for left in path.glob("**/lock*"):
                left.unlink()
            ledger.take(nursery.start(ledger.url, count=5, name="new").wait(), row)
            before = len(ledger.acknowledged)
            old.signal(signal.SIGCONT)
            stale = old.watch(0.1) + old.kill()
            if ledger.take(stale, row):
                row.changed(
                    f"round {number}: the woken writer acknowledged {len(ledger.acknowledged) - before} events"
                )
            ledger.judge(row, unacknowledged_max=3, when=f"round {number}")
