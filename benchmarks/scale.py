"""Every store as it grows: what opening, a page, a stream, a rare type, a single append and verify cost at two sizes.

    python -m benchmarks.scale [--small 100000] [--large 1000000] [--store sqlite jsonl segments] [--json]

The limits, for a log of 10,000,000 events: it opens in half a second, its writer and `verify` need at most 300 MB
each, and a page of 100 takes at most 1.5 times what it takes in the small log. The wishes: a query takes at most
twice what it takes in the small log, and a filtered read of 1,000 events takes under 100 ms. The writer and
`verify` each run in a new process, whose greatest size is measured. PostgreSQL joins with `--postgres URL`, of an
empty database.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple, ParamSpec, TypeVar

from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import CATALOG, RARE_TYPE, TYPE, Pool

from everlog import wiring
from everlog.core.query import Query
from everlog.log.log import Log
from everlog.log.write.draft import Draft

STREAM_EVENTS = 100
TYPE_EVENTS = 1_000
ASKED = 7
BATCH = 1_000
PAGE = 100
OPEN_S_MAX = 0.5
MEMORY_MB_MAX = 300
PAGE_GROWTH_MAX = 1.5
FILTERED_S_MAX = 0.1
GROWTH_MAX = 2.0

P = ParamSpec("P")
R = TypeVar("R")


class Size(NamedTuple):
    """What a log of one size costs, in milliseconds."""

    events: int
    open_ms: float
    page_ms: float
    stream_ms: float
    type_ms: float
    append_ms: float
    fill_us: float  # microseconds an event, while it was filled
    writer_mb: float


class Verified(NamedTuple):
    seconds: float
    mb: float


def main() -> int:
    options = arguments()
    found: dict[str, tuple[Size, Size, Verified]] = {}
    with tempfile.TemporaryDirectory(dir=choose_directory(options.directory)) as folder:
        urls = {"sqlite": f"sqlite:{folder}/log.db", "jsonl": f"jsonl:{folder}/j", "segments": f"segments:{folder}/s"}
        chosen = {name: urls[name] for name in options.store}
        if options.postgres:
            chosen["postgres"] = options.postgres
        for name, url in chosen.items():
            small = in_new_process(grow_and_ask, url, options.small, name)
            large = in_new_process(grow_and_ask, url, options.large, name)
            found[name] = small, large, in_new_process(verify, url, large.events + ASKED)
    if options.json:
        print(json.dumps({name: [part._asdict() for part in parts] for name, parts in found.items()}))
    else:
        show(found)
    return 0


def in_new_process(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do something in a process that has done nothing else, so that its size is that of this work."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()


def verify(url: str, events: int) -> Verified:
    start = time.perf_counter()
    with wiring.open(url, catalog=CATALOG, create=False) as log:
        report = log.verify()
    if not report.ok or report.events != events:
        raise AssertionError(f"verify found {report.events} events of {events}, and {report.problems}")
    return Verified(time.perf_counter() - start, greatest_size_mb())


def greatest_size_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def grow_and_ask(url: str, events: int, name: str) -> Size:
    with wiring.open(url, catalog=CATALOG) as log:
        filling = fill(log, events, name)
    gc.collect()

    def ask(work: Callable[[Log], object]) -> float:
        times = []
        for _ in range(ASKED):
            start = time.perf_counter()
            work(log)
            times.append(time.perf_counter() - start)
        return median(times) * 1_000

    start = time.perf_counter()
    with wiring.open(url, catalog=CATALOG) as log:
        log.head()
        opened = (time.perf_counter() - start) * 1_000
        middle = log.page_after(events // 2, limit=1, looking=True).next_cursor
        page = ask(lambda log: log.page_after(middle, limit=PAGE))
        stream = ask(lambda log: require(log, Query(stream=_middle_stream(events)), STREAM_EVENTS))
        kind = ask(lambda log: require(log, Query(types=frozenset([RARE_TYPE])), TYPE_EVENTS))
        draft = Pool(1).take(1)[0]
        single = ask(lambda log: log.append(draft.type, stream="item/single", payload=draft.payload))
    return Size(events, opened, page, stream, kind, single, filling, greatest_size_mb())


def fill(log: Log, events: int, name: str) -> float:
    """Grow the log to this many events: streams of a hundred events each, as many open at once as a team has."""
    rng, pool = random.Random(7), Pool(2_000)
    have = int(log.head())
    start = time.perf_counter()
    said = 0
    while have < events:
        number = min(BATCH, events - have)
        drafts = [_placed(draft, have + index, rng) for index, draft in enumerate(pool.take(number))]
        log.append_batch(drafts)
        have += number
        if sys.stderr.isatty() or have - said >= 250_000:
            said = have
            print(f"\r{name}: {have:,} of {events:,} events", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return (time.perf_counter() - start) / max(1, events) * 1e6


def _placed(draft: Draft, place: int, rng: random.Random) -> Draft:
    # A hundred streams are alive at a time, each for about ten thousand positions: work moves on.
    generation = place // (100 * STREAM_EVENTS)
    stream = f"item/{generation:05}-{place % 100:02}"
    return Draft(
        type=RARE_TYPE if rng.randrange(50) == 0 else TYPE,
        stream=stream,
        payload=draft.payload,
        actor=draft.actor,
        causation_id=draft.causation_id,
        correlation_id=draft.correlation_id,
    )


def _middle_stream(events: int) -> str:
    return f"item/{events // 2 // (100 * STREAM_EVENTS):05}-07"


def require(log: Log, query: Query, number: int) -> None:
    found = sum(1 for _ in log.read(query, limit=number))
    if found != number:
        raise AssertionError(f"read {found} events where {number} were to be read")


def show(found: dict[str, tuple[Size, Size, Verified]]) -> None:
    print(
        f"{'store':10} {'events':>10} {'fill µs':>8} {'writer MB':>9} {'open ms':>8} {'page ms':>8} {'stream ms':>10}"
        f" {'type ms':>8} {'append ms':>10}"
    )
    for name, (small, large, verified) in found.items():
        for size in (small, large):
            print(
                f"{name:10} {size.events:>10,} {size.fill_us:>8.1f} {size.writer_mb:>9.0f} {size.open_ms:>8.1f}"
                f" {size.page_ms:>8.2f} {size.stream_ms:>10.2f} {size.type_ms:>8.2f} {size.append_ms:>10.2f}"
            )
        growth = max(large.stream_ms / small.stream_ms, large.type_ms / small.type_ms)
        page_growth = large.page_ms / small.page_ms
        memory = max(large.writer_mb, verified.mb)
        verdicts = [
            (f"opens in {large.open_ms / 1_000:.2f} s", large.open_ms <= OPEN_S_MAX * 1_000),
            (f"verify takes {verified.seconds:.0f} s and {verified.mb:.0f} MB", memory <= MEMORY_MB_MAX),
            (f"a page grows {page_growth:.2f} times", page_growth <= PAGE_GROWTH_MAX),
            (f"queries grow {growth:.2f} times", growth <= GROWTH_MAX),
            (f"{TYPE_EVENTS:,} filtered in {large.type_ms:.0f} ms", large.type_ms < FILTERED_S_MAX * 1_000),
        ]
        print("           " + "; ".join(f"{text} ({'as wished' if good else 'MISSED'})" for text, good in verdicts))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=100_000)
    parser.add_argument("--large", type=int, default=1_000_000)
    parser.add_argument("--store", nargs="*", default=["sqlite", "jsonl", "segments"])
    parser.add_argument("--postgres", default="", help="the URL of an empty database")
    parser.add_argument("--directory", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
