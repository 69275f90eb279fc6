"""Events counted by day: the questions that are simple enough for either engine. Both computations are here, side by
side; a test compares them."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Tally(NamedTuple):
    """One row per day and values of `by`: the number of events, and what else is asked for."""

    day: str  # the column with the time whose day counts
    by: tuple[str, ...]
    about: tuple[str, ...] = ()  # count only types that begin with one of these
    distinct: tuple[str, str] | None = None  # the name of a column, and the column whose different values it counts
    growth: bool = False  # also `bytes` of payloads, and `total` of each type up to that day

    def on_spark(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as sql

        if self.about:
            starts = [sql.col("type").startswith(prefix) for prefix in self.about]
            events = events.where(reduce(lambda one, other: one | other, starts))
        counts = [sql.count("*").alias("events")]
        if self.distinct:
            counts.append(sql.countDistinct(self.distinct[1]).alias(self.distinct[0]))
        if self.growth:
            counts.append(sql.coalesce(sql.sum(sql.octet_length("payload")), sql.lit(0)).alias("bytes"))
        found = events.groupBy(sql.to_date(self.day).alias("day"), *self.by).agg(*counts)
        if self.growth:
            upto = Window.partitionBy("type").orderBy("day").rowsBetween(Window.unboundedPreceding, Window.currentRow)
            found = found.withColumn("total", sql.sum("events").over(upto))
        return found.orderBy("day", *self.by)

    def in_process(self, events: pa.Table, schema: pa.Schema) -> pa.Table:
        if self.about:
            starts = [pc.starts_with(events.column("type"), prefix) for prefix in self.about]
            events = events.filter(reduce(pc.or_, starts))
        rows = events.append_column("day", pc.floor_temporal(events.column(self.day), unit="day").cast(pa.date32()))
        counts: list[tuple[object, ...]] = [([], "count_all")]
        names = {"count_all": "events"}
        if self.distinct:
            name, column = self.distinct
            counts.append((column, "count_distinct"))
            names[f"{column}_count_distinct"] = name
        if self.growth:
            sizes = pc.fill_null(pc.binary_length(rows.column("payload")), 0).cast(pa.int64())
            rows = rows.append_column("bytes", sizes)
            counts.append(("bytes", "sum"))
            names["bytes_sum"] = "bytes"
        found = rows.group_by(["day", *self.by]).aggregate(counts).rename_columns(names)
        found = found.sort_by([(name, "ascending") for name in ("day", *self.by)])
        if self.growth:
            found = found.append_column("total", _totals(found))
        return found.select(schema.names).cast(schema)


def _totals(counted: pa.Table) -> pa.Array:
    """Return the number of events of each type up to each day."""
    so_far: dict[str, int] = {}
    totals = []
    for event_type, count in zip(
        counted.column("type").to_pylist(), counted.column("events").to_pylist(), strict=True
    ):
        so_far[event_type] = so_far.get(event_type, 0) + count
        totals.append(so_far[event_type])
    return pa.array(totals, pa.int64())
