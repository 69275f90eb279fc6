"""What only the segments store is measured for: rows 11, 12, 14, 16 and 20 of the targets.

    python -m benchmarks.segments [--rounds 5] [--quick] [--directory DIR]

All sides take turns in every round; a figure is the median of the ratios of the rounds. Row 12 is row 11 with a fold
over every event. Its appends and its replay against peers are rows of `everlog bench`.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import CATALOG, Pool
from benchmarks.bench.floors import require_count
from benchmarks.bench.ours import Ours, bytes_below
from benchmarks.bench.rounds import Contest, Rounds, Sample, Spread, interleave, ratio, timed
from benchmarks.bench.run import FULL, QUICK, Sizes
from benchmarks.figures import Figure

from everlog import wiring
from everlog.core.event import Event, whole


class Segments(Ours):
    """The log of the benchmark in segments, with what only this store is measured for."""

    def __init__(self, path: Path, pool: Pool, *, filled: int) -> None:
        super().__init__(path, pool, filled=filled, scheme="segments")

    def replay(self, events: int) -> Sample:
        """The store's own records, every frame under its hash."""

        def work() -> None:
            require_count(sum(1 for _ in self.log._store.read(limit=events)), events)

        return timed(events, work)

    def fold(self, events: int) -> Sample:
        """A fold by stream and lane over every event."""

        def work() -> None:
            lanes: dict[str, str] = {}
            counts: Counter[str] = Counter()
            for recorded in self.log._store.read(limit=events):
                lanes[recorded.event.stream] = recorded.event.payload["went_to"]
                counts[recorded.event.type] += 1
            require_count(counts.total(), events)

        return timed(events, work)


class BareDecode:
    """MessagePack bodies in memory, decoded into the same structs, and nothing else."""

    def __init__(self, events: Sequence[Event]) -> None:
        encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Event).decode
        self.bodies = [encode(whole(event)) for event in events]

    def read_all(self, events: int) -> Sample:
        def work() -> None:
            for body in self.bodies[:events]:
                self._decode(body)

        return timed(events, work)


def replay_in(path: str, processes: int, times: int) -> Sample:
    """The whole log `times` times, spread over processes that are started before the clock."""
    barrier = multiprocessing.Barrier(processes + 1)
    workers = [
        multiprocessing.Process(target=_replay, args=(path, times // processes, barrier)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    started = time.perf_counter()
    for worker in workers:
        worker.join()
    return Sample(times / (time.perf_counter() - started))


def _replay(path: str, times: int, barrier: Any) -> None:
    log = wiring.open(f"segments:{path}", catalog=CATALOG, create=False)
    barrier.wait()
    for _ in range(times):
        for _ in log._store.read():
            pass
    log.close()


def rebuild_index(path: Path, events: int) -> Sample:
    """Open a log whose index files are gone: every frame is read and indexed again."""
    for file in (path / "index").iterdir():
        file.unlink()
    return timed(events, lambda: wiring.open(f"segments:{path}", catalog=CATALOG, create=False).close())


def bulk_load(path: Path, events: Sequence[Event]) -> Sample:
    """The same bodies into a plain SQLite table with an index on stream and one on type."""
    decode, encode = msgspec.msgpack.Decoder(Event).decode, msgspec.msgpack.Encoder().encode
    bodies = [encode(whole(event)) for event in events]
    path.unlink(missing_ok=True)

    def work() -> None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, stream TEXT, type TEXT)")
        rows = ((event.stream, event.type) for event in map(decode, bodies))
        connection.executemany("INSERT INTO t (stream, type) VALUES (?, ?)", rows)
        connection.execute("CREATE INDEX by_stream ON t (stream, seq)")
        connection.execute("CREATE INDEX by_type ON t (type, seq)")
        connection.commit()
        connection.close()

    return timed(len(events), work)


def measure(sizes: Sizes, *, rounds: int, directory: Path | None, progress: Callable[[str], None]) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="everlog-segments-", dir=choose_directory(directory)) as name:
        here = Path(name)
        filled = Segments(here / "filled", Pool(sizes.pool), filled=sizes.filled)
        events = filled.filling()
        bare = BareDecode(events)
        filled.close()
        bytes_figure = _bytes(here / "filled", bare)
        shutil.copytree(here / "filled", here / "log")
        shutil.copytree(here / "filled", here / "rebuilt")
        reading = Segments.__new__(Segments)
        reading.log = wiring.open(f"segments:{here / 'filled'}", catalog=CATALOG, create=False)
        gc.collect()
        gc.freeze()
        contests = [
            Contest(
                "replay",
                {
                    "floor": lambda: bare.read_all(sizes.filled),
                    "ours": lambda: reading.replay(sizes.filled),
                    "fold": lambda: reading.fold(sizes.filled),
                },
            ),
            Contest(
                "processes",
                {
                    "one": lambda: replay_in(str(here / "log"), 1, 20),
                    "two": lambda: replay_in(str(here / "log"), 2, 20),
                },
            ),
            Contest(
                "rebuild",
                {
                    "floor": lambda: bulk_load(here / "rows.db", events),
                    "ours": lambda: rebuild_index(here / "rebuilt", len(events)),
                },
            ),
        ]
        try:
            results = interleave(contests, rounds=rounds, progress=progress)
        finally:
            gc.unfreeze()
            reading.close()
    return [*_figures(results), bytes_figure]


def _figures(results: dict[str, Rounds]) -> Iterator[Figure]:
    replay = results["replay"]
    yield Figure("11", "verified replay / bare decode", ratio(replay, "ours", "floor"), 0.65)
    yield Figure("12", "replay and fold / bare decode", ratio(replay, "fold", "floor"), 0.50)
    yield Figure("14", "replay, 2 processes / 1", ratio(results["processes"], "two", "one"), 1.6)
    yield Figure("20", "index rebuild / SQLite bulk load", ratio(results["rebuild"], "ours", "floor"), 0.6)


def _bytes(path: Path, bare: BareDecode) -> Figure:
    size = bytes_below(path / "segments") + bytes_below(path / "index")
    found = size / sum(map(len, bare.bodies))
    return Figure("16", "log and index / bodies", Spread(found, found, found), 1.35, at_most=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the segments store against floors.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small sizes; a look, not a measurement")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; on a disk")
    given = parser.parse_args()

    def progress(said: str) -> None:
        print(said, file=sys.stderr)

    sizes = QUICK if given.quick else FULL
    figures = measure(sizes, rounds=given.rounds, directory=given.directory, progress=progress)
    print(f"{'row':>3} {'':34} {'ratio':>24} {'must':>8}")
    for found in figures:
        middle, low, high = found.value
        told = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        bound = f"{'<=' if found.at_most else '>='} {found.must:.2f}"
        print(f"{found.row:>3} {found.what:34} {told:>24} {bound:>8}{'' if found.met else '  MISSED'}")
    return 0 if all(found.met for found in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
