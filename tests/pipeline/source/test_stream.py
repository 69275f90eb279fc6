"""A log as a stream of Spark: goes on where it was, exactly once, and never over a hole."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from tests.pipeline import follower
from tests.pipeline.logs import KINDS, add, open_log, url_in

from everlog import Log
from everlog.core.event import Position
from everlog.errors import EverlogError, HistoryChanged, InvalidSettings
from everlog.log.read.resets import proof_at
from everlog.pipeline.session.failures import CarriedError, everlog_error, own_errors
from everlog.pipeline.source.rows import EVENT_SCHEMA, record_of
from everlog.pipeline.source.source import EverlogPartition, SourceOptions
from everlog.pipeline.source.stream import EverlogStream, Offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[3]
ALL = ReadAllAvailable()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return url_in(tmp_path, "sqlite")


def stream_of(url: str, **options: str) -> EverlogStream:
    given = {"url": url, **options}
    return EverlogStream(SourceOptions(given, EVENT_SCHEMA), given)


def positions(stream: EverlogStream, start: Offset, end: Offset) -> list[int]:
    found = []
    for partition in stream.partitions(start, end):
        for batch in stream.read(partition):
            found += batch.column("position").to_pylist()
    return found


def changed(work: Callable[[], object]) -> HistoryChanged:
    with pytest.raises(CarriedError) as caught:
        work()
    error = everlog_error(caught.value, "streaming")
    assert isinstance(error, HistoryChanged)
    return error


# ---- offsets


def test_an_offset_is_a_cursor(url: str) -> None:
    with open_log(url) as log:
        add(log, 30)
        stream = stream_of(url)
        start = stream.initialOffset()
        end = stream.latestOffset(start, ALL)
        about = {"log": log.identity.log_id, "epoch": log.identity.epoch, "knows": 0}
        proof = proof_at(log.stored, Position(30))
    assert start == {**about, "position": 0, "proof": ""}
    assert end == {**about, "position": 30, "proof": proof}
    assert proof
    assert positions(stream, start, end) == list(range(1, 31))
    assert stream.latestOffset(end, ALL) == end
    assert stream.partitions(end, end) == []
    assert stream.reportLatestOffset() == end


def test_a_batch_takes_no_more_than_was_asked_for(url: str) -> None:
    with open_log(url) as log:
        add(log, 25)
    stream = stream_of(url, maxEventsPerTrigger="10")
    limit: ReadLimit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    offset, ends = stream.initialOffset(), []
    while (following := stream.latestOffset(offset, limit)) != offset:
        offset = following
        ends.append(offset["position"])
    assert ends == [10, 20, 25]
    assert stream_of(url).getDefaultReadLimit() == ALL


def test_available_now_ends_at_the_head_that_it_met(url: str) -> None:
    with open_log(url) as log:
        add(log, 10)
        stream = stream_of(url)
        stream.prepareForTriggerAvailableNow()
        add(log, 10)
        offset = stream.latestOffset(stream.initialOffset(), ALL)
        assert offset["position"] == 10
        assert stream.latestOffset(offset, ALL) == offset


def test_a_stream_begins_after_a_cursor_and_ends_at_a_position(url: str) -> None:
    with open_log(url) as log:
        add(log, 30)
        cursor = log.page_after(0, limit=7).next_cursor
    stream = stream_of(url, after=str(cursor), upto="20")
    start = stream.initialOffset()
    assert positions(stream, start, stream.latestOffset(start, ALL)) == list(range(8, 21))


def test_a_limit_that_is_no_number_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings, match="maxEventsPerTrigger"):
        stream_of(url, maxEventsPerTrigger="many")


# ---- history that changed


def test_a_purge_is_reported_once_and_the_stream_continues_when_it_is_known(url: str) -> None:
    with open_log(url) as log:
        add(log, 40)
        stream = stream_of(url)
        offset = stream.latestOffset(stream.initialOffset(), ALL)
        purge = log.purge("note/3", reason="a test")
        add(log, 5, first=40)

        error = changed(lambda: stream.latestOffset(offset, ALL))
        assert error.details["reason"] == "purged"
        proof = proof_at(log.stored, purge.reserved)
        assert error.details["reset"] == f"{purge.reserved}@{log.identity.epoch}.{proof}"

        knowing = stream_of(url, knows=str(purge.reserved))
        end = knowing.latestOffset(offset, ALL)
        assert positions(knowing, offset, end) == [42, 43, 44, 45, 46]
        assert stream_of(url).latestOffset(end, ALL) == end, "an offset behind it needs to know no more"
        log.purge("thing/2", reason="another")
        assert changed(lambda: knowing.latestOffset(end, ALL)).details["reason"] == "purged"


def test_a_stream_from_the_beginning_does_not_meet_old_purges(url: str) -> None:
    with open_log(url) as log:
        add(log, 40)
        log.purge("note/3", reason="a test")
        add(log, 40)
        expected = [recorded.position for recorded in log.read()]
    stream = stream_of(url, maxEventsPerTrigger="9")
    offset, found = stream.initialOffset(), []
    while (following := stream.latestOffset(offset, ReadMaxRows(9))) != offset:
        found += positions(stream, offset, following)
        offset = following
    assert found == expected


def test_a_purge_elsewhere_does_not_concern_a_stream_with_a_query(url: str) -> None:
    with open_log(url) as log:
        add(log, 40)
        stream = stream_of(url, stream="thing/2")
        offset = stream.latestOffset(stream.initialOffset(), ALL)
        log.purge("note/3", reason="a test")
        assert stream.latestOffset(offset, ALL)["position"] == 41
        log.purge("thing/2", reason="a test")
        assert changed(lambda: stream.latestOffset(offset, ALL)).details["reason"] == "purged"


def test_a_purge_between_planning_and_reading_is_reported_by_the_worker(url: str) -> None:
    with open_log(url) as log:
        add(log, 40)
        stream = stream_of(url, placeEvents="10")
        start = stream.initialOffset()
        end = stream.latestOffset(start, ALL)
        log.purge("note/3", reason="a test")
    assert changed(lambda: positions(stream, start, end)).details["reason"] == "purged"


@pytest.mark.parametrize("kind", KINDS)
def test_an_older_copy_in_its_place_is_reported(tmp_path: Path, kind: str) -> None:
    url, place = url_in(tmp_path, kind), tmp_path / ("sqlite.db" if kind == "sqlite" else kind)
    with open_log(url) as log:
        add(log, 20)
    kept = tmp_path / "kept"
    (shutil.copy if kind == "sqlite" else shutil.copytree)(place, kept)
    with open_log(url) as log:
        add(log, 20)
    stream = stream_of(url)
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)

    for path in (tmp_path / "sqlite.db-wal", tmp_path / "sqlite.db-shm"):
        path.unlink(missing_ok=True)
    if kind != "sqlite":
        shutil.rmtree(place)
    kept.replace(place)
    assert changed(lambda: stream.latestOffset(end, ALL)).details["reason"] == "restored"
    assert changed(lambda: positions(stream, start, end)).details["reason"] == "restored"


def test_another_log_in_its_place_is_reported(url: str, tmp_path: Path) -> None:
    with open_log(url) as log:
        add(log, 20)
    stream = stream_of(url)
    offset = stream.latestOffset(stream.initialOffset(), ALL)
    for path in tmp_path.glob("sqlite.db*"):
        path.unlink()
    with open_log(url) as log:
        add(log, 40)
    assert changed(lambda: stream.latestOffset(offset, ALL)).details["reason"] == "another_log"


def test_a_partition_of_nothing_is_empty(url: str) -> None:
    from pyspark.sql.datasource import InputPartition

    open_log(url).close()
    assert list(stream_of(url).read(InputPartition(None))) == []
    assert not isinstance(InputPartition(None), EverlogPartition)


# ---- through Spark


class Sink:
    """Takes batches, and remembers what was in each."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = [record_of(row) for row in batch.orderBy("position").collect()]

    @property
    def records(self) -> list[Any]:
        return [record for _, batch in sorted(self.batches.items()) for record in batch]


