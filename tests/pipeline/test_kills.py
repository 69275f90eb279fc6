"""The driver is killed with -9, in the middle of a run and of a stream: the lake is the log, nothing twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.test_stream_run import committed, following
from tests.pipeline.world import World

from everlog import Draft
from everlog.pipeline.lake.table import Table
from everlog.pipeline.stream_run import CHECKPOINT

ROOT = Path(__file__).parents[2]
START_S_MAX = 240.0


@contextmanager
def driver(world: World, what: str) -> Iterator[subprocess.Popen[str]]:
    """A driver in a process group of its own, all of which is gone in the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.driver", what, world.url, str(world.lake.path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # Spark's own processes too, which may outlive their driver
        except ProcessLookupError:
            assert process.poll() is not None
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def until_it_says(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    watchdog = threading.Timer(START_S_MAX, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if line.strip() == word:
                return
    finally:
        watchdog.cancel()
    pytest.fail(f"the driver ended, or took too long, before it said {word}")


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def say_many(world: World, count: int, words: str) -> None:
    drafts = [
        Draft("note.added", f"note/{number % 97}", {"text": f"{words} {number}"})
        if number % 3
        else Draft("deploy.done", f"deploy/{number % 11}", {"outcome": "ok", "minutes": number})
        for number in range(count)
    ]
    for start in range(0, count, 1000):
        world.log.append_batch(drafts[start : start + 1000])


def held(table: Table, *columns: str) -> list[tuple[object, ...]]:
    """What a table has, by its list of files and without Spark."""
    parts = [pq.read_table(path, columns=list(columns)) for path in table.paths()]
    rows = pa.concat_tables(parts).sort_by("position") if parts else pa.table({name: [] for name in columns})
    return list(zip(*(rows[name].to_pylist() for name in columns), strict=True))


def assert_lake_is_log(world: World) -> None:
    there = [(recorded.position, recorded.event.id, recorded.event.type) for recorded in world.log._store.read()]
    assert held(world.lake.events, "position", "id", "type") == there
    for event_type in ("note.added", "deploy.done"):
        mine = [(position, id) for position, id, type_ in there if type_ == event_type]
        assert held(world.lake.silver(event_type), "position", "id") == mine
    assert world.lake.quarantine.rows() == 0


# Moments in a run, by what can be seen on the disk: a file that was not there before.
MOMENTS = {
    "events are being written": "events/data/**/*",
    "events are committed": "events/_delta_log/*.json",
    "typed rows are being written": "silver/*/data/**/*",
    "a typed table is committed": "silver/*/_delta_log/*.json",
    "the quarantine is committed": "quarantine/_delta_log/*.json",
}


def kill_runs(world: World, kills: int, events: int, seed: int) -> None:
    choose = random.Random(seed)
    moments = list(MOMENTS.items())
    hits = 0
    for number in range(kills):
        say_many(world, events, f"round {number}")
        moment, pattern = moments[(seed + number) % len(moments)]
        before = set(world.lake.path.glob(pattern))
        with driver(world, "run") as process:
            until_it_says(process, "started")
            while process.poll() is None and set(world.lake.path.glob(pattern)) <= before:
                time.sleep(0.002)
            time.sleep(choose.uniform(0, 0.02))
            hits += process.poll() is None
            kill(process)
        print(f"killed when {moment}")
    assert hits, "no run was killed before its end"
    world.run()
    assert_lake_is_log(world)
    assert world.run().changed is False


def kill_streams(world: World, kills: int, seed: int) -> None:
    choose = random.Random(seed)
    batches = world.lake.path / CHECKPOINT / "commits"
    for number in range(kills):
        before = set(batches.glob("*"))
        with driver(world, "stream") as process:
            until_it_says(process, "started")
            deadline, end, part = time.monotonic() + START_S_MAX, None, 0
            while end is None or time.monotonic() < end:  # a live writer, that does not care who reads
                say_many(world, 20, f"round {number}, part {part}")
                part += 1
                time.sleep(0.1)
                if end is None and set(batches.glob("*")) - before:  # it follows now, and this is the middle of it
                    end = time.monotonic() + choose.uniform(0.0, 2.0)
                assert process.poll() is None, "it ended by itself"
                assert time.monotonic() < deadline, "it takes too long"
            kill(process)
        say_many(world, 100, f"after round {number}")
    with following(world) as running:  # with the checkpoint that the killed ones left, which gives a batch again
        running.until(lambda: committed(world) == world.log.head())
        say_many(world, 10, "live again")
        running.until(lambda: committed(world) == world.log.head())
        running.end()
    assert_lake_is_log(world)


@pytest.mark.spark
def test_a_driver_killed_in_the_middle_of_a_stream(world: World) -> None:
    kill_streams(world, 1, seed=2)


# The short form has of it that a stream begins with a run; lake/test_erase.py and tables/test_gold.py end runs at a
# commit.
@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_killed_ten_times_in_the_middle_of_runs(world: World) -> None:
    kill_runs(world, 10, 20_000, seed=3)


@pytest.mark.spark
@pytest.mark.slow
def test_a_driver_killed_ten_times_in_the_middle_of_streams(world: World) -> None:
    kill_streams(world, 10, seed=4)
