"""Views, snapshots and one stream's status against their floors, their peers and their limits, in one run.

    pip install 'everlog[peers,pgserver]' umadb
    python -m benchmarks.views                      everything; about half an hour, 15 GB of disk
    python -m benchmarks.views --quick              the same on small logs, in less than a minute: a look
    python -m benchmarks.views --only fold status   some of it

fold       a log replayed through a view / the same events decoded in a bare loop
peers      the same replay / the same fold over `eventsourcing` (SQLite) and over UmaDB
processes  two views replayed by two processes / by one
status     one stream of 100 events in a log of a million, from its events alone, on every store
snapshot   a snapshot of a view with 100,000 keys; opening from it / replaying everything, at a million events
memory     the most that a process takes while it replays ten million events

All sides take turns in every round. Printed are the median of the rounds' ratios, the best (of a ratio: the best
round of the one side by the best of the other, which is nearest to a quiet machine) and the range. A line is met by
its median.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import view_sides as sides
from benchmarks.bench.directory import choose_directory
from benchmarks.bench.events import CATALOG, Pool
from benchmarks.bench.rounds import Contest, Rounds, interleave, spread
from benchmarks.bench.umadb_peer import uma_server
from benchmarks.view_sides import Lanes

from everlog import wiring
from everlog.demo.postgres_server import NoServer, start_server
from everlog.log.log import Log

TAIL = 100
STORES = ("segments", "sqlite", "jsonl", "postgresql")


class Sizes(NamedTuple):
    events: int  # replayed in a round
    large: int  # of the logs for status and snapshots
    keys: int
    memory: int
    streams_asked: int
    times: int  # that two processes replay


FULL = Sizes(100_000, 1_000_000, 100_000, 10_000_000, 60, 4)
QUICK = Sizes(10_000, 20_000, 2_000, 30_000, 10, 2)


class Line(NamedTuple):
    part: str
    what: str
    values: list[float]
    must: float | None = None
    at_most: bool = False
    unit: str = "x"
    quiet: float | None = None  # of a ratio: the best of the one side by the best of the other

    @property
    def middle(self) -> float:
        return median(self.values)

    @property
    def best(self) -> float:
        if self.quiet is not None:
            return self.quiet
        return min(self.values) if self.at_most else max(self.values)

    @property
    def met(self) -> bool | None:
        if self.must is None:
            return None
        return self.middle <= self.must if self.at_most else self.middle >= self.must


class Bench:
    def __init__(self, here: Path, sizes: Sizes, rounds: int, stores: Sequence[str], said: Callable[[str], None]):
        self.here, self.sizes, self.rounds, self.said = here, sizes, rounds, said
        self.urls = {name: f"{name}:{here}/{name}-{{}}" for name in stores if name != "postgresql"}
        self.open = ExitStack()
        if "postgresql" in stores:
            try:
                server = self.open.enter_context(start_server())
                self.urls["postgresql"] = server.url + "&schema=bench_{}"
            except NoServer as error:
                print(f"no PostgreSQL, its lines are left out: {error}", file=sys.stderr)

    def log(self, store: str, name: str, events: int, streams: Callable[[int], str]) -> Log:
        """A log of this many events, opened anew after it was filled."""
        url = self.urls[store].format(name)
        self.said(f"filling {store} with {events:,} events")
        with wiring.open(url, catalog=CATALOG) as log:
            sides.fill(log, events, streams, self.said)
        return wiring.open(url, catalog=CATALOG)

    def local(self) -> str:
        """A store that peers and processes are compared with: the fastest that was asked for."""
        return next(name for name in STORES if name in self.urls)

    # ---- the parts

    def fold(self) -> Iterator[Line]:
        events = self.sizes.events
        with ExitStack() as stack:
            streams = sides.round_robin(200)
            logs = {store: stack.enter_context(self.log(store, "fold", events, streams)) for store in self.urls}
            bare = sides.BareDecode(next(iter(logs.values()))._store.read())
            jobs = {store: partial(sides.replay, log, events) for store, log in logs.items()}
            found = self._rounds("fold", {"floor": bare.read_all, **jobs})
        for store in logs:
            must = 0.50 if store == "segments" else None
            yield _ratio("fold", f"view on {store} / bare decode", found, store, "floor", must)

    def peers(self) -> Iterator[Line]:
        events, pool = self.sizes.events, Pool(2_000)
        with ExitStack() as stack:
            log = stack.enter_context(self.log(self.local(), "peers", events, sides.round_robin(200)))
            peer = sides.FoldingPeer(self.here / "peer.db", pool, filled=events + 200)
            stack.callback(peer.close)
            jobs: dict[str, Any] = {
                "ours": lambda: sides.replay(log, events),
                "eventsourcing": lambda: peer.fold(events),
            }
            url = stack.enter_context(uma_server(self.here))
            if url is None:
                print("UmaDB is not installed and is not measured: pip install umadb", file=sys.stderr)
            else:
                uma = sides.FoldingUma(url, pool)
                uma.batches(events // 1000 + 1, 1000)
                jobs["UmaDB"] = lambda: uma.fold(events)
            found = self._rounds("peers", jobs)
        for name, must in (("eventsourcing", 6.0), ("UmaDB", 1.7)):
            if name in jobs:
                yield _ratio("peers", f"view on {self.local()} / {name}", found, "ours", name, must)

    def processes(self) -> Iterator[Line]:
        store = self.local()
        self.log(store, "processes", self.sizes.events, sides.round_robin(200)).close()
        url = self.urls[store].format("processes")
        jobs = {
            "one": lambda: sides.replay_in(url, 1, self.sizes.times),
            "two": lambda: sides.replay_in(url, 2, self.sizes.times),
        }
        found = self._rounds("processes", jobs)
        yield _ratio("processes", f"two processes on {store} / one", found, "two", "one", 1.6)

    def status(self) -> Iterator[Line]:
        events = self.sizes.large
        for store in self.urls:
            with self.log(store, "status", events, sides.generations(events)) as log:
                gc.collect()
                streams = sides.some_streams(events, self.sizes.streams_asked)
                log.view("fields").get(streams[0], as_of=1)  # what is loaded once is not what is asked for
                asked = [sides.status_ms(log, stream) for stream in streams]
                spread_out = [sides.status_ms(log, sides.SPREAD) for _ in range(self.rounds)]
            yield Line("status", f"a stream, {store}", asked, 5.0, at_most=True, unit="ms")
            yield Line("status", f"the same, all over the log, {store}", spread_out, 5.0, at_most=True, unit="ms")

    def snapshot(self) -> Iterator[Line]:
        events, keys = self.sizes.large, self.sizes.keys
        store = "sqlite" if "sqlite" in self.urls else self.local()
        url = self.urls[store].format("snapshot")
        streams = sides.round_robin(keys)
        log = self.log(store, "snapshot", events, streams)
        replayed = events / sides.replay(log, events).events_s
        made = []
        for _ in range(self.rounds):
            for entry in log.views.snapshots.folder.entries("lanes"):
                entry.path.unlink()
            made.append(_seconds(lambda: log.view(Lanes).snapshot(full=True)))
        sides.fill(log, events + TAIL, streams, self.said)
        expected = log.view(Lanes).digest()
        opened = []
        for _ in range(self.rounds):
            sides.forget_states(log)
            log.close()
            log = wiring.open(url, catalog=CATALOG)
            opened.append(_seconds(log.view(Lanes).catch_up))
            if log.view(Lanes).digest() != expected:
                raise AssertionError("a snapshot and its tail do not say what a replay says")
        log.close()
        yield Line("snapshot", f"of {keys:,} keys, {store}", made, 3.0, at_most=True, unit="s")
        yield Line("snapshot", f"replay of {events:,} events, {store}", [replayed], unit="s", at_most=True)
        yield Line("snapshot", "opening from it", opened, unit="s", at_most=True)
        yield Line("snapshot", "replay / opening from it", [replayed / took for took in opened], 10.0)

    def memory(self) -> Iterator[Line]:
        events, store = self.sizes.memory, self.local()
        self.log(store, "memory", events, sides.round_robin(max(200, events // 100))).close()
        peak, before = sides.peak_mb(self.urls[store].format("memory"))
        yield Line("memory", f"before a replay, {store}", [before], unit="MB", at_most=True)
        yield Line("memory", f"peak of a replay of {events:,}, {store}", [peak], 300, at_most=True, unit="MB")

    def _rounds(self, name: str, jobs: dict[str, Any]) -> Rounds:
        gc.collect()
        gc.freeze()
        try:
            return interleave([Contest(name, jobs)], rounds=self.rounds, progress=self.said)[name]
        finally:
            gc.unfreeze()


PARTS: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "fold": Bench.fold,
    "peers": Bench.peers,
    "processes": Bench.processes,
    "status": Bench.status,
    "snapshot": Bench.snapshot,
    "memory": Bench.memory,
}


def _ratio(part: str, what: str, rounds: Rounds, over: str, under: str, must: float | None = None) -> Line:
    values = [samples[over].events_s / samples[under].events_s for samples in rounds]
    best = {side: max(samples[side].events_s for samples in rounds) for side in (over, under)}
    return Line(part, what, values, must, quiet=best[over] / best[under])


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def shown(line: Line) -> str:
    low, high = spread(line.values)[1:]
    bound = "" if line.must is None else f"{'<=' if line.at_most else '>='} {line.must:g} {line.unit}"
    verdict = {None: "", True: "  met", False: "  MISSED"}[line.met]
    if line.met is False and (line.best <= line.must if line.at_most else line.best >= line.must):  # type: ignore[operator]
        verdict = "  MISSED by the median, met by the best"
    figures = f"{line.middle:9.2f} {line.best:9.2f}   {low:.2f} to {high:.2f}"
    return f"{line.part:10} {line.what:42} {line.unit:>3} {figures:38} {bound:>11}{verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="small sizes; a look, not a measurement")
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--store", nargs="*", choices=STORES, default=list(STORES))
    parser.add_argument("--large", type=int, help="events of the logs for status and snapshots")
    parser.add_argument("--memory-events", type=int, help="events that are replayed for memory")
    parser.add_argument("--directory", type=Path, default=None, help="where to write; on a disk")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    given = parser.parse_args()
    sizes = QUICK if given.quick else FULL
    sizes = sizes._replace(large=given.large or sizes.large, memory=given.memory_events or sizes.memory)

    def said(text: str) -> None:
        print(text, file=sys.stderr)

    lines: list[Line] = []
    if not given.json:
        print(f"{'':10} {'':42} {'':>3} {'median':>9} {'best':>9}   {'range':24} {'must':>11}")
    with tempfile.TemporaryDirectory(prefix="everlog-views-", dir=choose_directory(given.directory)) as name:
        bench = Bench(Path(name), sizes, given.rounds, given.store, said)
        with bench.open:
            for part in given.only:
                for line in PARTS[part](bench):
                    lines.append(line)
                    if not given.json:
                        print(shown(line), flush=True)
    if given.json:
        print(json.dumps([{**line._asdict(), "met": line.met} for line in lines]))
    return 0 if all(line.met is not False for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
