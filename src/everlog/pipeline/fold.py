"""A view folded on Spark: DataFrame of events in, DataFrame of rows, letters and places out.

    events -> key -> repartition(key) -> sortWithinPartitions(key, order) -> mapInArrow(SortedFold)

The view is the very class that the live runner folds, with its own key, order, upcasters and dead letters; only who
brings the events is another. A key never spans two tasks, and a task holds one batch: memory does not grow with the
length of a stream. With `stored` the rows of an earlier fold are united with the events that came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.core.query import Query
from everlog.pipeline.failures import carried
from everlog.pipeline.rows import COLUMNS
from everlog.pipeline.shipping import Shipped, ship
from everlog.pipeline.sorted_fold import FOLDED_SCHEMA, SORTED_SCHEMA, SortedFold, with_keys
from everlog.views.fold import NOBODY
from everlog.views.rows import CausalOrder
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

EVENTS_A_PART = 20_000

STORED = ("key", "position", "count", "lamport", "id", "sources", "state")
"""The columns of a stored row: what a later fold needs to go on from it."""


def fold_view(
    events: DataFrame,
    view: View,
    catalog: Catalog,
    *,
    stored: DataFrame | None = None,
    parked: Mapping[str, CausalOrder] = NOBODY,
    partitions: int = 0,
    with_places: bool = True,
) -> DataFrame:
    """The rows, letters and places of a view over events (`EVENT_SCHEMA`), as `sorted_fold` describes them.

    `stored` are rows (`STORED`) that an earlier fold left, and `events` then what came after it. `parked` are keys
    whose events wait. Without `partitions` Spark's own setting decides.
    """
    rows = keyed(events, view, ship(view, catalog))
    if stored is not None:
        rows = rows.unionByName(_as_sorted(stored))
    return fold_keyed(rows, view, catalog, parked=parked, partitions=partitions, with_places=with_places)


def fold_keyed(
    rows: DataFrame,
    view: View,
    catalog: Catalog,
    *,
    parked: Mapping[str, CausalOrder] = NOBODY,
    partitions: int = 0,
    with_places: bool = True,
) -> DataFrame:
    """The same over events that have their keys already."""
    from pyspark.sql.functions import coalesce, col

    size = partitions or partitions_for(rows.sparkSession)
    # What has no key only counts its position, and may lie anywhere.
    where = coalesce(col("key"), col("position").cast("string"))
    order = ["lamport", "id"] if view.order is Order.CAUSAL else ["position"]
    in_order = rows.repartition(size, where).sortWithinPartitions("key", col("state").isNull(), *order)
    task = partial(_fold, ship(view, catalog), dict(parked), with_places)
    return in_order.mapInArrow(task, _spark(FOLDED_SCHEMA))


def partitions_for(spark: SparkSession, events: int | None = None) -> int:
    """Into how many parts so many events are shuffled. Each part costs a task, and few events are not worth many."""
    at_most = int(spark.conf.get("spark.sql.shuffle.partitions") or 8)
    return at_most if events is None else min(at_most, 1 + events // EVENTS_A_PART)


def keyed(events: DataFrame, view: View, shipped: Shipped) -> DataFrame:
    """The events that a view takes, each with its key."""
    from pyspark.sql.functions import col

    taken = events.where(matches(view.query)).select(*COLUMNS)
    if not view.by_stream:
        return taken.mapInArrow(partial(_with_keys, shipped), _spark(SORTED_SCHEMA))
    later = _spark(SORTED_SCHEMA).fields[len(COLUMNS) + 1 :]
    return taken.select("*", col("stream").alias("key"), *(_nothing(field) for field in later))


def matches(query: Query) -> Column:
    """A query's condition on the columns of events; the parts that a view has."""
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
    """Stored rows with the columns of what is folded."""
    from pyspark.sql.functions import col

    fields = _spark(SORTED_SCHEMA).fields
    return stored.select(*(col(field.name) if field.name in STORED else _nothing(field) for field in fields))


def _nothing(field: StructField) -> Column:
    from pyspark.sql.functions import lit

    return lit(None).cast(field.dataType).alias(field.name)


def _spark(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


# ---- in the workers


def _with_keys(shipped: Shipped, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried():
        yield from with_keys(*shipped.unpack(), batches)


def _fold(
    shipped: Shipped, parked: Mapping[str, CausalOrder], with_places: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with carried():
        yield from SortedFold(*shipped.unpack(), parked=parked, with_places=with_places).run(batches)
