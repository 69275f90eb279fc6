"""Which engine runs, and why: `choose` is the one function that decides.

The local engine starts at once. Spark takes seconds to start, and is faster with many events, more cores, or other
machines. The figures were measured by rebuilding a view of 50,000 keys over a million events of a log in SQLite, with
both engines, on two shared cores: so they are processor time, that of Spark divided by two. On idle cores both are
faster; only the ratio matters.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import msgspec

from everlog.core.text import counted

LOCAL, SPARK = "process", "spark"

LOCAL_EVENTS_MAX = 20_000
"""A run of the pipeline over a log with no more positions than this is done by this process
(docs/how-to/spark/pipeline.md has the figures)."""

LOCAL_RATE = 46_000
"""Events per second that this process derives and keeps: a million took 21.7 s."""

CORE_RATE = 33_000
"""Events per second that each core adds on Spark, with the rows kept by the driver: a million took two cores 15.1 s,
once Java was warm."""

START_S = 18.0
"""Seconds until Spark has started (10.0), and what the first million takes longer than the second (7.9)."""


class Choice(msgspec.Struct, frozen=True):
    """The engine, and the reason in words."""

    engine: str
    why: str


def choose(
    events: int,
    *,
    asked_for: str = "",
    local_max: int | None = None,
    store: str = "",
    cores: int = 0,
    installed: bool | None = None,
) -> Choice:
    """Return the engine for this number of events, and why.

    `asked_for` is why the user wants Spark in any case. `local_max` is the number of events that this process takes;
    without it, the engine that is probably done first is chosen. `cores` are those that Spark would have.
    """
    if asked_for:
        return Choice(SPARK, asked_for)
    if local_max is not None:
        if events <= local_max:
            return Choice(
                LOCAL,
                f"{counted(events, 'event')}; up to {local_max:,} take less time here than Spark takes to start",
            )
        return Choice(SPARK, f"{counted(events, 'event')}; this process takes up to {local_max:,}")
    cores = cores or available_cores()
    local_s = events / LOCAL_RATE
    spark_s = START_S + events / (CORE_RATE * cores)
    here = f"{counted(events, 'event')} take one process about {_seconds(local_s)}"
    if store.startswith("memory:"):
        return Choice(LOCAL, f"{here}, and Spark cannot read a log in memory")
    if not (find_spec("pyspark") is not None if installed is None else installed):
        return Choice(LOCAL, f"{here}, and Spark is not installed")
    there = f"Spark on {cores} core{'s' * (cores != 1)} about {_seconds(spark_s)}"
    if local_s <= spark_s:
        return Choice(LOCAL, f"{here}, {there}")
    return Choice(SPARK, f"{there}, one process about {_seconds(local_s)} for {counted(events, 'event')}")


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 1 else "1 s or less"
