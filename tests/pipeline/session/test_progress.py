"""What Spark says of a job under way: stages, tasks and rows, and the check that runs one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Result, everlog, place
from tests.pipeline.logs import add, open_log, url_in

from everlog.pipeline.session.progress import Status, watched
from everlog.pipeline.source.source import events

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["everlog", "place"]


def test_a_job_is_watched_while_it_runs(spark: SparkSession) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.5)
        yield from batches

    reported: list[Status] = []
    spark.range(10).count()  # of before, and not to be counted
    with watched(spark, reported.append):
        spark.range(0, 1000, 1, 6).mapInArrow(slowly, "id long").count()
    last = reported[-1]
    assert (last.tasks, last.part, last.stages_done) == (last.tasks_done, 1.0, last.stages)
    assert last.tasks >= 6
    assert any(0 < status.tasks_done < status.tasks for status in reported), "nothing was seen on the way"


def test_the_rows_of_our_source_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "sqlite")
    with open_log(url) as log:
        add(log, 300)
    reported: list[Status] = []
    with watched(spark, reported.append) as look:
        events(spark, url).count()
        before = look()
        events(spark, url).count()
    assert (reported[-1].rows, reported[-1].since(before).rows) == (600, 300)


def test_a_failed_job_ends_the_watch_as_well(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), watched(spark, lambda status: None):
        raise ZeroDivisionError


def test_check_goes_through_every_step(
    spark: SparkSession, everlog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    everlog("init")
    everlog("append", "note.added", "-s", "note/1", "text=hello")
    found = everlog("pipeline", "check", "--json")
    assert found.code == 0
    assert [(step["id"], step["status"]) for step in found.data] == [
        (name, "ok") for name in ("libraries", "java", "start", "job", "log")
    ]
    assert "its last 1 event" in found.data[-1]["detail"]
    assert spark.range(3).count() == 3, "the session that was there before goes on"


def test_check_without_a_log_says_so(spark: SparkSession, everlog: Callable[..., Result]) -> None:
    found = everlog("pipeline", "check")
    assert found.code == 0
    assert found.rows[-1][:2] == ["skip", "log"]
