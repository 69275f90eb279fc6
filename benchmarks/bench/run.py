"""The whole benchmark: everlog's stores against the floors of this machine, the straight line and the peers.

Every figure is a ratio, because a disk's flush takes what it takes. The floor (a bare write and flush) is the measure
where the disk decides; the straight line shows what our own code adds; the peers are what a user would compare with.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
from benchmarks.bench import floors
from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import RARE_EVERY, RARE_TYPE, Pool
from benchmarks.bench.figures import FLOOR, LINE, STORES, Figure, plain_figure, rate_figure
from benchmarks.bench.floors import DiskFloor, RowsFloor
from benchmarks.bench.ours import BATCH, LARGE, READ_STREAM, Ours, batches_in_memory
from benchmarks.bench.peers import EVENTSOURCING, UMADB, Peers, open_peers
from benchmarks.bench.rounds import Contest, Job, Rounds, Spread, cpu_ratio, interleave, latency_ratio, ratio
from benchmarks.bench.straight_line import StraightLine

from everlog.core.codec import event_object
from everlog.core.event import Event
from everlog.log.read.pages import PAGE_LIMIT

ONE_WRITER = "one writer"
THREADS = "8 threads"
TASKS = "64 asyncio tasks"
BATCH_ONE_STREAM = "batch of 100, one stream"
BATCH_MANY_STREAMS = "batch of 100, 100 streams"
BATCH_ALL_NEW = "batch of 100, nothing repeats"
BATCH_LARGE = "batch of 1000"
RULES = "batch of 100 in memory"
REPLAY = "replay"
READ_ONE_STREAM = "read a stream of 100"
READ_RARE_TYPE = "read a rare type"
VERIFY = "verify"
BY_ID = "one event by id"
BYTES = "bytes per event"
CURSOR = "check of a cursor"

_IN_TURN = ("segments", "sqlite")
JSON_BYTES = 480
"""The size as JSON of the event that the limits of `BYTES` were set for."""

MUSTS: dict[str, dict[str, dict[str, float]]] = {
    ONE_WRITER: {
        "segments": {FLOOR: 0.58, EVENTSOURCING: 1.15},
        "sqlite": {FLOOR: 0.55, EVENTSOURCING: 1.1},
        "jsonl": {FLOOR: 0.40, EVENTSOURCING: 0.65},
    },
    THREADS: {
        "segments": {EVENTSOURCING: 3.0, UMADB: 1.2},
        "sqlite": {EVENTSOURCING: 2.7, UMADB: 1.05},
    },
    TASKS: {"segments": {FLOOR: 6.5}, "sqlite": {FLOOR: 5.0}},
    BATCH_ONE_STREAM: {
        "segments": {EVENTSOURCING: 3.0, UMADB: 1.7},
        "sqlite": {EVENTSOURCING: 2.2, UMADB: 1.2},
    },
    BATCH_LARGE: {"segments": {UMADB: 0.60}, "sqlite": {UMADB: 0.42}},
    REPLAY: {
        "segments": {EVENTSOURCING: 6.0, UMADB: 1.4},
        "sqlite": {EVENTSOURCING: 5.0, UMADB: 1.3},
    },
}
CPU_MUSTS = {"segments": 0.60, "sqlite": 0.47}
BYTES_MUSTS = {"segments": 320 / JSON_BYTES, "sqlite": 450 / JSON_BYTES, "jsonl": 700 / JSON_BYTES}
VERIFY_MUST, BY_ID_MUST, CURSOR_MUST = 0.25, 3.0, 1.03


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything a round does."""

    filled: int
    pool: int
    one_writer: int
    each_thread: int
    each_task: int
    batches: int
    large: int
    in_memory: int
    reads: int
    by_id: int


QUICK = Sizes(
    filled=2_100,
    pool=1_000,
    one_writer=60,
    each_thread=15,
    each_task=6,
    batches=4,
    large=1,
    in_memory=5,
    reads=3,
    by_id=50,
)
FULL = Sizes(
    filled=20_100,
    pool=10_000,
    one_writer=400,
    each_thread=100,
    each_task=40,
    batches=30,
    large=5,
    in_memory=40,
    reads=10,
    by_id=400,
)


