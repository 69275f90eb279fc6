"""A DataFrame collected by the driver as Arrow batches, one partition at a time: it needs memory for the largest one.

Each batch is sent as one value: `toLocalIterator` makes a Python object of every row, and takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from everlog.pipeline.session.failures import own_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def batches_of(frame: DataFrame, *, doing: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a DataFrame in order, as Arrow batches; `doing` names the work in errors."""
    packed = frame.mapInArrow(_pack, "batch binary")
    with own_errors(doing):
        for row in packed.toLocalIterator(prefetchPartitions=True):
            yield from pa.ipc.open_stream(pa.py_buffer(row[0]))


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"batch": pa.array([sink.getvalue().to_pybytes()], pa.binary())})