def run(spark: SparkSession, url: str, folder: Path, **options: object) -> Sink:
    """Follow a log up to its head."""
    sink = Sink()
    stream = spark.readStream.format("everlog").options(url=url, **options).load()  # type: ignore[arg-type]
    writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
    with own_errors("streaming"):
        writer.trigger(availableNow=True).start().awaitTermination()
    return sink


def test_a_query_continues_where_it_was(spark: SparkSession, tmp_path: Path, url: str) -> None:
    with open_log(url) as log:
        add(log, 50)
        first = run(spark, url, tmp_path, maxEventsPerTrigger=20)
        assert [len(batch) for batch in first.batches.values()] == [20, 20, 10]
        add(log, 15)
        second = run(spark, url, tmp_path, maxEventsPerTrigger=20)
        assert [*first.records, *second.records] == list(log._store.read())


def test_a_purge_ends_a_query_with_our_error(spark: SparkSession, tmp_path: Path, url: str) -> None:
    with open_log(url) as log:
        add(log, 20)
        run(spark, url, tmp_path)
        purge = log.purge("note/3", reason="a test")
        with pytest.raises(HistoryChanged) as caught:
            run(spark, url, tmp_path)
        assert caught.value.details["reset"].startswith(str(purge.reserved))
        add(log, 3)
        sink = run(spark, url, tmp_path, knows=purge.reserved)
        assert [record.position for record in sink.records] == [22, 23, 24]


