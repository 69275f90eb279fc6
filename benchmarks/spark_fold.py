"""Rows 5 to 8 and 13: views on Spark against one Python process, against Spark SQL and against DuckDB.

All sides have the same events, as Parquet files of a lake, and make the same states: the lane, the first lane, the
number of moves and who moved, for each stream. That they do is checked by digest before anything is timed. The one
process reads the files with pyarrow and folds with `fold_rows`, as the live runner does, and keeps nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow.parquet as pq
from benchmarks.bench.events import CATALOG, RARE_TYPE, TYPE
from benchmarks.bench.rounds import Contest, Sample, timed
from benchmarks.figures import Figure
from benchmarks.spark import Bench, Left
from benchmarks.spark_data import log_of

import everlog
from everlog.core.event import Event, Position, Recorded
from everlog.core.query import Cursor
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.fold.declared import fold_declared
from everlog.pipeline.fold.fold import fold_view
from everlog.pipeline.fold.presorted import fold_buckets
from everlog.pipeline.fold.sorted_fold import ROW
from everlog.pipeline.lake import buckets
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.run import run
from everlog.pipeline.source.rows import COLUMNS, records_of
from everlog.pipeline.tables.view_table import ViewTable
from everlog.views.declared import Count, DeclaredView, Distinct, First, Last, Reduction
from everlog.views.fold import fold_rows
from everlog.views.view import View, digest_of_bytes, state_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_EVENTS = 10_000


class Items(View):
    """A fold as somebody would write it."""

    name = "items"
    types = (TYPE, RARE_TYPE)

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        who = state.get("who", [])
        if event.actor not in who:
            who = sorted([*who, event.actor])
        lane = event.payload["went_to"]
        return {"first": state.get("first", lane), "lane": lane, "moves": state.get("moves", 0) + 1, "who": who}


class DeclaredItems(DeclaredView):
    """The same, said and not written."""

    name = "declared-items"
    types = (TYPE, RARE_TYPE)
    fields: ClassVar[Mapping[str, Reduction]] = {
        "first": First("payload.went_to"),
        "lane": Last("payload.went_to"),
        "moves": Count(),
        "who": Distinct("actor"),
    }


class PositionRange:
    """A lake with the events, typed tables and buckets, made once."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.spark = bench, bench.spark
        url = log_of(bench.directory, "sqlite", bench.events)
        with everlog.open(url, catalog=CATALOG, create=False) as log:
            path = bench.directory / f"lake-{bench.events}"
            self.lake = Lake.open(path, log_id=log.identity.log_id, create=True)
            run(SparkEngine(self.spark), log, url, self.lake)
            self.epoch = log.identity.epoch
        cursor = self.lake.events.cursor(self.epoch)
        assert cursor is not None
        self.cursor = cursor
        buckets.bring_up_to_date(self.spark, self.lake, upto=cursor)
        buckets.unite(self.spark, self.lake, epoch=self.epoch)
        self.require_same()

    @property
    def events(self) -> DataFrame:
        return self.lake.events.read(self.spark)

    def one_process(self) -> dict[str, bytes]:
        rows = fold_rows(Items(), self._records())
        return {key: state_bytes(row.state) for key, row in rows.items()}

    def _records(self) -> Iterator[Recorded]:
        files = self.lake.events.files()  # in order of position
        for file in files:
            path = self.lake.events.path / file.path
            for batch in pq.ParquetFile(path).iter_batches(BATCH_EVENTS, columns=list(COLUMNS)):
                yield from records_of(batch)

    def shuffled(self, view: View) -> DataFrame:
        return fold_view(self.events, view, CATALOG, with_applied=False)

    def presorted(self) -> DataFrame:
        return fold_buckets(self.spark, self.lake, Items(), CATALOG, with_applied=False)

    def declared(self) -> DataFrame:
        table = self.lake.events
        return fold_declared(self.spark, table, DeclaredItems(), files=table.files(), upto=self.cursor.position)

    def typed_sql(self) -> DataFrame:
        """The view in Spark SQL over the typed tables, as somebody would write it there."""
        tables = [self.lake.silver(name).read(self.spark) for name in (TYPE, RARE_TYPE)]
        rows = tables[0].select("stream", "position", "actor", "went_to")
        rows = rows.union(tables[1].select("stream", "position", "actor", "went_to"))
        rows.createOrReplaceTempView("bench_items")
        return self.spark.sql(
            "SELECT stream AS key, min_by(went_to, position) AS first, max_by(went_to, position) AS lane,"
            " count(*) AS moves, sort_array(collect_set(actor)) AS who FROM bench_items GROUP BY stream"
        )

    def require_same(self) -> None:
        """Refuse to time sides that do not make the same."""
        expected = digest_of_bytes(sorted(self.one_process().items()))
        for name, frame in {
            "shuffle": self.shuffled(Items()),
            "presorted": self.presorted(),
            "declared": self.declared(),
        }.items():
            rows = frame.where(f"what = '{ROW}'").select("key", "state").collect()
            found = digest_of_bytes(sorted((row["key"], row["state"].encode()) for row in rows))
            if found != expected:
                raise Left(f"the states of {name} are not those of one process")

    def timed(self, frame: Callable[[], DataFrame]) -> Sample:
        return timed(self.bench.events, lambda: frame().write.format("noop").mode("overwrite").save())


