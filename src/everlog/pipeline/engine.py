"""Which engine derives a view anew: this one process, or Spark; and why.

One process folds at once. Spark has to start first, and wins where there are many events, more cores, or other
machines.

The figures below were measured with `Handle.rebuild`, here and with `derive_on`, over a million events of a log in
SQLite and 50,000 keys, on two cores that others used at the same time: so by processor time, that of Spark divided by
two. On cores of one's own all of them are better; what is compared is how they stand to each other.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import msgspec

PROCESS, SPARK = "process", "spark"

PROCESS_RATE = 46_000
"""Events a second that one process derives and keeps: a million took 21.7 s."""

CORE_RATE = 33_000
"""Events a second that each core adds on Spark, with the rows kept by the driver: a million took two cores 15.1 s,
once Java was warm."""

START_S = 18.0
"""Seconds until Spark has started (10.0), and what the first million takes longer than the second (7.9)."""


class Advice(msgspec.Struct, frozen=True):
    """The engine to take, and the reason in words."""

    engine: str
    why: str
    process_s: float
    spark_s: float


def advise(events: int, *, cores: int = 0, installed: bool | None = None, store: str = "") -> Advice:
    """What to derive a view of so many events with. `cores` are those that Spark would have."""
    cores = cores or available_cores()
    process_s = events / PROCESS_RATE
    spark_s = START_S + events / (CORE_RATE * cores)
    told = f"{events:,} events take one process about {_seconds(process_s)}"
    if store.startswith("memory:"):
        return Advice(PROCESS, f"{told}, and Spark cannot read a log in memory", process_s, spark_s)
    if not (find_spec("pyspark") is not None if installed is None else installed):
        return Advice(PROCESS, f"{told}, and Spark is not installed", process_s, spark_s)
    there = f"Spark on {cores} core{'s' * (cores != 1)} about {_seconds(spark_s)}"
    if process_s <= spark_s:
        return Advice(PROCESS, f"{told}, {there}", process_s, spark_s)
    return Advice(
        SPARK, f"{there}, one process about {_seconds(process_s)} for {events:,} events", process_s, spark_s
    )


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 1 else "1 s or less"
