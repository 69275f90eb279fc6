"""Small files become few, and what nobody reads any more leaves the disk. No row changes.

A stream commits a file every second; a reader of a thousand small files waits for each. So small neighbours are
written as one file, sorted by position, in a commit that says that the rows are the same.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from everlog.pipeline import buckets
from everlog.pipeline.failures import own_errors
from everlog.pipeline.lake import BUCKETS, GOLD, Lake
from everlog.pipeline.table import DataFile, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 128 * 1024 * 1024
SMALL_BYTES = FILE_BYTES // 8
SMALL_FILES_MAX = 40
"""A table with more small files than this is compacted by a run that finds it so."""
KEPT_HOURS = 24
"""Files of old versions are kept for so long, for readers that began with them."""


class Compacted(NamedTuple):
    table: str
    before: int  # files
    after: int
    removed: int  # files of old versions, and what killed runs left


def compact(
    spark: SparkSession,
    lake: Lake,
    *,
    epoch: str,
    small_files_max: int = 1,
    kept_hours: int = KEPT_HOURS,
    while_committing: AbstractContextManager[object] | None = None,
) -> list[Compacted]:
    """Unite the small files of each table that has more than so many, and remove old versions.

    `while_committing` is held for each commit, where others of this process commit too.
    """
    published = lake.published().tables
    done = []
    for table in lake.tables():
        before, version = len(table.files()), table.version()
        if table.name == BUCKETS:
            buckets.unite(spark, lake, epoch=epoch)
        elif not table.name.startswith(GOLD + "/"):  # those are written by whoever folds, in the files that it wants
            _unite(spark, table, epoch, small_files_max, while_committing or nullcontext())
        if published.get(table.name) == version:  # what was published has other files now, and the same rows
            lake.republish(table)
        removed = table.vacuum(kept_hours, [lake.published().tables.get(table.name, version)])
        done.append(Compacted(table.name, before, len(table.files()), removed))
    return done


def small(table: Table) -> list[DataFile]:
    return [file for file in table.files() if file.bytes < SMALL_BYTES]


def _unite(
    spark: SparkSession,
    table: Table,
    epoch: str,
    small_files_max: int,
    while_committing: AbstractContextManager[object],
) -> None:
    held = table.cursor(epoch)
    few = small(table)
    if held is None or len(few) <= small_files_max:
        return
    count = -(-sum(file.bytes for file in few) // FILE_BYTES)
    rows = table.read(spark, files=few)
    rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, "position")
    with own_errors(f"compacting {table.name}"):
        united = table.write(rows.sortWithinPartitions("position"), cursor=held)
    with while_committing:
        table.commit(united, remove=few, same_rows=True)