_places: dict[int, PositionRange] = {}


def place_of(bench: Bench) -> PositionRange:
    if id(bench) not in _places:
        _places[id(bench)] = PositionRange(bench)
    return _places[id(bench)]


def row_5(bench: Bench) -> Iterator[Figure]:
    """a fold on Spark with a shuffle, against one Python process on the same files"""
    place = place_of(bench)
    one = lambda: timed(bench.events, place.one_process)  # noqa: E731 - named for the table
    contest = Contest("5", {"ours": lambda: place.timed(lambda: place.shuffled(Items())), "process": one})
    yield Figure("5", "fold with a shuffle, against one process", bench.compare(contest, "ours", "process"), 0.9)


def row_6(bench: Bench) -> Iterator[Figure]:
    """a fold on Spark over presorted buckets, against one Python process"""
    place = place_of(bench)
    one = lambda: timed(bench.events, place.one_process)  # noqa: E731
    contest = Contest("6", {"ours": lambda: place.timed(place.presorted), "process": one})
    yield Figure("6", "fold over buckets, against one process", bench.compare(contest, "ours", "process"), 2.0)


def row_7(bench: Bench) -> Iterator[Figure]:
    """a Python fold over buckets, against the same view in Spark SQL on typed payloads"""
    place = place_of(bench)
    sides = {"ours": lambda: place.timed(place.presorted), "sql": lambda: place.timed(place.typed_sql)}
    value = bench.compare(Contest("7", sides), "ours", "sql")
    yield Figure("7", "fold over buckets, against SQL on typed tables", value, 0.8)


def row_8(bench: Bench) -> Iterator[Figure]:
    """a catch-up of a tenth as many events as there are states, against a rebuild of the same view"""
    states = bench.events
    spark = bench.spark
    lake = Lake.open(bench.directory / f"lake-of-states-{states}", log_id="bench", create=True)
    made, news = 10 * states, states // 10
    cursor = Cursor(Position(made), epoch="bench")
    if not lake.events.holds(cursor):
        lake.events.append(_synthetic(bench, 0, made, states), cursor=cursor)
    view = ViewTable(Items(), CATALOG)
    after = Cursor(Position(made + news), epoch="bench")

    def rebuild() -> Sample:
        _drop(lake)
        return timed(states, lambda: view.bring_up_to_date(SparkEngine(spark), lake, upto=cursor))

    def catch_up() -> Sample:
        nonlocal after, cursor
        rows = _synthetic(bench, cursor.position, news, states)
        after = Cursor(Position(cursor.position + news), epoch="bench")
        lake.events.append(rows, cursor=after)
        cursor = after
        return timed(states, lambda: view.bring_up_to_date(SparkEngine(spark), lake, upto=after))

    value = bench.compare(Contest("8", {"catch-up": catch_up, "rebuild": rebuild}), "catch-up", "rebuild")
    yield Figure("8", f"catch-up of {news:,} on {states:,} states, against a rebuild", value, 5.0)


