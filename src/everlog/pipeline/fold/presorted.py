"""A view by stream, folded over buckets: the events are already sorted, and nothing is moved between tasks.

A task takes one bucket: it opens the bucket's files itself and folds one stream after the other. So a file is never
split, a stream never spans two tasks, and Spark only distributes the names of files. This works for views whose key
is the stream and whose order is that of arrival, which within a stream is that of its sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from everlog.catalog.catalog import Catalog
from everlog.core.query import EVERYTHING, Query
from everlog.pipeline.fold.fold import partitions_for
from everlog.pipeline.fold.sorted_fold import FOLDED_SCHEMA, SORTED_SCHEMA, SortedFold
from everlog.pipeline.fold.view_code import Shipped, ship
from everlog.pipeline.lake.buckets import files_by_bucket
from everlog.pipeline.lake.data_file import opened
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.session.failures import carried
from everlog.pipeline.source.rows import ARROW_SCHEMA
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH_EVENTS = 10_000
PARTITIONS_PER_TASK = 2
"""Two tasks per core; the shuffle partitions of a session are four."""


def is_presorted(view: View) -> bool:
    """Return True if the buckets hold the events of this view in its order."""
    return view.by_stream and view.order is Order.POSITION


def fold_buckets(
    spark: SparkSession, lake: Lake, view: View, catalog: Catalog, *, with_applied: bool = True
) -> DataFrame:
    """Fold a view over all events in the buckets, with the result of `fold_view`."""
    from pyspark.sql.pandas.types import from_arrow_schema

    buckets = [[str(lake.buckets.path / file.path) for file in files] for files in files_by_bucket(lake).values()]
    # A task takes several buckets, one after the other: to start a task costs as much as some thousand events.
    tasks = max(1, min(len(buckets), partitions_for(spark) // PARTITIONS_PER_TASK))
    numbers = spark.range(0, len(buckets), 1, numPartitions=tasks)
    task = partial(_fold, ship(view, catalog), buckets, with_applied)
    return numbers.mapInArrow(task, from_arrow_schema(FOLDED_SCHEMA))


# ---- in the workers


def _fold(
    shipped: Shipped, buckets: Sequence[Sequence[str]], with_applied: bool, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with carried():
        view, catalog = shipped.unpack()
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                fold = SortedFold(view, catalog, with_applied=with_applied)
                yield from fold.run(with_streams(matching(_batches(buckets[number]), view.query)))


def _batches(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the events of a bucket, by stream and sequence. Several small files are sorted together."""
    if len(files) == 1:
        yield from opened(files[0]).iter_batches(BATCH_EVENTS, columns=ARROW_SCHEMA.names)
        return
    tables = [opened(file).read(columns=ARROW_SCHEMA.names) for file in files]
    together = pa.concat_tables(tables).sort_by([("stream", "ascending"), ("sequence", "ascending")])
    yield from together.combine_chunks().to_batches(max_chunksize=BATCH_EVENTS)


def matching(batches: Iterable[pa.RecordBatch], query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the events that a query selects, of batches with the columns that it needs."""
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
        yield batch if pc.all(keep).as_py() else batch.filter(keep)  # a filter copies even if it keeps everything


def with_streams(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the stream as the key."""
    later = list(SORTED_SCHEMA)[len(ARROW_SCHEMA) + 1 :]
    for batch in batches:
        columns = [batch.column(field.name).cast(field.type) for field in ARROW_SCHEMA]
        nothing = [pa.nulls(batch.num_rows, field.type) for field in later]
        yield pa.RecordBatch.from_arrays([*columns, batch.column("stream"), *nothing], schema=SORTED_SCHEMA)
