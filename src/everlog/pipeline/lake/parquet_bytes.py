"""The values of a Parquet file as bytes, to be searched: in the file they are packed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq


def column_bytes(path: Path) -> Iterator[bytes]:
    """Return the bytes of every column, piece by piece. A value is never divided between two pieces."""
    for batch in pq.ParquetFile(path).iter_batches():
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is not None:
                    yield buffer.to_pybytes()
