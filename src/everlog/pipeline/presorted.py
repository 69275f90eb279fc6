"""A view by stream, folded over buckets: the events lie sorted already, and nothing is moved between tasks.

A task takes one bucket: it opens the bucket's files itself and folds one stream after the other. So a file is never
split, a stream never spans two tasks, and what Spark does is hand out the names of files. For views whose key is the
stream and whose order is that of arrival, which within a stream is that of its sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from everlog.catalog.catalog import Catalog
from everlog.core.query import EVERYTHING, Query
from everlog.pipeline.buckets import files_by_bucket
from everlog.pipeline.failures import carried
from everlog.pipeline.fold import partitions_for
from everlog.pipeline.lake import Lake
from everlog.pipeline.rows import ARROW_SCHEMA
from everlog.pipeline.shipping import Shipped, ship
from everlog.pipeline.sorted_fold import FOLDED_SCHEMA, SORTED_SCHEMA, SortedFold
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_EVENTS = 10_000
PARTS_A_TASK = 2
"""Two tasks a core, where Spark's parts of a shuffle are four."""


def is_presorted(view: View) -> bool:
    """True when the buckets have the events of this view in the order that it wants."""
    return view.by_stream and view.order is Order.POSITION


def fold_buckets(
    spark: SparkSession, lake: Lake, view: View, catalog: Catalog, *, with_places: bool = True
) -> DataFrame:
    """The rows, letters and places of a view over all events in the buckets, as `fold_view` gives them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    buckets = [[str(lake.buckets.path / file.path) for file in files] for files in files_by_bucket(lake).values()]
    # A task takes several buckets, one after the other: to begin one costs as much as some thousand events.
    tasks = max(1, min(len(buckets), partitions_for(spark) // PARTS_A_TASK))
    numbers = spark.range(0, len(buckets), 1, numPartitions=tasks)
    task = partial(_fold, ship(view, catalog), buckets, with_places)
    return numbers.mapInArrow(task, from_arrow_schema(FOLDED_SCHEMA))


# ---- in the workers


def _fold(
    shipped: Shipped, buckets: Sequence[Sequence[str]], with_places: bool, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with carried():
        view, catalog = shipped.unpack()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                fold = SortedFold(view, catalog, with_places=with_places)
                yield from fold.run(with_streams(matching(_batches(buckets[number]), view.query)))


def _batches(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The events of a bucket, by stream and sequence. Several files are sorted together: they are few, and small."""
    if len(files) == 1:
        yield from pq.ParquetFile(files[0]).iter_batches(BATCH_EVENTS, columns=ARROW_SCHEMA.names)
        return
    tables = [pq.read_table(file, columns=ARROW_SCHEMA.names, partitioning=None) for file in files]
    together = pa.concat_tables(tables).sort_by([("stream", "ascending"), ("sequence", "ascending")])
    yield from together.combine_chunks().to_batches(max_chunksize=BATCH_EVENTS)


def matching(batches: Iterable[pa.RecordBatch], query: Query) -> Iterator[pa.RecordBatch]:
    """The events that a view takes, of batches with the columns that this takes to tell."""
    if query == EVERYTHING:
        yield from batches
        return
    types = pa.array(sorted(query.types), pa.string())
    for batch in batches:
        keep = pc.is_in(batch.column("type"), types) if query.types else pa.repeat(True, batch.num_rows)
        if query.kind:
            stream = batch.column("stream")
            keep = pc.and_(keep, pc.or_(pc.equal(stream, query.kind), pc.starts_with(stream, query.kind + "/")))
        if query.scope:
            scope = batch.column("scope")
            keep = pc.and_(keep, pc.or_(pc.equal(scope, query.scope), pc.starts_with(scope, query.scope + "/")))
        yield batch if pc.all(keep).as_py() else batch.filter(keep)  # a filter copies, also when it keeps all


def with_streams(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """With the stream as the key, as a fold wants them."""
    later = list(SORTED_SCHEMA)[len(ARROW_SCHEMA) + 1 :]
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in ARROW_SCHEMA]
        nothing = [pa.nulls(batch.num_rows, field.type) for field in later]
        yield pa.RecordBatch.from_arrays([*columns, batch.column("stream"), *nothing], schema=SORTED_SCHEMA)
