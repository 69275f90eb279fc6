"""Questions about the history, one table per question, computed from the events and the typed tables.

    answers/flow          one row per work package: lead, cycle and lane times
    answers/flow_daily    one row per day: begun, finished, in progress
    answers/flow_weekly   one row per week: throughput, and percentiles of lead and cycle time
    answers/conflicts     moves that were made without knowing of each other, and which one won
    answers/deploys       one row per deploy: how long it took, and how it ended
    answers/activity      events by day, actor and scope
    answers/talk          chat and market by day and type
    answers/growth        events and bytes by day and type

A table is computed again whenever the log has grown, and replaced in one commit: it is small, and reading the lake
for it is cheap. A question about a program has an empty table if the log has none of that program's events.
`QUESTIONS`, at the end, lists them all with their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from everlog.pipeline.lake.lake import ANSWERS, Lake
from everlog.pipeline.tables.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LANES = ("planned", "doing", "for_review")
_HOUR = 3_600.0


class LakeTables:
    """The tables of a lake as they are now, also in the middle of a run: what questions read."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark = spark
        self._lake = lake

    @property
    def events(self) -> DataFrame:
        return self._lake.events.read(self.spark)

    def typed(self, event_type: str, *columns: str) -> DataFrame:
        """Return some columns of the events of a type, with the type itself. Without such events it has no rows."""
        from pyspark.sql import functions as sql

        table = self._lake.silver(event_type)
        if table.exists():
            return table.read(self.spark).select(*columns, sql.lit(event_type).alias("type"))
        wanted = self._lake.events.read(self.spark).limit(0)
        kinds = {"after": "array<string>"}
        missing = [
            sql.lit(None).cast(kinds.get(name, "string")).alias(name)
            for name in columns
            if name not in wanted.columns
        ]
        return wanted.select("*", *missing).select(*columns, sql.lit(event_type).alias("type"))


# ---- work packages


def flow(tables: LakeTables) -> DataFrame:
    """Return every work package: when it was planned, begun and finished, and how long it was in each lane.

    Its moves are in causal order, the same on every node; times are those in the events.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ordered = Window.partitionBy("stream").orderBy("lamport", "id")
    moves = _lanes(tables)
    until = sql.lead("occurred_at").over(ordered)
    spent = sql.greatest(sql.lit(0.0), _seconds(until) - _seconds(sql.col("occurred_at"))) / _HOUR
    stays = moves.withColumn("hours", spent).withColumn("before", sql.lag("lane").over(ordered))
    back = (sql.col("lane") == "doing") & (sql.col("before") == "for_review")
    found = stays.groupBy("stream").agg(
        sql.max_by("scope", sql.struct("lamport", "id")).alias("scope"),
        sql.max_by("lane", sql.struct("lamport", "id")).alias("lane"),
        sql.min("occurred_at").alias("planned_at"),
        sql.min(sql.when(sql.col("lane") == "doing", sql.col("occurred_at"))).alias("begun_at"),
        sql.max(sql.when(sql.col("lane") == "done", sql.col("occurred_at"))).alias("done_at"),
        sql.count(sql.when(back, True)).alias("sent_back"),
        *(
            sql.round(sql.sum(sql.when(sql.col("lane") == lane, sql.col("hours")).otherwise(0.0)), 4).alias(
                f"{lane}_hours"
            )
            for lane in LANES
        ),
    )
    done = sql.when(sql.col("lane") == "done", sql.col("done_at"))
    return (
        found.withColumn("done_at", done)
        .withColumn("lead_hours", _hours("planned_at", "done_at"))
        .withColumn("cycle_hours", _hours("begun_at", "done_at"))
        .withColumn("work_package", sql.substring_index("stream", "/", -1))
        .drop("stream")
        .orderBy("work_package")
    )


def flow_daily(tables: LakeTables) -> DataFrame:
    """Return every day from the first to the last: how many were planned, begun, finished and in progress."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    packages = flow(tables)

    def a_day(column: str, name: str) -> DataFrame:
        day = sql.to_date(column).alias("day")
        return packages.where(sql.col(column).isNotNull()).groupBy(day).agg(sql.count("*").alias(name))

    counted = [a_day("planned_at", "planned"), a_day("begun_at", "begun"), a_day("done_at", "done")]
    some = reduce(lambda one, other: one.join(other, "day", "full"), counted)
    first_and_last = some.agg(sql.min("day").alias("first"), sql.max("day").alias("last"))
    days = first_and_last.where("first IS NOT NULL").select(
        sql.explode(sql.sequence("first", "last", sql.expr("interval 1 day"))).alias("day")
    )
    whole = days.join(some, "day", "left").na.fill(0)
    upto = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return whole.withColumn("in_progress", sql.sum(sql.col("begun") - sql.col("done")).over(upto)).orderBy("day")