def row_13(bench: Bench) -> Iterator[Figure]:
    """a declared view on Spark, against DuckDB on the same files"""
    try:
        import duckdb
    except ImportError as error:
        raise Left(f"{error}: pip install duckdb") from error
    place = place_of(bench)
    files = [str(place.lake.events.path / file.path) for file in place.lake.events.files()]
    connection = duckdb.connect()
    connection.execute(f"SET threads = {len(os.sched_getaffinity(0))}")
    statement = (
        "SELECT stream, arg_min(payload ->> '$.went_to', position), arg_max(payload ->> '$.went_to', position),"
        " count(*), list_sort(list(DISTINCT actor)) FROM read_parquet($files)"
        " WHERE type IN ($one, $other) GROUP BY stream"
    )

    def duck() -> None:
        given = {"files": files, "one": TYPE, "other": RARE_TYPE}
        connection.execute(statement, given).to_arrow_table()

    sides = {"ours": lambda: place.timed(place.declared), "duckdb": lambda: timed(bench.events, duck)}
    # Times, not speeds: so the other way round.
    found = bench.compare(Contest("13", sides), "duckdb", "ours")
    yield Figure("13", "declared view, time against DuckDB's", found, 4.0, at_most=True)


def _drop(lake: Lake) -> None:
    for name in ("gold/items", "letters/items"):
        if lake.table(name).exists():
            lake.drop(lake.table(name))


def _synthetic(bench: Bench, after: int, count: int, streams: int) -> DataFrame:
    """Events that Spark makes itself: ten million in a log would take longer to append than to measure."""
    from pyspark.sql import functions as sql

    number = sql.col("number")
    lanes = sql.array(*(sql.lit(lane) for lane in ("planned", "doing", "for_review", "done")))
    lane = sql.element_at(lanes, (number % 4 + 1).cast("int"))
    payload = sql.concat(
        sql.lit('{"came_from":"planned","feature":"'),
        sql.sha1(number.cast("string")),
        sql.lit('","reason":"'),
        sql.md5(number.cast("string")),
        sql.lit('","went_to":"'),
        lane,
        sql.lit('"}'),
    )
    given = {
        "position": number,
        "sequence": (number / streams).cast("long") + 1,
        "received_at": sql.timestamp_micros(sql.lit(1_790_000_000_000_000) + number),
        "id": sql.lpad(number.cast("string"), 26, "0"),
        "type": sql.lit(TYPE),
        "version": sql.lit(1),
        "stream": sql.concat(sql.lit("item/"), ((number * 7919) % streams).cast("string")),
        "lamport": number,
        "origin": sql.lit("01BENCH0000000000000000000"),
        "origin_seq": number,
        "occurred_at": sql.timestamp_micros(sql.lit(1_790_000_000_000_000) + number),
        "actor": sql.concat(sql.lit("agent:worker-"), (number % 20).cast("string")),
        "tags": sql.lit("{}"),
        "payload": payload,
        "salt": sql.unhex(sql.substring(sql.sha2(number.cast("string"), 256), 1, 32)),
        "commitment": sql.unhex(sql.sha2(sql.concat(sql.lit("c"), number), 256)),
        "previous": sql.unhex(sql.sha2(sql.concat(sql.lit("p"), number), 256)),
        "signature": sql.unhex(sql.lit("")),
        "path": sql.unhex(sql.lit("")),
    }
    rows = bench.spark.range(after + 1, after + count + 1, 1, 8).withColumnRenamed("id", "number")
    return rows.select(*(given.get(name, sql.lit("")).alias(name) for name in COLUMNS))
