"""The segments store against the floors and the peers of one run: rows 1 to 9, 11, 13 to 16 and 20 of the targets.

    pip install 'everlog[peers]' umadb
    python -m benchmarks.segments [--rounds 5] [--quick] [--directory DIR]

All sides take turns in every round; a figure is the median of the ratios of the rounds. UmaDB is left out, aloud,
where its wheel is not installed. Row 12 is row 11 with a fold over every event.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import CATALOG, Pool
from benchmarks.bench.floors import DiskFloor, require_count
from benchmarks.bench.ours import BATCH, Ours
from benchmarks.bench.rounds import Contest, Rounds, Sample, Spread, interleave, ratio, timed, timed_each
from benchmarks.bench.run import FULL, QUICK, Sizes
from benchmarks.figures import Figure
from benchmarks.peers import THREADS, Peer

from everlog import wiring
from everlog.core.codec import event_object
from everlog.core.event import Event
from everlog.log.write.draft import Draft

TASKS = 64
LARGE = 1000


class Uma:
    """UmaDB with its defaults: its own server, reached over a socket; the event as JSON, its stream as a tag."""

    def __init__(self, url: str, pool: Pool) -> None:
        import umadb

        self._umadb: Any = umadb
        self._client: Any = umadb.Client(url, batch_size=LARGE)
        self._pool = pool
        self._encode = msgspec.json.Encoder().encode

    def batches(self, count: int, size: int) -> Sample:
        works = [self._made(self._pool.take(size)) for _ in range(count)]
        return timed_each(size, [partial(self._client.append, events) for events in works])

    def read_all(self, events: int) -> Sample:
        decode = msgspec.json.Decoder().decode

        def work() -> None:
            found, reading = 0, self._client.read()
            while found < events and (batch := reading.next_batch()):
                for one in batch:
                    decode(one.event.data)
                    found += 1

        return timed(events, work)

    def _made(self, drafts: Sequence[Draft]) -> list[Any]:
        return [self._umadb.Event(draft.type, self._encode(draft), [draft.stream], uuid.uuid4()) for draft in drafts]


@contextmanager
def uma_server(folder: Path) -> Iterator[str | None]:
    binary = Path(sys.executable).with_name("umadb")
    if not binary.exists():
        print("UmaDB is not installed: its rows are left out", file=sys.stderr)
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = folder / "uma"
    store.mkdir()
    server = subprocess.Popen(
        [str(binary), "--listen", f"127.0.0.1:{port}", "--db-path", str(store)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


class Segments(Ours):
    """The log of the benchmark in segments, with what only this store is measured for."""

    def __init__(self, path: Path, pool: Pool, *, filled: int) -> None:
        super().__init__(path, pool, filled=filled, scheme="segments")
        self.path = path

    def large_batches(self, count: int) -> Sample:
        requests = [self._pool.take(LARGE) for _ in range(count)]
        return timed_each(LARGE, [partial(self.log.append_batch, drafts) for drafts in requests])

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
        self.bodies = [encode(event) for event in events]

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
    bodies = [encode(event) for event in events]
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
        pool = Pool(sizes.pool)
        disk = DiskFloor(here / "floor")
        filled = Segments(here / "filled", pool, filled=sizes.filled)
        events = filled.filling()
        bare = BareDecode(events)
        filled.close()
        bytes_figures = _bytes(here / "filled", events, bare)
        shutil.copytree(here / "filled", here / "log")
        shutil.copytree(here / "filled", here / "rebuilt")
        reading = Segments.__new__(Segments)
        reading.log = wiring.open(f"segments:{here / 'filled'}", catalog=CATALOG, create=False)
        ours = Segments(here / "ours", pool, filled=sizes.filled)
        peer = Peer(here / "peer.db", pool, filled=sizes.filled)
        with uma_server(here) as url:
            uma = None if url is None else Uma(url, pool)
            read = sizes.filled - 2 * BATCH
            if uma is not None:
                uma.batches(read // LARGE + 1, LARGE)
            gc.collect()
            gc.freeze()
            contests = [
                Contest(
                    "one",
                    {
                        "floor": lambda: disk.writes(sizes.one_writer),
                        "ours": lambda: ours.one_writer(sizes.one_writer),
                        "peer": lambda: peer.one_writer(sizes.one_writer),
                    },
                ),
                Contest(
                    "threads",
                    {
                        "floor": lambda: disk.writes(sizes.one_writer),
                        "ours": lambda: ours.threads(THREADS, sizes.each_thread),
                        "peer": lambda: peer.threads(THREADS, sizes.each_thread),
                    },
                ),
                Contest(
                    "tasks",
                    {
                        "floor": lambda: disk.writes(sizes.one_writer),
                        "ours": lambda: ours.tasks(TASKS, sizes.each_task),
                    },
                ),
                Contest(
                    "batch",
                    {
                        "floor": lambda: disk.writes(sizes.batches, records_each=BATCH),
                        "ours": lambda: ours.batches(sizes.batches, one_stream=True),
                        "peer": lambda: peer.batches(sizes.batches),
                        **({"uma": lambda: uma.batches(sizes.batches, BATCH)} if uma is not None else {}),
                    },
                ),
                Contest(
                    "replay",
                    {
                        "floor": lambda: bare.read_all(read),
                        "ours": lambda: reading.replay(read),
                        "fold": lambda: reading.fold(read),
                        "peer": lambda: peer.read_all(read),
                        **({"uma": lambda: uma.read_all(read)} if uma is not None else {}),
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
            if uma is not None:
                contests.append(
                    Contest(
                        "large",
                        {
                            "ours": lambda: ours.large_batches(max(2, sizes.batches // 8)),
                            "uma": lambda: uma.batches(max(2, sizes.batches // 8), LARGE),
                        },
                    )
                )
            try:
                results = interleave(contests, rounds=rounds, progress=progress)
            finally:
                gc.unfreeze()
                peer.close()
                ours.close()
                reading.close()
                disk.close()
    return [*_figures(results, with_uma=uma is not None), *bytes_figures]


def _figures(results: dict[str, Rounds], *, with_uma: bool) -> Iterator[Figure]:
    one, threads, batch, replay = results["one"], results["threads"], results["batch"], results["replay"]
    latencies = sorted(found["ours"].p50_us / found["floor"].p50_us for found in one)
    yield Figure("1", "one writer / floor", ratio(one, "ours", "floor"), 0.55)
    spread = Spread(latencies[len(latencies) // 2], latencies[0], latencies[-1])
    yield Figure("2", "its p50 / floor's p50", spread, 1.7, at_most=True)
    yield Figure("3", "one writer / eventsourcing", ratio(one, "ours", "peer"), 1.1)
    yield Figure("4", "8 threads / floor, indexed", ratio(threads, "ours", "floor"), 1.4)
    yield Figure("5", "8 threads / eventsourcing", ratio(threads, "ours", "peer"), 4.0)
    yield Figure("6", "64 tasks / floor, indexed", ratio(results["tasks"], "ours", "floor"), 5.5)
    yield Figure("7", "batch of 100 / floor, indexed", ratio(batch, "ours", "floor"), 0.15)
    yield Figure("8", "batch of 100 / eventsourcing", ratio(batch, "ours", "peer"), 3.0)
    if with_uma:
        yield Figure("8", "batch of 100 / UmaDB, indexed", ratio(batch, "ours", "uma"), 0.8)
        yield Figure("9", "batch of 1000 / UmaDB, indexed", ratio(results["large"], "ours", "uma"), 0.3)
    yield Figure("11", "verified replay / bare decode", ratio(replay, "ours", "floor"), 0.65)
    yield Figure("12", "replay and fold / bare decode", ratio(replay, "fold", "floor"), 0.50)
    yield Figure("13", "replay / eventsourcing", ratio(replay, "ours", "peer"), 6.0)
    if with_uma:
        yield Figure("13", "replay / UmaDB", ratio(replay, "ours", "uma"), 1.7)
    yield Figure("14", "replay, 2 processes / 1", ratio(results["processes"], "two", "one"), 1.6)
    yield Figure("20", "index rebuild / SQLite bulk load", ratio(results["rebuild"], "ours", "floor"), 0.6)


def _bytes(path: Path, events: Sequence[Event], bare: BareDecode) -> list[Figure]:
    log = sum(file.stat().st_size for file in (path / "segments").iterdir())
    index = sum(file.stat().st_size for file in (path / "index").iterdir())
    text = sum(len(msgspec.json.encode(event_object(event))) for event in events)
    bodies = sum(map(len, bare.bodies))
    return [
        Figure("15", "bytes of log / JSON", Spread(log / text, log / text, log / text), 0.65, at_most=True),
        Figure("16", "log and index / bodies", Spread(*[(log + index) / bodies] * 3), 1.35, at_most=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the segments store against floors and peers.")
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
