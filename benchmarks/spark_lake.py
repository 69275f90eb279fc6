"""Rows 4 and 9: the way into the lake, against Spark's own JSON to Parquet, and how soon an event is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench.events import CATALOG, Pool
from benchmarks.bench.rounds import Contest, Sample, spread, timed
from benchmarks.figures import Figure
from benchmarks.spark import Bench, told
from benchmarks.spark_data import log_of
from benchmarks.spark_whole import Lanes

import everlog
from everlog.core.query import Cursor
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.source.rows import EVENT_SCHEMA
from everlog.pipeline.stream_run import Commit, Follower
from everlog.pipeline.tables import bronze
from everlog.pipeline.tables.gold import gold_of

KIND = "segments"
ROUNDS = 2  # of ten million events
APPENDS, WARM_UP = 60, 5
WAIT_S = 60.0


def row_4(bench: Bench) -> Iterator[Figure]:
    """a log into the events' table, against the same events from JSON lines to Parquet by Spark itself"""
    url = log_of(bench.directory, KIND, bench.large, by_itself=True)
    lines = _json_lines(bench, url)
    with everlog.open(url, catalog=CATALOG, create=False) as log:
        upto, log_id = Cursor(log.head(), epoch=log.identity.epoch), log.identity.log_id

    def ours() -> Sample:
        with bench.scratch() as scratch:
            lake = Lake.open(scratch / "lake", log_id=log_id, create=True)
            engine = SparkEngine(bench.spark)
            return timed(bench.large, lambda: bronze.ingest(engine, lake, url, upto=upto, prove=lambda position: ""))

    def sparks() -> Sample:
        with bench.scratch() as scratch:
            rows = bench.spark.read.schema(EVENT_SCHEMA).json(str(lines))
            return timed(bench.large, lambda: rows.write.parquet(str(scratch / "out"), compression="zstd"))

    found = bench.compare(Contest("4", {"ours": ours, "json": sparks}), "ours", "json", rounds=ROUNDS)
    yield Figure("4", f"ingest of {bench.large:,} from {KIND}, against JSON to Parquet", found, 0.75)


def _json_lines(bench: Bench, url: str) -> Path:
    """The same events as files of JSON lines, made once; the payload is an object, as other programs write it."""
    from pyspark.sql import functions as sql

    from everlog.pipeline.source.source import events as source

    target = bench.directory / f"json-{bench.large}"
    draft = target.with_name("." + target.name)
    if not target.exists():
        started = time.monotonic()
        rows = source(bench.spark, url)
        header = sql.to_json(sql.struct(*(name for name in rows.columns if name != "payload")))
        line = sql.concat(sql.expr("substring(j, 1, length(j) - 1)"), sql.lit(',"payload":'), "payload", sql.lit("}"))
        rows.select(header.alias("j"), "payload").select(line.alias("value")).write.text(str(draft))
        draft.rename(target)
        told(f"made {target.name} in {time.monotonic() - started:.0f} s")
    return target


def row_9(bench: Bench) -> Iterator[Figure]:
    """seconds from the append of an event to its commit in the lake, of events that come one after the other"""
    with bench.scratch() as scratch:
        lags = _lags(bench, scratch)[WARM_UP:]  # the first ones start what stays up
    told(f"95 of 100 within {sorted(lags)[int(len(lags) * 0.95)]:.2f} s, {len(lags)} appends")
    yield Figure("9", "append to committed in the lake, seconds", spread(lags), 0.5, at_most=True)


def _lags(bench: Bench, scratch: Path) -> list[float]:
    lags: list[float] = []
    there, stop = threading.Condition(), threading.Event()

    def committed(commit: Commit) -> None:
        with there:
            lags.append(commit.lag_s)
            there.notify_all()

    url, pool = f"sqlite:{scratch / 'log.db'}", Pool(1000)
    with everlog.open(url, catalog=CATALOG, actor="system") as log:
        log.append_batch(pool.mixed(1000))
        lake = Lake.open(scratch / "lake", log_id=log.identity.log_id, create=True)
        gold = gold_of(lake, [Lanes()], log.catalog)
        follower = Follower(bench.spark, log, url, lake, gold=gold, committed=committed)
        thread = threading.Thread(target=follower.run, args=(stop,))
        thread.start()
        try:
            for _ in range(APPENDS + WARM_UP):
                wanted = len(lags) + 1  # nothing is under way now
                log.append_batch(pool.mixed(1))
                with there:
                    if not there.wait_for(lambda: len(lags) >= wanted, timeout=WAIT_S):  # noqa: B023 - waited for here
                        raise SystemExit("the stream commits nothing")
                time.sleep(0.05)
        finally:
            stop.set()
            thread.join()
    return lags