class _Measure(NamedTuple):
    name: str
    sides: dict[str, Job]
    note: str
    peers: tuple[str, ...] = ()  # those that do this work


class _Arena(NamedTuple):
    sizes: Sizes
    pool: Pool
    disk: DiskFloor
    line: StraightLine
    rows: RowsFloor
    logs: dict[str, Ours]
    alone: dict[str, list[int]]  # positions of events that were written one by one
    json_bytes: float
    peers: Peers


def run_benchmark(
    *, rounds: int, quick: bool, directory: Path | None, progress: Callable[[str], None]
) -> list[Figure]:
    """Measure on the disk below `directory` (the usual temporary directory if None); nothing is left there."""
    with _arena(directory, QUICK if quick else FULL, progress) as arena:
        measures = [*_appends(arena), *_reads(arena)]
        results = interleave(
            [Contest(measure.name, measure.sides) for measure in measures], rounds=rounds, progress=progress
        )
        return [
            *_rates(
                [measure for measure in measures if measure.name not in (VERIFY, BY_ID, CURSOR)], results, arena.peers
            ),
            *_own_ratios(results, arena),
        ]


@contextmanager
def _arena(directory: Path | None, sizes: Sizes, progress: Callable[[str], None]) -> Iterator[_Arena]:
    """Everything that is measured, side by side in one new directory, until the measuring is over."""
    place = choose_directory(directory)
    with tempfile.TemporaryDirectory(prefix="everlog-bench-", dir=place) as name, ExitStack() as stack:
        here = Path(name)
        progress(f"filling logs with {sizes.filled:,} events in {place}")
        pool = Pool(sizes.pool)
        disk = DiskFloor(here / "floor")
        stack.callback(disk.close)
        line = StraightLine(here / "line", pool)
        stack.callback(line.close)
        logs, alone = {}, {}
        for store in STORES:
            logs[store] = log = Ours(here / store, pool, filled=sizes.filled, scheme=store)
            stack.callback(log.close)
            log.one_writer(sizes.by_id)
            alone[store] = list(range(sizes.filled + 1, sizes.filled + sizes.by_id + 1))
        events = logs["sqlite"].filling()
        rows = RowsFloor(here / "rows.db", events)
        stack.callback(rows.close)
        json_bytes = sum(map(_json_bytes, events)) / len(events)
        peers = stack.enter_context(open_peers(here, pool, filled=sizes.filled, progress=progress))
        # Without this every full collection would walk over the pool and look like a slow store.
        gc.collect()
        gc.freeze()
        stack.callback(gc.unfreeze)
        yield _Arena(sizes, pool, disk, line, rows, logs, alone, json_bytes, peers)


def _json_bytes(event: Event) -> int:
    """Return the size of an event as JSON, without what proves it."""
    proofs = ("salt", "commitment", "previous")
    return len(
        msgspec.json.encode({name: value for name, value in event_object(event).items() if name not in proofs})
    )


