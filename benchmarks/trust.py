"""What signatures, proofs and exchange cost: `everlog bench trust`, or `python -m benchmarks.trust`.

A part is a function that measures one thing and returns rows; `PARTS` lists them. Times that depend on a disk are
medians of some rounds.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.bench.directory import choose_directory
from benchmarks.rows import Row as Row
from benchmarks.rows import Setup as Setup
from benchmarks.sealing import measure as sealing
from benchmarks.signing import measure as signing
from benchmarks.sync_exchange import exchange

import everlog
from everlog.application.trust.checkpoints import make_checkpoint
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.trust.keys import PrivateKey

STORES = ("sqlite", "segments", "jsonl")
CHECKPOINT_MS, PROOF_P50_MS, PROOF_P99_MS = 50.0, 1.0, 3.0


def proofs(setup: Setup) -> Iterator[Row]:
    """The tree of a log in tiles: the first build, checkpoints, and proofs at one million events."""
    events, new, asked = (20_000, 2_000, 200) if setup.quick else (1_000_000, 10_000, 2_000)
    key = PrivateKey.new()
    for store in STORES:
        setup.progress(f"proofs: filling a log in {store} with {events:,} events")
        with everlog.open(f"{store}:{setup.directory / f'proofs-{store}'}", actor="service:bench") as log:
            _fill(log, events)
            took = _timed(log.tree.head)
            yield Row("build the tree", store, took * 1e6 / events, "µs per event", note=f"{events:,} events")
            setup.progress(f"proofs: checkpoints and proofs in {store}")
            times = []
            for _ in range(setup.rounds):
                _fill(log, new)
                times.append(_timed(partial(make_checkpoint, log, key)) * 1000)
            yield Row(f"checkpoint after {new:,} events", store, median(times), "ms", CHECKPOINT_MS)
            size = log.tree.head().size
            places = random.Random(7).choices(range(1, size), k=asked)
            for name, ask in (("inclusion proof", log.tree.inclusion), ("consistency proof", log.tree.consistency)):
                found = sorted(_timed(partial(ask, place, size)) * 1000 for place in places)
                note = f"{size:,} events"
                yield Row(f"{name}, p50", store, found[len(found) // 2], "ms", PROOF_P50_MS, note=note)
                yield Row(f"{name}, p99", store, found[len(found) * 99 // 100], "ms", PROOF_P99_MS, note=note)


def _fill(log: Log, events: int, *, at_once: int = 1000) -> None:
    for first in range(0, events, at_once):
        numbers = range(first, min(first + at_once, events))
        log.append_batch(
            [Draft("note.added", f"note/{n % 500}", {"text": f"note number {n}", "topic": "x" * 80}) for n in numbers]
        )


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


PARTS: tuple[Callable[[Setup], Iterator[Row]], ...] = (proofs, exchange, sealing, signing)


def run_trust(
    *,
    rounds: int = 5,
    quick: bool = False,
    directory: Path | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Measure every part, in a temporary directory on a disk."""
    with tempfile.TemporaryDirectory(prefix="everlog-bench-", dir=choose_directory(directory)) as made:
        setup = Setup(Path(made), rounds, quick, progress)
        return [row for part in PARTS for row in part(setup)]


if __name__ == "__main__":
    for one in run_trust(progress=print):
        print(f"{one.name:32} {one.store:9} {one.value:10.3f} {one.unit:14} {one.must or '':6} {one.met} {one.note}")