def flow_weekly(tables: LakeTables) -> DataFrame:
    """Return every week in which something was finished: how much, and how long it took."""
    from pyspark.sql import functions as sql

    def percentile(column: str, part: float) -> Column:
        return sql.round(sql.percentile(column, part), 2).alias(f"{column.removesuffix('_hours')}_p{part * 100:.0f}")

    done = flow(tables).where("done_at IS NOT NULL")
    return (
        done.groupBy(sql.to_date(sql.date_trunc("week", "done_at")).alias("week"))
        .agg(
            sql.count("*").alias("done"),
            *(percentile(column, part) for column in ("lead_hours", "cycle_hours") for part in (0.5, 0.85, 0.95)),
        )
        .orderBy("week")
    )


def conflicts(tables: LakeTables) -> DataFrame:
    """Return moves of a work package that were made without knowing of the previous move, by another node.

    The later one in causal order wins; both are named. What a move knew is in its `after`; an old one without that
    is judged by the lane that it came from.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sql

    ordered = Window.partitionBy("stream").orderBy("lamport", "id")
    moves = _moves(tables)
    for name in ("lane", "id", "actor", "origin"):
        moves = moves.withColumn(f"lost_{name}", sql.lag(name).over(ordered))
    says = sql.size("after") > 0
    did_not_know = says & ~sql.array_contains("after", sql.col("lost_id"))
    came_from_elsewhere = ~says & (sql.col("old_status") != "") & (sql.col("old_status") != sql.col("lost_lane"))
    return (
        moves.where((did_not_know | came_from_elsewhere) & (sql.col("origin") != sql.col("lost_origin")))
        .select(
            sql.substring_index("stream", "/", -1).alias("work_package"),
            sql.col("occurred_at").alias("at"),
            sql.col("lane").alias("won_lane"),
            sql.col("actor").alias("won_by"),
            sql.col("id").alias("won_id"),
            "lost_lane",
            sql.col("lost_actor").alias("lost_by"),
            "lost_id",
        )
        .orderBy("at", "won_id")
    )


def _moves(tables: LakeTables) -> DataFrame:
    columns = (
        "stream",
        "scope",
        "lamport",
        "id",
        "origin",
        "actor",
        "occurred_at",
        "old_status",
        "new_status",
        "after",
    )
    return tables.typed("WPStatusChanged", *columns).withColumnRenamed("new_status", "lane")


def _lanes(tables: LakeTables) -> DataFrame:
    """When a work package entered which lane: it is planned when it is created."""
    from pyspark.sql import functions as sql

    columns = ("stream", "scope", "lamport", "id", "occurred_at")
    created = tables.typed("WPCreated", *columns).select(*columns, sql.lit("planned").alias("lane"))
    return created.unionByName(_moves(tables).select(*columns, "lane"))


# ---- deploys


def deploys(tables: LakeTables) -> DataFrame:
    """Return every deploy: where, by whom, how long it took from the request to its end, and how it ended."""
    from pyspark.sql import functions as sql

    kinds = ("requested", "started", "succeeded", "failed", "rolled_back")
    names = [f"control.deploy.{kind}" for kind in kinds]
    steps = tables.events.where(sql.col("type").isin(names)).withColumn("step", sql.substring_index("type", ".", -1))

    def when(*wanted: str) -> Column:
        return sql.min(sql.when(sql.col("step").isin(list(wanted)), sql.col("occurred_at")))

    last = sql.max_by("step", sql.struct("lamport", "id"))
    return (
        steps.groupBy("stream")
        .agg(
            sql.max("scope").alias("scope"),
            sql.max_by("actor", sql.struct(-sql.col("lamport"), "id")).alias("requested_by"),
            when("requested").alias("requested_at"),
            when("succeeded", "failed").alias("ended_at"),
            last.alias("outcome"),
        )
        .withColumn(
            "minutes", sql.round((_seconds(sql.col("ended_at")) - _seconds(sql.col("requested_at"))) / 60.0, 2)
        )
        .withColumn("deploy", sql.substring_index("stream", "/", -1))
        .drop("stream")
        .orderBy("requested_at", "deploy")
    )


def _seconds(moment: Column) -> Column:
    from pyspark.sql import functions as sql

    return sql.unix_micros(moment) / 1_000_000.0


def _hours(first: str, last: str) -> Column:
    from pyspark.sql import functions as sql

    return sql.round((_seconds(sql.col(last)) - _seconds(sql.col(first))) / _HOUR, 4)


# ---- all of them


class Question(NamedTuple):
    name: str
    about: tuple[str, ...]  # prefixes of the event types that it is about: without such events the answer is empty
    schema: pa.Schema
    answer: Tally | Callable[[LakeTables], DataFrame]  # a function if it needs Spark SQL

    @property
    def table(self) -> str:
        return f"{ANSWERS}/{self.name}"


_TEXT, _COUNT, _DAY, _NUMBER = pa.string(), pa.int64(), pa.date32(), pa.float64()
_TIME = pa.timestamp("us", tz="UTC")


def _columns(*columns: tuple[pa.DataType, Sequence[str]]) -> pa.Schema:
    return pa.schema([(name, kind) for kind, names in columns for name in names])


QUESTIONS: tuple[Question, ...] = (
    Question(
        "flow",
        ("WP",),
        _columns(
            (_TEXT, ("scope", "lane")),
            (_TIME, ("planned_at", "begun_at", "done_at")),
            (_COUNT, ("sent_back",)),
            (_NUMBER, ("planned_hours", "doing_hours", "for_review_hours", "lead_hours", "cycle_hours")),
            (_TEXT, ("work_package",)),
        ),
        flow,
    ),
    Question(
        "flow_daily",
        ("WP",),
        _columns((_DAY, ("day",)), (_COUNT, ("planned", "begun", "done", "in_progress"))),
        flow_daily,
    ),
    Question(
        "flow_weekly",
        ("WP",),
        _columns(
            (_DAY, ("week",)),
            (_COUNT, ("done",)),
            (_NUMBER, ("lead_p50", "lead_p85", "lead_p95", "cycle_p50", "cycle_p85", "cycle_p95")),
        ),
        flow_weekly,
    ),
    Question(
        "conflicts",
        ("WP",),
        _columns(
            (_TEXT, ("work_package",)),
            (_TIME, ("at",)),
            (_TEXT, ("won_lane", "won_by", "won_id", "lost_lane", "lost_by", "lost_id")),
        ),
        conflicts,
    ),
    Question(
        "deploys",
        ("control.deploy.",),
        _columns(
            (_TEXT, ("scope", "requested_by")),
            (_TIME, ("requested_at", "ended_at")),
            (_TEXT, ("outcome",)),
            (_NUMBER, ("minutes",)),
            (_TEXT, ("deploy",)),
        ),
        deploys,
    ),
    Question(
        "activity",
        (),
        _columns((_DAY, ("day",)), (_TEXT, ("actor", "scope")), (_COUNT, ("events", "streams"))),
        Tally("occurred_at", by=("actor", "scope"), distinct=("streams", "stream")),
    ),
    Question(
        "talk",
        ("chat.", "market."),
        _columns((_DAY, ("day",)), (_TEXT, ("scope", "type")), (_COUNT, ("events", "people"))),
        Tally("occurred_at", by=("scope", "type"), about=("chat.", "market."), distinct=("people", "actor")),
    ),
    Question(
        "growth",
        (),
        _columns((_DAY, ("day",)), (_TEXT, ("type",)), (_COUNT, ("events", "bytes", "total"))),
        Tally("received_at", by=("type",), growth=True),
    ),
)