def _appends(arena: _Arena) -> list[_Measure]:
    sizes, pool, disk, line, logs = arena.sizes, arena.pool, arena.disk, arena.line, arena.logs
    present = arena.peers.present
    one_flush_each = {
        FLOOR: lambda: disk.writes(sizes.one_writer),
        LINE: lambda: line.appends(sizes.one_writer),
    }
    one_flush_per_batch = {
        FLOOR: lambda: disk.writes(sizes.batches, records_each=BATCH),
        LINE: lambda: line.appends(sizes.batches, events_each=BATCH),
    }
    both = (EVENTSOURCING, UMADB)
    sample = logs["sqlite"].filling()[: sizes.in_memory * BATCH]

    def stores(work: Callable[[Ours], Job], names: tuple[str, ...] = _IN_TURN) -> dict[str, Job]:
        return {name: work(logs[name]) for name in names}

    return [
        _Measure(
            ONE_WRITER,
            {
                **one_flush_each,
                **stores(lambda log: partial(log.one_writer, sizes.one_writer), STORES),
                **{name: partial(peer.one_writer, sizes.one_writer) for name, peer in present.items()},
            },
            "a flush for every event",
            both,
        ),
        _Measure(
            THREADS,
            {
                **one_flush_each,
                **stores(lambda log: partial(log.threads, 8, sizes.each_thread)),
                **{name: partial(peer.threads, 8, sizes.each_thread) for name, peer in present.items()},
            },
            "threads share flushes; floor and straight line have one thread",
            both,
        ),
        _Measure(
            TASKS,
            {**one_flush_each, **stores(lambda log: partial(log.tasks, 64, sizes.each_task))},
            "tasks share flushes; floor and straight line have one thread",
        ),
        _Measure(
            BATCH_ONE_STREAM,
            {
                **one_flush_per_batch,
                **stores(lambda log: partial(log.batches, sizes.batches, one_stream=True)),
                **{name: partial(peer.batches, sizes.batches, BATCH) for name, peer in present.items()},
            },
            "floor: 100 records in one write and one flush",
            both,
        ),
        _Measure(
            BATCH_MANY_STREAMS,
            {**one_flush_per_batch, **stores(lambda log: partial(log.batches, sizes.batches, one_stream=False))},
            "floor: 100 records in one write and one flush",
        ),
        _Measure(
            BATCH_ALL_NEW,
            {**one_flush_per_batch, **stores(lambda log: partial(log.batches_never_seen, sizes.batches))},
            "new streams, actors and texts, umlauts, fractions; in the other rows half of the payloads are new",
        ),
        _Measure(
            BATCH_LARGE,
            {
                FLOOR: lambda: disk.writes(sizes.large, records_each=LARGE),
                LINE: lambda: line.appends(sizes.large, events_each=LARGE),
                **stores(lambda log: partial(log.large_batches, sizes.large)),
                **{name: partial(peer.batches, sizes.large, LARGE) for name, peer in present.items()},
            },
            "floor: 1000 records in one write and one flush",
            both,
        ),
        _Measure(
            RULES,
            {
                FLOOR: lambda: floors.encode_and_hash(sample),
                LINE: lambda: line.appends(sizes.in_memory, events_each=BATCH),
                "memory": lambda: batches_in_memory(pool, sizes.in_memory),
            },
            "floor: encode and two SHA-256; what all rules cost without a disk",
        ),
    ]


