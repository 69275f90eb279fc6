"""Unite small files, and remove files that no version needs. No row changes.

A stream commits a file every second, and a reader of a thousand small files waits for each. So small neighbours are
written as one file, sorted by position, in a commit that records that the rows are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from everlog.pipeline.lake import buckets
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import BUCKETS, GOLD, Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.session.failures import own_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FILES_MAX = 40
"""A run compacts a table that has more small files than this."""
KEPT_HOURS = 24
"""How long files of old versions are kept, for readers that started with them."""


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

    `while_committing` is entered for each commit, if other threads of this process commit too.
    """
    done = []
    for table in lake.tables():
        before, version = len(table.files()), table.version()
        if table.name == BUCKETS:
            with _republished(lake, table):
                buckets.unite(spark, lake, epoch=epoch)
        elif not table.name.startswith(GOLD + "/"):  # a fold writes all files of its table
            _unite(spark, lake, table, epoch, small_files_max, while_committing or nullcontext())
        removed = table.vacuum(kept_hours, [lake.published().tables.get(table.name, version)])
        done.append(Compacted(table.name, before, len(table.files()), removed))
    return done


@contextmanager
def _republished(lake: Lake, table: Table) -> Iterator[None]:
    """Publish what is committed meanwhile, if the last version was: it has other files, with the same rows."""
    is_published = lake.published().tables.get(table.name) == table.version()
    yield
    if is_published:
        lake.republish(table)


def small(table: Table) -> list[DataFile]:
    """Return the files that are worth uniting: below an eighth of the size that files should have."""
    return [file for file in table.files() if file.bytes < table.file_bytes // 8]


def _unite(
    spark: SparkSession,
    lake: Lake,
    table: Table,
    epoch: str,
    small_files_max: int,
    while_committing: AbstractContextManager[object],
) -> None:
    held = table.cursor(epoch)
    few = small(table)
    if held is None or len(few) <= small_files_max:
        return
    count = -(-sum(file.bytes for file in few) // table.file_bytes)
    rows = table.read(spark, files=few)
    rows = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, "position")
    with own_errors(f"compacting {table.name}"):
        united = table.write(rows.sortWithinPartitions("position"), cursor=held)
    with while_committing, _republished(lake, table):
        table.commit(united, remove=few, same_rows=True)
