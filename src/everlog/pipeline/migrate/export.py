"""A whole log as text, written by many tasks at once: a folder of exports, each complete by itself.

    part-00001.jsonl      positions 1 to 50,000: a head line, the events, and a last line with count and digest
    part-00002.jsonl      …
    manifest.json         every part with its count and digest, written last

Each part is what `everlog export` writes for those positions: `everlog import` takes one or all of them, and
`pipeline migrate` takes the folder. A folder without a manifest is incomplete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from everlog.core.event import Position
from everlog.errors import Conflict
from everlog.files import DiskFiles, replace_file_by
from everlog.pipeline.migrate.chunks import MANIFEST
from everlog.pipeline.session.failures import carried, own_errors
from everlog.transfer.exporting import Export, Format, chunks
from everlog.wiring import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PART_EVENTS = 50_000
_PART = pa.schema([("part", pa.binary())])


class Part(msgspec.Struct, frozen=True):
    """One file of an export, and the positions that it covers; purged ones are not in it."""

    name: str
    first: int
    last: int
    count: int
    digest: str


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """Lists what a folder holds."""

    log_id: str
    format: str
    head: int
    count: int
    parts: list[Part]


def require_empty(folder: Path) -> None:
    """Refuse a folder that is not empty: nothing else may be in the folder of an export."""
    files = DiskFiles()
    if files.exists(folder) and files.names(folder):
        raise Conflict(f"{folder} is not empty", why="an export goes into a new folder", hint="name another one")


def export_all(
    spark: SparkSession, url: str, folder: Path, form: Format = Format.EVERLOG, *, part_events: int = PART_EVENTS
) -> ExportManifest:
    """Export the log of a URL, which every worker can open, into a new folder, which every worker sees."""
    require_empty(folder)
    DiskFiles().make_dir(folder)
    store = open_store(url, base=Path(), create=False)
    try:
        log_id, head = store.identity.log_id, store.head()
    finally:
        store.close()
    firsts = range(1, head + 1, part_events)

    def write(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in found:
            for number in batch.column(0).to_pylist():
                last = min(firsts[number] + part_events - 1, head)
                with carried():
                    part = _part(url, folder / f"part-{number + 1:05}.jsonl", form, firsts[number], last)
                yield pa.record_batch([pa.array([msgspec.msgpack.encode(part)], pa.binary())], schema=_PART)

    parts: list[Part] = []
    if firsts:
        with own_errors("exporting the log"):
            rows = spark.range(0, len(firsts), 1, len(firsts)).mapInArrow(write, "part binary").collect()
        parts = sorted(
            (msgspec.msgpack.decode(bytes(row[0]), type=Part) for row in rows), key=lambda part: part.first
        )
    manifest = ExportManifest(
        log_id=log_id, format=form.value, head=head, count=sum(part.count for part in parts), parts=parts
    )
    replace_file_by(DiskFiles(), folder / MANIFEST, [msgspec.json.format(msgspec.json.encode(manifest)) + b"\n"])
    return manifest


def _part(url: str, path: Path, form: Format, first: int, last: int) -> Part:
    store = open_store(url, base=Path(), create=False)
    try:
        export = Export(store, form, after=Position(first - 1), upto=Position(last))
        replace_file_by(DiskFiles(), path, chunks(export.pieces()))
    finally:
        store.close()
    return Part(path.name, first, last, export.count, export.digest)
