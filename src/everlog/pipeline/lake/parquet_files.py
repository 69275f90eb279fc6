"""Parquet files that a task writes itself: one pass over the rows may fill many tables of different shapes.

A file gets a unique name and is reported when it is complete. If a task is run twice, or dies, no commit names the
files of the lost attempt: they are invisible, and removed later.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from everlog.files import DiskFiles
from everlog.pipeline.lake.bucket import BucketFiles, is_remote
from everlog.pipeline.lake.data_file import DataFile, described, opened, sealed
from everlog.pipeline.lake.folders import make_folders
from everlog.pipeline.session.failures import carried

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
PARQUET: dict[str, Any] = {"compression": "zstd", "coerce_timestamps": "us", "write_page_checksum": True}
"""How every file is written. Delta requires times in microseconds and UTC."""

GROUP_ROWS = 20_000
ROWS_HELD_MAX = 100_000
"""The rows per group in a file; and the rows of all tables that a task holds at most."""


class ParquetFiles:
    """The open files of one task, by table."""

    def __init__(self, lake: str, folder: str, *, name: str = "") -> None:
        self._lake = Path(lake)
        self._folder = folder
        self._name = name
        self._open: dict[str, _OpenFile] = {}
        self._held = 0

    def add(self, table: str, rows: pa.RecordBatch) -> None:
        if table not in self._open:
            self._open[table] = _OpenFile(NewFile(self._lake / table, self._folder, self._name), rows.schema)
        self._held += self._open[table].hold(rows)
        if self._held >= ROWS_HELD_MAX:
            self._held -= sum(file.write() for file in self._open.values())

    def close(self) -> Iterator[pa.RecordBatch]:
        """Write what is held, and yield the report: one row per file."""
        written = [(table, *file.close()) for table, file in sorted(self._open.items())]
        if written:
            columns = zip(*written, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, REPORT_SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=REPORT_SCHEMA)

    def abandon(self) -> None:
        for file in self._open.values():
            file.abandon()


class NewFile:
    """A file that is being written: beside its final name, or on this machine until it is uploaded to its bucket."""

    def __init__(self, table: Path, folder: str, name: str = "") -> None:
        self._table = table
        self._path = f"{folder}/{name or uuid.uuid4().hex + '.parquet'}"
        self.at = table / self._path
        if is_remote(table):
            self._here = TemporaryDirectory(prefix="everlog-")
            self.at = Path(self._here.name) / "new.parquet"
        else:
            make_folders(DiskFiles(), self.at.parent)

    def seal(self) -> DataFile:
        """Give the complete file its name, and return it."""
        if not is_remote(self._table):
            return sealed(self._table, self._path, DiskFiles())
        found = described(self.at, self._path)
        BucketFiles().upload(self.at, self._table / found.path)
        self._here.cleanup()
        return found


class _OpenFile:
    def __init__(self, file: NewFile, schema: pa.Schema) -> None:
        self._file, self._schema = file, schema
        self._writer = pq.ParquetWriter(file.at, schema, **PARQUET)
        self._held: list[pa.RecordBatch] = []

    def hold(self, rows: pa.RecordBatch) -> int:
        """Add rows; return how many more are held than before, or fewer if a group was written."""
        self._held.append(rows)
        more: int = rows.num_rows
        return more - (self.write() if sum(map(len, self._held)) >= GROUP_ROWS else 0)

    def write(self) -> int:
        """Write what is held as one group; return the number of rows."""
        held, self._held = self._held, []
        if held:
            self._writer.write_table(pa.Table.from_batches(held, self._schema))
        return sum(map(len, held))

    def close(self) -> DataFile:
        self.write()
        self._writer.close()
        return self._file.seal()

    def abandon(self) -> None:
        self._writer.close()


# ---- tasks on a lake in a bucket, which Spark itself cannot reach


def read_objects(
    table: str, name: str, paths: Sequence[str], numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of files, each with its path."""
    with carried():
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in opened(f"{table}/{paths[number]}", table=name).iter_batches(GROUP_ROWS):
                    yield rows.append_column("file_path", pa.repeat(paths[number], rows.num_rows))


def write_objects(table: str, folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task as one file, and report it. Its name begins as Spark's does: with the partition."""
    from pyspark import TaskContext

    with carried():
        files = ParquetFiles(table, folder, name=f"part-{TaskContext.get().partitionId():05d}-new.parquet")  # type: ignore[union-attr]
        for rows in batches:
            if rows.num_rows:
                files.add("", rows)
        yield from files.close()
