"""Rows 1 to 3: the source `everlog`, all of its columns, against what Spark brings along for the same data.

The rows go to Spark's sink `noop`, which takes every column and keeps none. read.json is given the schema of a line,
JDBC as many partitions as we have. JDBC gives the table as it is: the header of an event is one text there. So row 3
has two figures: against the bare table, and against a table whose header Spark takes apart into the same columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench.rounds import Contest, Sample, timed
from benchmarks.figures import Figure
from benchmarks.spark import JARS, Bench, Left
from benchmarks.spark_data import log_of, postgres_log

from everlog.core.codec import HEADER_FIELDS
from everlog.pipeline.source.ranges import RANGE_EVENTS
from everlog.pipeline.source.source import events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINE = (
    "actor string, causation_id string, commitment string, correlation_id string, id string, idempotency_key string,"
    " lamport long, occurred_at timestamp, origin string, origin_seq long, path array<string>, payload string,"
    " previous string, received_at timestamp, request_id string, salt string, scope string, signature string,"
    " stream string, tags map<string,string>, type string, version int"
)


def row_1(bench: Bench) -> Iterator[Figure]:
    """our source, JSONL, against spark.read.json of the same files"""
    url = log_of(bench.directory, "jsonl", bench.events)
    contest = Contest("1", {"ours": lambda: _ours(bench, url), "json": lambda: _json(bench)})
    yield Figure("1", "JSONL, all columns, against read.json", bench.compare(contest, "ours", "json"), 1.0)


def row_2(bench: Bench) -> Iterator[Figure]:
    """our source, segments with every hash checked, against spark.read.json of the same events"""
    url = log_of(bench.directory, "segments", bench.events)
    contest = Contest("2", {"ours": lambda: _ours(bench, url), "json": lambda: _json(bench)})
    yield Figure("2", "segments, verified, against read.json", bench.compare(contest, "ours", "json"), 0.8)


def row_3(bench: Bench) -> Iterator[Figure]:
    """our source, SQLite and PostgreSQL, against Spark's JDBC on the same table"""
    yield from _against_jdbc(bench, "SQLite", "sqlite", log_of(bench.directory, "sqlite", bench.events))
    with postgres_log(bench.directory, bench.events) as url:
        if url is None:
            print("row 3 without PostgreSQL: there is no server to start")
        else:
            yield from _against_jdbc(bench, "PostgreSQL", "postgresql", url)


def _against_jdbc(bench: Bench, name: str, kind: str, url: str) -> Iterator[Figure]:
    jar, package = JARS[kind]
    if not jar.exists():
        raise Left(f"there is no {jar}: apt-get install {package}")
    contest = Contest(
        f"3 {name}",
        {
            "ours": lambda: _ours(bench, url),
            "table": lambda: _all(bench, _table(bench, kind, url)),
            "same": lambda: _all(bench, _taken_apart(_table(bench, kind, url))),
        },
    )
    yield Figure("3", f"{name}, against JDBC and the same columns", bench.compare(contest, "ours", "same"), 0.75)
    yield Figure("3", f"{name}, against JDBC and the bare table", bench.compare(contest, "ours", "table"), 0.75)


def _ours(bench: Bench, url: str) -> Sample:
    return _all(bench, events(bench.spark, url))


def _json(bench: Bench) -> Sample:
    folder = log_of(bench.directory, "jsonl", bench.events).removeprefix("jsonl:") + "/events"
    return _all(bench, bench.spark.read.schema(LINE).json(folder))


def _table(bench: Bench, kind: str, url: str) -> DataFrame:
    columns = "position, sequence, received_us, header, payload, salt, signature, path"
    if kind == "sqlite":
        columns = f"position, sequence, received_us, payload, salt, {', '.join(HEADER_FIELDS[:-2])}"
    partitions = max(bench.events // RANGE_EVENTS, 1)
    reader = bench.spark.read.format("jdbc").options(
        url=_jdbc_url(kind, url),
        dbtable=f"(SELECT {columns} FROM events) AS found",  # noqa: S608 - both are constants
        partitionColumn="position",
        lowerBound=1,
        upperBound=bench.events,
        numPartitions=partitions,
        fetchsize=5000,
    )
    return reader.load()


def _jdbc_url(kind: str, url: str) -> str:
    if kind == "sqlite":
        return f"jdbc:sqlite:{Path(url.removeprefix('sqlite:')).absolute()}"
    base, _, schema = url.partition("?schema=")
    user, _, place = base.removeprefix("postgresql://").rpartition("@")
    return f"jdbc:postgresql://{place}?user={user}&currentSchema={schema}"


def _taken_apart(table: DataFrame) -> DataFrame:
    """The header's fields as the columns that our source has."""
    from pyspark.sql import functions as sql

    fields = sql.from_json("header", "array<string>").alias("fields")
    kinds = {"version": "int", "lamport": "long", "origin_seq": "long", "occurred_at": "timestamp"}
    binary = ("commitment", "previous")
    found = []
    for place, name in enumerate(HEADER_FIELDS):
        value = sql.col("fields")[place]
        if name in binary:
            value = sql.unbase64(value)
        elif name in kinds:
            value = value.cast(kinds[name])
        found.append(value.alias(name))
    kept = [name for name in table.columns if name not in ("header", "received_us")]
    received = sql.timestamp_micros("received_us").alias("received_at")
    return table.select(*kept, received, fields).select(*kept, "received_at", *found)


def _all(bench: Bench, frame: DataFrame) -> Sample:
    return timed(bench.events, lambda: frame.write.format("noop").mode("overwrite").save())
