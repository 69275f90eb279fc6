"""Search every byte of a folder of tables, for texts and for rows that must not be there.

Parquet is compressed, so its bytes show nothing: each column is decoded and its buffers are searched, and so is the
file itself (footers hold minima and maxima). All files are searched, whether a table names them or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from everlog.files import DiskFiles
from everlog.pipeline.lake.bucket import content_of, is_remote
from everlog.pipeline.lake.folders import files_for, walk
from everlog.pipeline.session.failures import carried

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPORT = "path string, bytes long, found string"
_REPORT_SCHEMA = pa.schema([("path", pa.string()), ("bytes", pa.int64()), ("found", pa.string())])
_FILES_PER_TASK = 16
_PIECE = 16 * 1024 * 1024


class Scan(NamedTuple):
    files: int
    bytes: int
    found: list[tuple[str, str]]  # a path, and what was found in it


def scan(
    spark: SparkSession,
    folder: Path,
    words: Sequence[str],
    gone: Mapping[str, int] | None = None,
    *,
    but: Path | None = None,
) -> Scan:
    """Search all files below a folder, except below `but`, on all cores that Spark has.

    `gone` are streams with a position: no row of theirs below it may be anywhere.
    """
    found = walk(files_for(folder), folder)
    paths = [(str(path),) for path in found if but is None or not path.is_relative_to(but)]
    if not paths:
        return Scan(0, 0, [])
    tasks = -(-len(paths) // _FILES_PER_TASK)
    rows = (
        spark.createDataFrame(paths, "path string")
        .repartition(tasks)
        .mapInArrow(_task(tuple(words), dict(gone or {})), _REPORT)
    )
    reports = rows.collect()
    hits = sorted((row["path"], row["found"]) for row in reports if row["found"] is not None)
    return Scan(len(paths), sum(row["bytes"] for row in reports if row["found"] is None), hits)


def _task(
    words: tuple[str, ...], gone: Mapping[str, int]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            for batch in batches:
                for path in batch.column("path").to_pylist():
                    size, found = found_in(Path(path), words, gone)
                    rows = [(path, size, None), *((path, 0, word) for word in found)]
                    columns: list[Any] = list(zip(*rows, strict=True))
                    arrays = [pa.array(of, field.type) for of, field in zip(columns, _REPORT_SCHEMA, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=_REPORT_SCHEMA)

    return run


def found_in(path: Path, words: Sequence[str], gone: Mapping[str, int]) -> tuple[int, list[str]]:
    """Return the size of a file, and the words and streams that it holds, compressed or not."""
    needles = {word: word.encode() for word in words}
    found: set[str] = set()
    if is_remote(path):
        content = content_of(path)
        _search(content.to_pybytes(), needles, found)
        if content[:4].to_pybytes() == b"PAR1":
            found.update(_in_parquet(pa.BufferReader(content), needles, gone))
        return content.size, sorted(found)
    files = DiskFiles()
    handle = files.open(path)
    try:
        size = files.size(handle)
        longest = max(map(len, needles.values()), default=1)
        for at in range(0, size, _PIECE):  # pieces overlap: a word may span two of them
            _search(files.read(handle, _PIECE + longest, at=at), needles, found)
        head = files.read(handle, 4, at=0)
    finally:
        files.close(handle)
    if head == b"PAR1":
        found.update(_in_parquet(path, needles, gone))
    return size, sorted(found)


def _in_parquet(path: Path | pa.BufferReader, needles: dict[str, bytes], gone: Mapping[str, int]) -> set[str]:
    found: set[str] = set()
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for column in batch.columns:
                    for buffer in column.buffers():
                        if buffer is not None:
                            _search(buffer.to_pybytes(), needles, found)
                if gone and {"stream", "position"} <= set(batch.schema.names):
                    found.update(_streams_in(batch, gone))
    except (pa.ArrowException, OSError) as error:
        found.add(f"what cannot be read: {error}")  # it may hold anything
    return found


def _streams_in(batch: pa.RecordBatch, gone: Mapping[str, int]) -> set[str]:
    theirs = pc.is_in(batch.column("stream"), pa.array(gone))
    rows = pa.table({"stream": batch.column("stream"), "position": batch.column("position")}).filter(theirs)
    pairs = zip(rows["stream"].to_pylist(), rows["position"].to_pylist(), strict=True)
    return {f"{stream} at {position}" for stream, position in pairs if position < gone[stream]}


def _search(data: bytes, needles: dict[str, bytes], found: set[str]) -> None:
    found.update(word for word, needle in needles.items() if word not in found and needle in data)
