"""Fewer files, the same rows, and readers of old versions are given their time."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.pipeline.world import World

from everlog.core.query import Cursor
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake import buckets
from everlog.pipeline.lake.compact import compact
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.table import Table


def cursor(world: World) -> Cursor:
    held = world.lake.events.cursor(world.log.identity.epoch)
    assert held is not None
    return held


def two_runs(world: World, runs: int = 2) -> None:
    for number in range(runs):
        world.say(f"a {number}", stream="note/1")
        world.say(f"b {number}", stream="note/2")
        world.run()


def test_small_files_become_one_and_the_rows_stay(world: World) -> None:
    two_runs(world)
    before = world.rows("events")
    reader = world.lake.events.read(world.spark)

    done = {one.table: one for one in compact(world.spark, world.lake, epoch=cursor(world).epoch)}
    assert (done["events"].before, done["events"].after) == (2, 1)
    assert (done["silver/note.added"].before, done["silver/note.added"].after) == (2, 1)
    assert world.rows("events") == before, "what is published has other files and the same rows"
    assert world.same_as_the_log()
    (file,) = world.lake.events.files()
    assert (file.first, file.last) == (1, 4)
    assert reader.count() == 4, "old versions are kept for those who began with them"

    again = compact(world.spark, world.lake, epoch=cursor(world).epoch, kept_hours=0)
    assert sum(one.removed for one in again) == 4
    assert world.lake.events.unnamed() == []
    assert world.run().changed is False
    assert world.rows("events") == before


def test_what_a_killed_run_left_is_removed_when_it_is_old(world: World) -> None:
    two_runs(world, 1)
    world.lake.events.write(world.lake.events.read(world.spark), cursor=cursor(world))
    left = world.lake.events.unnamed()
    empty = world.lake.events.path / "data" / "of a write" / "_temporary"
    empty.mkdir(parents=True)
    compact(world.spark, world.lake, epoch=cursor(world).epoch)
    assert empty.is_dir(), "so may this"
    assert set(left) <= set(world.lake.events.unnamed()), "it may be of a run that is just now writing"

    long_ago = time.time() - 48 * 3600
    for path in (*left, empty):
        os.utime(path, (long_ago, long_ago))
    compact(world.spark, world.lake, epoch=cursor(world).epoch)
    assert not set(left) & set(world.lake.events.unnamed())
    assert not empty.exists()


def test_a_run_compacts_by_itself_when_there_are_too_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everlog.pipeline.run.SMALL_FILES_MAX", 2)
    two_runs(world, 3)
    assert len(world.lake.events.files()) == 1
    assert world.same_as_the_log()


def test_what_is_committed_during_a_compaction_is_not_published(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a stream: its own next refresh publishes it, with the tables that follow from it."""
    from everlog.pipeline.tables import bronze

    two_runs(world)
    write = Table.write

    def commit_beside(table: Table, *given: Any, **named: Any) -> list[DataFile]:
        monkeypatch.setattr(Table, "write", write)
        world.say("beside")
        upto = Cursor(world.log.head(), epoch=cursor(world).epoch)
        bronze.ingest(SparkEngine(world.spark), world.lake, world.url, upto=upto, prove=lambda position: "")
        return table.write(*given, **named)

    monkeypatch.setattr(Table, "write", commit_beside)
    compact(world.spark, world.lake, epoch=cursor(world).epoch)
    assert world.lake.events.rows() == 5
    assert len(world.rows("events")) == 4


def test_half_a_run_is_not_published_by_a_compaction(world: World) -> None:
    two_runs(world)
    world.say("not yet")
    from everlog.pipeline.tables import bronze

    upto = Cursor(world.log.head(), epoch=cursor(world).epoch)
    bronze.ingest(SparkEngine(world.spark), world.lake, world.url, upto=upto, prove=lambda position: "")
    compact(world.spark, world.lake, epoch=cursor(world).epoch)

    assert len(world.rows("events")) == 4
    world.run()
    assert len(world.rows("events")) == 5


# ---- buckets


def streams_in_order(path: Path) -> list[tuple[str, int]]:
    rows = pq.read_table(path, columns=["stream", "sequence"])
    return list(zip(rows["stream"].to_pylist(), rows["sequence"].to_pylist(), strict=True))


def test_a_stream_is_in_one_bucket_and_in_order(world: World) -> None:
    for number in range(40):
        world.say(f"text {number}", stream=f"note/{number % 7}")
    world.run()

    assert buckets.bring_up_to_date(world.spark, world.lake, upto=cursor(world)) == 40
    assert buckets.bring_up_to_date(world.spark, world.lake, upto=cursor(world)) == 0
    homes: dict[str, set[int]] = {}
    for number, files in buckets.files_by_bucket(world.lake).items():
        (file,) = files
        found = streams_in_order(world.lake.buckets.path / file.path)
        assert found == sorted(found)
        for stream, _ in found:
            homes.setdefault(stream, set()).add(number)
    assert len(homes) == 7
    assert all(len(numbers) == 1 for numbers in homes.values())


def test_what_is_new_goes_into_the_next_file_of_its_bucket(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        world.say(f"text {number}", stream="note/1")
        world.run()
        buckets.bring_up_to_date(world.spark, world.lake, upto=cursor(world))

    (files,) = buckets.files_by_bucket(world.lake).values()
    held = [row for file in files for row in streams_in_order(world.lake.buckets.path / file.path)]
    assert held == [("note/1", 1), ("note/1", 2)]

    # Too many of them are united on the way.
    monkeypatch.setattr(buckets, "BUCKET_FILES_MAX", 2)
    world.say("text 2")
    world.run()
    buckets.bring_up_to_date(world.spark, world.lake, upto=cursor(world))
    (files,) = buckets.files_by_bucket(world.lake).values()
    united = [streams_in_order(world.lake.buckets.path / file.path) for file in files]
    assert united == [[*held, ("note/1", 3)]]


def test_buckets_pay_for_many_folds_over_many_events() -> None:
    assert not buckets.pays(events=10_000_000, folds=1)
    assert not buckets.pays(events=10_000, folds=20)
    assert buckets.pays(events=10_000_000, folds=3)
