"""The whole benchmark: everlog against the floors of the machine that it runs on.

Every figure is a ratio, because a disk's flush takes what it takes: a ratio of 0.6 says that the rules and the
store cost two thirds of a flush, on any disk.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from benchmarks.bench import floors
from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import RARE_EVERY, RARE_TYPE, Pool
from benchmarks.bench.floors import DiskFloor, RowsFloor
from benchmarks.bench.ours import BATCH, READ_STREAM, Ours, batches_in_memory
from benchmarks.bench.rounds import Contest, Job, Rounds, Sample, Spread, interleave, latency_ratio, ratio

ONE_WRITER = "one writer"
THREADS = "8 threads"
TASKS = "64 asyncio tasks"
BATCH_ONE_STREAM = "batch of 100, one stream"
BATCH_MANY_STREAMS = "batch of 100, 100 streams"
BATCH_ALL_NEW = "batch of 100, nothing repeats"
RULES = "batch of 100 in memory"
READ_ALL = "read everything"
READ_ONE_STREAM = "read a stream of 100"
READ_RARE_TYPE = "read a rare type"
VERIFY = "verify"
LATENCY = "one writer, median latency"


class Ratio(msgspec.Struct, frozen=True):
    """One figure: `value` times the floor, the median of the rounds; `low` and `high` are the extremes."""

    name: str
    value: float
    target: float | None
    unit: str
    ours: float
    floor: float
    note: str
    low: float = 0.0
    high: float = 0.0

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        return None if self.target is None else self.value >= self.target


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything a round does."""

    filled: int
    pool: int
    one_writer: int
    each_thread: int
    each_task: int
    batches: int
    in_memory: int
    reads: int


QUICK = Sizes(filled=2_100, pool=1_000, one_writer=100, each_thread=25, each_task=6, batches=5, in_memory=5, reads=3)
FULL = Sizes(
    filled=20_100, pool=10_000, one_writer=1_000, each_thread=250, each_task=60, batches=40, in_memory=40, reads=10
)


class _Measure(NamedTuple):
    name: str
    floor: Job
    ours: Job
    target: float | None
    note: str


def run_benchmark(
    *, rounds: int, quick: bool, directory: Path | None, progress: Callable[[str], None]
) -> list[Ratio]:
    """Measure on the disk below `directory` (the usual temporary directory if None); nothing is left there."""
    with arena(directory, QUICK if quick else FULL, progress) as measures:
        contests = [Contest(measure.name, {"floor": measure.floor, "ours": measure.ours}) for measure in measures]
        results = interleave(contests, rounds=rounds, progress=progress)
    figures = []
    for measure in measures:
        found = results[measure.name]
        figures.append(_figure(measure, found))
        if measure.name == ONE_WRITER:
            figures.append(_latency(found))
    return figures


@contextmanager
def arena(directory: Path | None, sizes: Sizes, progress: Callable[[str], None]) -> Iterator[list[_Measure]]:
    """The log and the floors, side by side in a directory of their own, until the measuring is over."""
    place = choose_directory(directory)
    with tempfile.TemporaryDirectory(prefix="everlog-bench-", dir=place) as name:
        here = Path(name)
        progress(f"filling a log with {sizes.filled:,} events in {place}")
        pool = Pool(sizes.pool)
        disk = DiskFloor(here / "floor")
        ours = Ours(here / "log.db", pool, filled=sizes.filled)
        filling = ours.filling()
        rows = RowsFloor(here / "rows.db", filling)
        # Without this every full collection would walk over the pool and look like a slow store.
        gc.collect()
        gc.freeze()
        try:
            yield _measures(sizes, pool, disk, rows, ours)
        finally:
            gc.unfreeze()
            rows.close()
            ours.close()
            disk.close()


def _measures(sizes: Sizes, pool: Pool, disk: DiskFloor, rows: RowsFloor, ours: Ours) -> list[_Measure]:
    sample = ours.filling()[: sizes.in_memory * BATCH]
    rare = (sizes.filled - BATCH) // RARE_EVERY

    def one_flush_each() -> Sample:
        return disk.writes(sizes.one_writer)

    def one_flush_per_batch() -> Sample:
        return disk.writes(sizes.batches, records_each=BATCH)

    return [
        _Measure(
            ONE_WRITER, one_flush_each, lambda: ours.one_writer(sizes.one_writer), 0.5, "a flush for every event"
        ),
        _Measure(THREADS, one_flush_each, lambda: ours.threads(8, sizes.each_thread), 1.2, "threads share flushes"),
        _Measure(TASKS, one_flush_each, lambda: ours.tasks(64, sizes.each_task), 5.0, "tasks share flushes"),
        _Measure(
            BATCH_ONE_STREAM,
            one_flush_per_batch,
            lambda: ours.batches(sizes.batches, one_stream=True),
            0.15,
            "floor: 100 records in one write and one flush",
        ),
        _Measure(
            BATCH_MANY_STREAMS,
            one_flush_per_batch,
            lambda: ours.batches(sizes.batches, one_stream=False),
            0.15,
            "floor: 100 records in one write and one flush",
        ),
        _Measure(
            BATCH_ALL_NEW,
            one_flush_per_batch,
            lambda: ours.batches_never_seen(sizes.batches),
            None,
            "new streams, actors and texts, umlauts, fractions; the others repeat themselves, as logs do",
        ),
        _Measure(
            RULES,
            lambda: floors.encode_and_hash(sample),
            lambda: batches_in_memory(pool, sizes.in_memory),
            None,
            "floor: encode and two SHA-256; what all rules cost without a disk",
        ),
        _Measure(
            READ_ALL,
            lambda: rows.read_all(sizes.filled),
            lambda: ours.read_all(sizes.filled),
            0.5,
            "floor: plain SQLite rows into Structs",
        ),
        _Measure(
            READ_ONE_STREAM,
            lambda: rows.read_stream(READ_STREAM, BATCH, times=sizes.reads * 5),
            lambda: ours.read_stream(BATCH, times=sizes.reads * 5),
            None,
            "floor: the same by an index",
        ),
        _Measure(
            READ_RARE_TYPE,
            lambda: rows.read_type(RARE_TYPE, rare, times=sizes.reads),
            lambda: ours.read_type(RARE_TYPE, rare, times=sizes.reads),
            None,
            f"one event in {RARE_EVERY}; floor: the same by an index of every event's type",
        ),
        _Measure(
            VERIFY,
            lambda: floors.decode_and_hash(sample),
            ours.verify,
            None,
            "floor: decode and two SHA-256, from memory",
        ),
    ]


def _figure(measure: _Measure, rounds: Rounds) -> Ratio:
    found = ratio(rounds, "ours", "floor")
    return _ratio(
        measure.name,
        found,
        measure.target,
        "events/s",
        median([samples["ours"].events_s for samples in rounds]),
        median([samples["floor"].events_s for samples in rounds]),
        measure.note,
    )


def _latency(rounds: Rounds) -> Ratio:
    return _ratio(
        LATENCY,
        latency_ratio(rounds, "ours", "floor"),
        None,
        "µs",
        median([samples["ours"].p50_us for samples in rounds]),
        median([samples["floor"].p50_us for samples in rounds]),
        "lower is better; at most 1.7 is the wish",
    )


def _ratio(name: str, found: Spread, target: float | None, unit: str, ours: float, floor: float, note: str) -> Ratio:
    return Ratio(name, found.middle, target, unit, ours, floor, note, low=found.low, high=found.high)
