"""Parquet files that a task writes itself: one pass over the rows may fill many tables of different shapes.

A file gets a unique name and is reported when it is complete. If a task is run twice, or dies, no commit names the
files of the lost attempt: they are invisible, and removed later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from everlog.files import DiskFiles
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.folders import make_folders

REPORT_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
    ]
)
REPORT = "table string, path string, bytes long, rows long, first long, last long"
GROUP_ROWS = 20_000
ROWS_HELD_MAX = 100_000
"""The rows per group in a file; and the rows of all tables that a task holds at most."""


class ParquetFiles:
    """The open files of one task, by table."""

    def __init__(self, lake: str, folder: str) -> None:
        self._lake = Path(lake)
        self._folder = folder
        self._files = DiskFiles()
        self._open: dict[str, _OpenFile] = {}
        self._held = 0

    def add(self, table: str, rows: pa.RecordBatch) -> None:
        if table not in self._open:
            path = f"{self._folder}/{uuid.uuid4().hex}.parquet"
            make_folders(self._files, self._lake / table / self._folder)
            self._open[table] = _OpenFile(self._lake / table / path, path, rows.schema)
        self._held += self._open[table].hold(rows)
        if self._held >= ROWS_HELD_MAX:
            self._held -= sum(file.write() for file in self._open.values())

    def close(self) -> Iterator[pa.RecordBatch]:
        """Write what is held, and yield the report: one row per file."""
        written = [(table, *file.close(self._files)) for table, file in sorted(self._open.items())]
        if written:
            columns = zip(*written, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, REPORT_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=REPORT_SCHEMA)

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()


class _OpenFile:
    def __init__(self, target: Path, path: str, schema: pa.Schema) -> None:
        self._target, self._path, self._schema = target, path, schema
        # Delta requires times in microseconds and UTC.
        self._writer = pq.ParquetWriter(target, schema, compression="zstd", coerce_timestamps="us")
        self._held: list[pa.RecordBatch] = []
        self._rows = 0
        self._first, self._last = 0, 0

    def hold(self, rows: pa.RecordBatch) -> int:
        """Add rows; return how many more are held than before, or fewer if a group was written."""
        self._held.append(rows)
        self._rows += rows.num_rows
        reach = pc.min_max(rows.column("position")).as_py()
        self._first = min(self._first or reach["min"], reach["min"])
        self._last = max(self._last, reach["max"])
        more: int = rows.num_rows
        return more - (self.write() if sum(map(len, self._held)) >= GROUP_ROWS else 0)

    def write(self) -> int:
        """Write what is held as one group; return the number of rows."""
        held, self._held = self._held, []
        if held:
            self._writer.write_table(pa.Table.from_batches(held, self._schema))
        return sum(map(len, held))

    def close(self, files: DiskFiles) -> DataFile:
        self.write()
        self._writer.close()
        stamp = files.stamp(self._target)
        return DataFile(self._path, stamp.size if stamp else 0, self._rows, self._first, self._last)

    def abandon(self) -> None:
        self._writer.close()
