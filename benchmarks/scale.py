"""Every store as it grows: what opening, a stream, a rare type and a single append cost at two sizes.

    python -m benchmarks.scale [--small 100000] [--large 1000000] [--store sqlite jsonl segments] [--json]

The wishes: a large log opens in under a second, a query of it takes at most twice what it takes in the small one, and
a filtered read of 1,000 events takes under 100 ms. PostgreSQL joins with `--postgres URL`, of an empty database.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

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
OPEN_S_MAX = 1.0
FILTERED_S_MAX = 0.1
GROWTH_MAX = 2.0


class Size(NamedTuple):
    """What a log of one size costs, in milliseconds."""

    events: int
    open_ms: float
    stream_ms: float
    type_ms: float
    append_ms: float
    fill_us: float  # microseconds an event, while it was filled


def main() -> int:
    options = arguments()
    found: dict[str, list[Size]] = {}
    with tempfile.TemporaryDirectory(dir=choose_directory(options.directory)) as folder:
        urls = {"sqlite": f"sqlite:{folder}/log.db", "jsonl": f"jsonl:{folder}/j", "segments": f"segments:{folder}/s"}
        chosen = {name: urls[name] for name in options.store}
        if options.postgres:
            chosen["postgres"] = options.postgres
        for name, url in chosen.items():
            found[name] = [grow_and_ask(url, size, name) for size in (options.small, options.large)]
    if options.json:
        print(json.dumps({name: [size._asdict() for size in sizes] for name, sizes in found.items()}))
    else:
        show(found)
    return 0


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
        stream = ask(lambda log: require(log, Query(stream=_middle_stream(events)), STREAM_EVENTS))
        kind = ask(lambda log: require(log, Query(types=frozenset([RARE_TYPE])), TYPE_EVENTS))
        draft = Pool(1).take(1)[0]
        single = ask(lambda log: log.append(draft.type, stream="item/single", payload=draft.payload))
    return Size(events, opened, stream, kind, single, filling)


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


def show(found: dict[str, list[Size]]) -> None:
    print(
        f"{'store':10} {'events':>10} {'fill µs':>8} {'open ms':>8} {'stream ms':>10} {'type ms':>8}"
        f" {'append ms':>10}"
    )
    for name, sizes in found.items():
        for size in sizes:
            print(
                f"{name:10} {size.events:>10,} {size.fill_us:>8.1f} {size.open_ms:>8.1f} {size.stream_ms:>10.2f}"
                f" {size.type_ms:>8.2f} {size.append_ms:>10.2f}"
            )
        small, large = sizes
        growth = max(large.stream_ms / small.stream_ms, large.type_ms / small.type_ms)
        verdicts = [
            (f"opens in {large.open_ms / 1_000:.2f} s", large.open_ms < OPEN_S_MAX * 1_000),
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
