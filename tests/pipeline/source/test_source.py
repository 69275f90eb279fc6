"""A log as a table of Spark: every store, every event once, as it was logged; what cannot be read says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipeline.logs import KINDS, add, open_log, url_in
from tests.support.sqlite_edits import edit

from everlog.core.codec import pack
from everlog.core.event import START, Position
from everlog.core.query import Query
from everlog.errors import Damaged, EverlogError, HistoryChanged, InvalidSettings, NewerFormat, NotFound
from everlog.pipeline.session.failures import own_errors
from everlog.pipeline.source import ranges
from everlog.pipeline.source.rows import EVENT_SCHEMA, packed_of, record_of, records_of
from everlog.pipeline.source.source import events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = 500


@pytest.fixture(params=[*KINDS, "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a log that is not there yet, of every kind of store."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return url_in(tmp_path, request.param)


def collected(frame: DataFrame) -> list[object]:
    return [record_of(row) for row in frame.orderBy("position").collect()]


# ---- what is read


def test_every_event_comes_once_and_as_it_was_logged(spark: SparkSession, url: str) -> None:
    with open_log(url) as log:
        add(log, EVENTS)
        frame = spark.read.format("everlog").option("url", url).option("placeEvents", 97).load()
        assert frame.schema == EVENT_SCHEMA
        assert frame.rdd.getNumPartitions() == 6
        rows = frame.orderBy("position").collect()
        stored = list(log._store.read())
        assert [record_of(row) for row in rows] == stored
        assert [packed_of(row) for row in rows] == [pack(recorded) for recorded in stored]
        assert [packed_of(row) for row in rows] == list(log._store.slots())


def test_what_was_purged_is_not_there(spark: SparkSession, url: str) -> None:
    with open_log(url) as log:
        add(log, 100)
        log.purge("note/3", reason="a test")
        add(log, 30, first=100)
        found = collected(events(spark, url))
        assert found == list(log._store.read())
        assert len(found) < 130


def test_an_empty_log_has_the_columns_and_no_row(spark: SparkSession, url: str) -> None:
    open_log(url).close()
    frame = events(spark, url)
    assert (frame.count(), frame.schema) == (0, EVENT_SCHEMA)


QUERIES = {
    "a type": Query(types=frozenset(("note.added",))),
    "two types": Query(types=frozenset(("note.added", "thing.said", "no.such"))),
    "a stream": Query(stream="note/3"),
    "a kind": Query(kind="thing"),
    "a scope and what is below": Query(scope="acme"),
    "an actor": Query(actor="user:ada"),
    "nobody": Query(actor="user:bob"),
    "a correlation": Query(correlation_id="c2", kind="note"),
}


def test_a_query_reads_what_the_log_itself_would(url: str) -> None:
    """In this process, because every job of Spark takes a second; the next test goes through Spark."""
    with open_log(url) as log:
        middle = add(log, EVENTS)[EVENTS // 2].received_at
        seen = ranges.look(url)
        times = {"since": Query(since=middle), "until": Query(until=middle, kind="note")}
        for name, query in {**QUERIES, **times}.items():
            cut = ranges.cut(url, seen, query, Position(20), Position(480), 97)
            found = [one for place in cut for batch in ranges.batches(place) for one in records_of(batch)]
            assert found == list(log._store.read(query, after=Position(20), upto=Position(480))), name


def test_the_options_of_a_query_reach_the_log(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "segments")
    with open_log(url) as log:
        add(log, EVENTS)
        query = Query(types=frozenset(("note.added",)), scope="acme", kind="note")
        expected = list(log._store.read(query, after=Position(20), upto=Position(480)))
        assert len(expected) > 5
        assert collected(events(spark, url, query, after=20, upto=480)) == expected


def test_some_columns_are_enough(spark: SparkSession, url: str) -> None:
    with open_log(url) as log:
        add(log, 50)
    rows = events(spark, url, columns=("type", "position")).orderBy("position").collect()
    assert rows[0] == ("note.added", 1)
    assert len(rows) == 50


def test_a_table_of_a_growing_log_stands_for_one_moment(spark: SparkSession, tmp_path: Path) -> None:
    with open_log(url_in(tmp_path, "sqlite")) as log:
        add(log, 10)
        frame = events(spark, url_in(tmp_path, "sqlite"))
        assert frame.count() == 10
        add(log, 10)
        assert frame.count() == 10
        assert events(spark, url_in(tmp_path, "sqlite")).count() == 20


def test_reading_leaves_every_file_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """G11. The index of a JSONL log is derived, and up to date when its writer has closed it."""
    for kind in KINDS:
        with open_log(url_in(tmp_path, kind)) as log:
            add(log, 100)
    before = dict(_contents(tmp_path))
    for kind in KINDS:
        assert events(spark, url_in(tmp_path, kind)).count() == 100
    assert dict(_contents(tmp_path)) == before


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        # SQLite's memory of who reads, and its journal, which is empty.
        if path.is_file() and not path.name.endswith("-shm") and path.stat().st_size:
            yield str(path), path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_is_read_while_its_writer_holds_it(tmp_path: Path, kind: str) -> None:
    url = url_in(tmp_path, kind)
    with open_log(url) as log:
        add(log, 20)
        with log._store.open_write():  # an open write keeps every lock that there is
            (place,) = ranges.cut(url, ranges.look(url), Query(), START, Position(20), 100)
            assert sum(batch.num_rows for batch in ranges.batches(place)) == 20


# ---- what Spark does with filters


def test_spark_mixes_up_the_filters_of_two_queries(spark: SparkSession) -> None:
    """The reason of docs/decisions/0019. When this fails, Spark has mended it, and filters can be pushed down."""
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, GreaterThan, InputPartition

    class Ten(DataSource):
        def schema(self) -> str:
            return "position long"

        def reader(self, schema: object) -> DataSourceReader:
            class Reader(DataSourceReader):
                low = 0

                def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
                    for each in filters:
                        if isinstance(each, GreaterThan):
                            self.low = each.value
                        yield each

                def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
                    yield pa.RecordBatch.from_pydict({"position": list(range(self.low + 1, 11))})

            return Reader()

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        spark.dataSource.register(Ten)
        frame = spark.read.format("Ten").load()
        assert frame.where("position > 7").count() == 3
        assert frame.count() == 3, "and not 10"
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_two_filters_over_one_table_do_not_meet(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "sqlite")
    with open_log(url) as log:
        add(log, 100)
    frame = events(spark, url)
    assert frame.where("position > 90").count() == 10
    assert frame.count() == 100
    assert frame.where("type = 'note.added'").union(frame.where("position > 90")).count() == 30


# ---- what cannot be read


def refused(frame: DataFrame) -> EverlogError:
    with pytest.raises(EverlogError) as caught, own_errors("reading the log"):
        frame.collect()
    return caught.value


def test_a_log_that_is_not_there_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    error = refused(events(spark, f"sqlite:{tmp_path}/none.db"))
    assert isinstance(error, NotFound)
    assert "none.db" in error.what


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs the option url"),
        ({"url": "memory:"}, "cannot be read by Spark"),
        ({"url": "mongo:x"}, "is not the URL of a log"),
        ({"url": "sqlite:x", "after": "often"}, "is not a cursor"),
        ({"url": "sqlite:x", "upto": "-1"}, "the option upto"),
        ({"url": "sqlite:x", "placeEvents": "0"}, "the option placeEvents"),
        ({"url": "sqlite:x", "since": "yesterday"}, "the option since"),
        ({"url": "sqlite:x", "until": "2026-01-01T00:00:00"}, "the option until"),
    ],
)
def test_options_that_make_no_sense_are_reported(spark: SparkSession, options: dict[str, str], words: str) -> None:
    with pytest.raises(EverlogError, match=words), own_errors("reading the log"):
        spark.read.format("everlog").options(**options).load().collect()


@pytest.mark.parametrize(
    ("schema", "words"), [("position long, weight double", "no column weight"), ("position string", "is bigint")]
)
def test_a_schema_that_is_not_ours_is_refused(spark: SparkSession, tmp_path: Path, schema: str, words: str) -> None:
    with pytest.raises(InvalidSettings, match=words), own_errors("reading the log"):
        spark.read.format("everlog").option("url", f"sqlite:{tmp_path}/x").schema(schema).load().collect()


def test_a_log_of_a_newer_everlog_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    import sqlite3

    url = url_in(tmp_path, "sqlite")
    open_log(url).close()
    database = sqlite3.connect(tmp_path / "sqlite.db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    assert isinstance(refused(events(spark, url)), NewerFormat)


def test_a_damaged_file_is_reported_with_its_position(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "segments")
    with open_log(url) as log:
        add(log, 200)
    (segment,) = (tmp_path / "segments" / "segments").glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[len(data) // 3] ^= 1
    segment.write_bytes(data)
    for path in (tmp_path / "segments" / "index").glob("*.idx"):
        path.unlink()
    error = refused(events(spark, url))
    assert isinstance(error, Damaged)
    assert error.details["position"] > 1


def test_a_lost_row_ends_a_job_with_its_position(spark: SparkSession, tmp_path: Path) -> None:
    """As a changed history does: Spark never gets a table that silently lacks an event."""
    url = url_in(tmp_path, "sqlite")
    with open_log(url) as log:
        add(log, 50)
    edit(tmp_path / "sqlite.db", "DELETE FROM events WHERE position = 30")
    error = refused(events(spark, url))
    assert isinstance(error, Damaged)
    assert (error.details["position"], error.details["after"]) == (30, 30)


def test_a_purge_between_planning_and_reading_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "sqlite")
    with open_log(url) as log:
        add(log, 50)
        frame = events(spark, url)
        assert frame.count() == 50
        log.purge("note/3", reason="a test")
        error = refused(frame)
        assert isinstance(error, HistoryChanged)
        assert (error.details["reason"], error.details["reset"].partition("@")[0]) == ("purged", "51")
        assert events(spark, url).count() < 50


def test_another_log_under_the_same_name_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    url = url_in(tmp_path, "sqlite")
    with open_log(url) as log:
        add(log, 50)
    frame = events(spark, url)
    assert frame.count() == 50
    for path in tmp_path.glob("sqlite.db*"):
        path.unlink()
    with open_log(url) as log:
        add(log, 60)
    error = refused(frame)
    assert isinstance(error, HistoryChanged)
    assert error.details["reason"] == "another_log"