def _reads(arena: _Arena) -> list[_Measure]:
    sizes, rows, logs = arena.sizes, arena.rows, arena.logs
    rare = (sizes.filled - BATCH) // RARE_EVERY
    by_id: dict[str, Job] = {}
    verify: dict[str, Job] = {}
    for store in _IN_TURN:
        log = logs[store]
        every = max(1, (sizes.filled - BATCH) // sizes.by_id)
        batched = range(BATCH + 1, sizes.filled, every)
        by_id |= {
            f"{store} batched": partial(log.by_id, batched),
            f"{store} alone": partial(log.by_id, arena.alone[store]),
        }
        verify |= {f"{store} verify": log.verify, f"{store} replay": log.read_to_head}
    pages: dict[str, Job] = {
        f"{store} {side}": partial(logs[store].pages, times=sizes.reads, checked=side == "checked")
        for store in STORES
        for side in ("checked", "unchecked")
    }
    return [
        _Measure(
            REPLAY,
            {
                FLOOR: lambda: rows.read_all(sizes.filled),
                **{store: partial(logs[store].read_all, sizes.filled) for store in _IN_TURN},
                **{
                    name: partial(peer.read_all, sizes.filled - 2 * BATCH)
                    for name, peer in arena.peers.present.items()
                },
            },
            "floor: plain SQLite rows into Structs",
            (EVENTSOURCING, UMADB),
        ),
        _Measure(
            READ_ONE_STREAM,
            {
                FLOOR: lambda: rows.read_stream(READ_STREAM, BATCH, times=sizes.reads * 5),
                **{store: partial(logs[store].read_stream, BATCH, times=sizes.reads * 5) for store in _IN_TURN},
            },
            "floor: the same by an index",
        ),
        _Measure(
            READ_RARE_TYPE,
            {
                FLOOR: lambda: rows.read_type(RARE_TYPE, rare, times=sizes.reads),
                **{store: partial(logs[store].read_type, RARE_TYPE, rare, times=sizes.reads) for store in _IN_TURN},
            },
            f"one event in {RARE_EVERY}; floor: the same by an index of every event's type",
        ),
        _Measure(VERIFY, verify, ""),
        _Measure(BY_ID, by_id, ""),
        _Measure(CURSOR, pages, ""),
    ]


def _rates(measures: list[_Measure], results: dict[str, Rounds], peers: Peers) -> Iterator[Figure]:
    for measure in measures:
        rounds = results[measure.name]
        absent = tuple(name for name in measure.peers if name in peers.absent)
        for store in [side for side in measure.sides if side in (*STORES, "memory")]:
            musts = MUSTS.get(measure.name, {}).get(store, {})
            yield rate_figure(measure.name, store, rounds, musts=musts, absent=absent, note=measure.note)
        if measure.name == ONE_WRITER:
            for store in STORES:
                yield plain_figure(
                    "one writer, median latency",
                    store,
                    FLOOR,
                    latency_ratio(rounds, store, FLOOR),
                    unit="µs",
                    ours=median([samples[store].p50_us for samples in rounds]),
                    other=median([samples[FLOOR].p50_us for samples in rounds]),
                    note="lower is better",
                )
        if measure.name == BATCH_ONE_STREAM:
            for store in _IN_TURN:
                yield plain_figure(
                    "batch of 100, processor time",
                    store,
                    LINE,
                    cpu_ratio(rounds, LINE, store),
                    unit="µs",
                    ours=median([samples[store].cpu_us for samples in rounds]),
                    other=median([samples[LINE].cpu_us for samples in rounds]),
                    must=CPU_MUSTS[store],
                    note="of the straight line / ours",
                )


def _own_ratios(results: dict[str, Rounds], arena: _Arena) -> Iterator[Figure]:
    """What is not a rate against another side: bytes, single events, and a log against itself."""
    for store, log in arena.logs.items():
        size = log.bytes_per_event / arena.json_bytes
        yield plain_figure(
            BYTES,
            store,
            "JSON",
            Spread(size, size, size),
            unit="bytes",
            ours=log.bytes_per_event,
            other=arena.json_bytes,
            must=BYTES_MUSTS[store],
            at_most=True,
            note="of the same events as JSON, without what proves them; at most",
        )
    for store in _IN_TURN:
        rounds = results[BY_ID]
        yield plain_figure(
            BY_ID,
            store,
            "written alone",
            ratio(rounds, f"{store} alone", f"{store} batched"),
            unit="µs",
            ours=1e6 / median([samples[f"{store} batched"].events_s for samples in rounds]),
            other=1e6 / median([samples[f"{store} alone"].events_s for samples in rounds]),
            must=BY_ID_MUST,
            at_most=True,
            note="time of one written in a batch of 1000 / of one written alone; at most",
        )
    for store in STORES:
        rounds = results[CURSOR]
        yield plain_figure(
            CURSOR,
            store,
            "unchecked",
            cpu_ratio(rounds, f"{store} checked", f"{store} unchecked"),
            unit="µs",
            ours=PAGE_LIMIT * median([samples[f"{store} checked"].cpu_us for samples in rounds]),
            other=PAGE_LIMIT * median([samples[f"{store} unchecked"].cpu_us for samples in rounds]),
            must=CURSOR_MUST,
            at_most=True,
            note=f"processor time of a page of {PAGE_LIMIT} after a cursor / after a bare position; at most",
        )
    for store in _IN_TURN:
        rounds = results[VERIFY]
        yield plain_figure(
            VERIFY,
            store,
            "replay",
            ratio(rounds, f"{store} verify", f"{store} replay"),
            unit="events/s",
            ours=median([samples[f"{store} verify"].events_s for samples in rounds]),
            other=median([samples[f"{store} replay"].events_s for samples in rounds]),
            must=VERIFY_MUST,
            note="of the replay of the same log",
        )
