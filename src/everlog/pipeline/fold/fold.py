"""A view folded on Spark: DataFrame of events in, DataFrame of rows, letters and applied positions out.

    events -> key -> repartition(key) -> sortWithinPartitions(key, order) -> mapInArrow(SortedFold)

The view is the same class as live, with its key, order, upcasters and dead letters; only the events arrive in another
way. A key never spans two tasks, and a task holds one batch: memory does not grow with the length of a stream. With
`stored`, the rows of an earlier fold are united with the events after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.core.query import Query
from everlog.pipeline.fold.sorted_fold import FOLDED_SCHEMA, SORTED_SCHEMA, SortedFold, with_keys
from everlog.pipeline.fold.view_code import Shipped, ship
from everlog.pipeline.fold.view_columns import STORED
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source.rows import COLUMNS
from everlog.views.builds.rows import CausalOrder
from everlog.views.fold import NOBODY
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

EVENTS_PER_PARTITION = 20_000


def fold_view(
    events: DataFrame,
    view: View,
    catalog: Catalog,
    *,
    stored: DataFrame | None = None,
    parked: Mapping[str, CausalOrder] = NOBODY,
    partitions: int = 0,
    with_applied: bool = True,
) -> DataFrame:
    """Return the rows, letters and applied positions of a view over events (`EVENT_SCHEMA`); see `sorted_fold`.

    `stored` are the rows (`STORED`) of an earlier fold; `events` are then those after it. `parked` are keys whose
    events wait. Without `partitions`, the setting of the session applies.
    """
    rows = keyed(events, view, ship(view, catalog))
    if stored is not None:
        rows = rows.unionByName(_as_sorted(stored))
    return fold_keyed(rows, view, catalog, parked=parked, partitions=partitions, with_applied=with_applied)


def fold_keyed(
    rows: DataFrame,
    view: View,
    catalog: Catalog,
    *,
    parked: Mapping[str, CausalOrder] = NOBODY,
    partitions: int = 0,
    with_applied: bool = True,
) -> DataFrame:
    """Do the same with events that already have their keys."""
    from pyspark.sql.functions import coalesce, col

    size = partitions or partitions_for(rows.sparkSession)
    # An event without a key only counts as applied, and may be in any partition.
    where = coalesce(col("key"), col("position").cast("string"))
    order = ["lamport", "id"] if view.order is Order.CAUSAL else ["position"]
    in_order = rows.repartition(size, where).sortWithinPartitions("key", col("state").isNull(), *order)
    task = partial(_fold, ship(view, catalog), dict(parked), with_applied)
    return in_order.mapInArrow(task, spark_schema(FOLDED_SCHEMA))


def partitions_for(spark: SparkSession, events: int | None = None) -> int:
    """Return the number of partitions for so many events. Each costs a task, so few events get few."""
    at_most = int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
    return at_most if events is None else min(at_most, 1 + events // EVENTS_PER_PARTITION)


def keyed(events: DataFrame, view: View, shipped: Shipped) -> DataFrame:
    """Return the events that a view selects, each with its key."""
    from pyspark.sql.functions import col

    taken = events.where(matches(view.query)).select(*COLUMNS)
    if not view.by_stream:
        return taken.mapInArrow(partial(_with_keys, shipped), spark_schema(SORTED_SCHEMA))
    later = spark_schema(SORTED_SCHEMA).fields[len(COLUMNS) + 1 :]
    return taken.select("*", col("stream").alias("key"), *(_nothing(field) for field in later))


def matches(query: Query) -> Column:
    """Return the condition of a view's query on the columns of events."""
    from pyspark.sql.functions import col, lit

    condition = lit(True)
    if query.types:
        condition &= col("type").isin(sorted(query.types))
    if query.kind:
        condition &= (col("stream") == query.kind) | col("stream").startswith(query.kind + "/")
    if query.scope:
        condition &= (col("scope") == query.scope) | col("scope").startswith(query.scope + "/")
    return condition


def _as_sorted(stored: DataFrame) -> DataFrame:
    """Return stored rows with the columns of `SORTED_SCHEMA`."""
    from pyspark.sql.functions import col

    fields = spark_schema(SORTED_SCHEMA).fields
    return stored.select(*(col(field.name) if field.name in STORED else _nothing(field) for field in fields))


def _nothing(field: StructField) -> Column:
    from pyspark.sql.functions import lit

    return lit(None).cast(field.dataType).alias(field.name)


# ---- in the workers


def _with_keys(shipped: Shipped, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried():
        yield from with_keys(*shipped.unpack(), batches)


def _fold(
    shipped: Shipped, parked: Mapping[str, CausalOrder], with_applied: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with carried():
        yield from SortedFold(*shipped.unpack(), parked=parked, with_applied=with_applied).run(batches)
