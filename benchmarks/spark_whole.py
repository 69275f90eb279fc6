"""Rows 10 and 11: ten million events through events, typed tables and a view, with a heap of 1 GB."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from benchmarks.bench.events import CATALOG
from benchmarks.bench.rounds import spread, timed
from benchmarks.figures import Figure
from benchmarks.spark import Bench, told
from benchmarks.spark_data import log_of

import everlog
from everlog.core.query import Cursor
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.tables import bronze, silver
from everlog.pipeline.tables.gold import gold_of
from everlog.views.view import View

KIND = "segments"


class Lanes(View):
    """The lane that a thing is in, and how often it moved."""

    name = "bench-lanes"
    types = ("bench.moved",)

    def initial(self) -> dict[str, object]:
        return {"lane": "", "moves": 0}

    def apply(self, state: dict[str, object], event: everlog.Event) -> dict[str, object]:
        return {"lane": event.payload["went_to"], "moves": int(str(state["moves"])) + 1}


class Measured(NamedTuple):
    small: dict[str, float]  # seconds, by step
    large: dict[str, float]
    memory_gb: float


_measured: dict[int, Measured] = {}


def row_10(bench: Bench) -> Iterator[Figure]:
    """the most memory that the JVM and its workers take together, on the whole way of many events"""
    yield Figure("10", f"{bench.large:,} events, whole way, GB", spread([_both(bench).memory_gb]), 2.5, at_most=True)


def row_11(bench: Bench) -> Iterator[Figure]:
    """what many events cost, against a tenth of them"""
    found = _both(bench)
    growth = sum(found.large.values()) / sum(found.small.values())
    yield Figure("11", f"cost of {bench.large:,} events, against a tenth", spread([growth]), 11.0, at_most=True)


def _both(bench: Bench) -> Measured:
    if id(bench) not in _measured:
        tenth = bench.large // 10
        _through(bench, tenth)  # what is started at first use
        small = _through(bench, tenth)
        with Memory() as memory:
            large = _through(bench, bench.large)
        for count, steps in ((tenth, small), (bench.large, large)):
            told(f"{count:,} events: " + ", ".join(f"{name} {took:.1f} s" for name, took in steps.items()))
        _measured[id(bench)] = Measured(small, large, memory.gb)
    return _measured[id(bench)]


def _through(bench: Bench, events: int) -> dict[str, float]:
    """A log through events, typed tables and a view; what each step took."""
    spark, url = bench.spark, log_of(bench.directory, KIND, events, by_itself=True)
    with bench.scratch() as scratch, everlog.open(url, catalog=CATALOG, create=False) as log:
        lake = Lake.open(scratch / "lake", log_id=log.identity.log_id, create=True)
        upto = Cursor(log.head(), epoch=log.identity.epoch)
        gold = gold_of(lake, [Lanes()], log.catalog)
        engine = SparkEngine(spark)
        steps = {
            "events": lambda: bronze.ingest(engine, lake, url, upto=upto, prove=lambda position: ""),
            "typed": lambda: silver.bring_up_to_date(engine, lake, log.catalog, upto=upto),
            "view": lambda: gold.bring_up_to_date(engine, lake, upto=upto),
        }
        return {name: 1 / timed(1, work).events_s for name, work in steps.items()}


class Memory:
    """The most that the processes below this one take together, each page counted once (PSS)."""

    def __init__(self) -> None:
        self.gb = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.5):
            self.gb = max(self.gb, sum(map(_pss_kb, _below(os.getpid()))) / 1024**2)


def _below(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue  # it has ended
        for child in map(int, children):
            yield child
            yield from _below(child)


def _pss_kb(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