def test_a_live_log_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "segments")
    sink = Sink()
    with open_log(url) as log:
        stream = spark.readStream.format("everlog").option("url", url).load()
        writer = stream.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(processingTime="0 seconds").start()
        try:
            for number in range(3):
                add(log, 10, first=10 * number)
                wait_for(lambda: len(sink.records) == log.head(), query)
        finally:
            query.stop()
        assert sink.records == list(log._store.read())


def wait_for(true: Callable[[], bool], query: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not true():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < until, "nothing came for a minute"
        time.sleep(0.05)


# ---- killed


class Writer(threading.Thread):
    """Appends until it is stopped: a driver that is to be killed must have something to do."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log
        self._stop_it = threading.Event()

    def run(self) -> None:
        while not self._stop_it.wait(0.1):
            add(self._log, 20, first=int(self._log.head()))

    def stop(self) -> None:
        self._stop_it.set()
        self.join()


def kill_and_resume(tmp_path: Path, kind: str, kills: int) -> None:
    """Kill the driver in the middle again and again while the log grows, then come to the end in this process."""
    url, rng = url_in(tmp_path, kind), random.Random(kills)
    (tmp_path / "batches").mkdir()
    with open_log(url) as log:
        add(log, 1000)
        writer = Writer(log)
        writer.start()
        try:
            for _ in range(kills):
                driver = follow(url, tmp_path)
                assert driver.stdout is not None
                for _ in range(rng.randrange(1, 4)):
                    assert driver.stdout.readline().startswith("batch"), "the driver ended by itself"
                time.sleep(rng.random() * 0.3)
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                driver.stdout.close()
        finally:
            writer.stop()
        follower.main(url, tmp_path, now=True)
        kept = [
            line.split(" ", 2)[:2]
            for path in sorted((tmp_path / "batches").glob("[0-9]*"))
            for line in path.read_text().splitlines()
        ]
        assert kept == [[str(recorded.position), recorded.event.id] for recorded in log._store.read()]
        assert len(kept) > 1000


def follow(url: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.follower", url, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that the JVM and the workers go with it
    )


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_killed_driver_continues_exactly_once(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, "segments", kills=1)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_is_killed_ten_times_continues_exactly_once(tmp_path: Path, kind: str) -> None:
    kill_and_resume(tmp_path, kind, kills=10)


def test_an_error_of_another_kind_is_not_taken_for_ours() -> None:
    error = everlog_error(ValueError("something"), "streaming")
    assert isinstance(error, EverlogError)
    assert error.code == "spark_failed"
