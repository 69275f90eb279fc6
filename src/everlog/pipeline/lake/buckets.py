"""The events a second time, in buckets: a view by stream is then folded without moving anything between tasks.

    buckets/data/…/part-00007-….parquet     every event of a stream is in the files of one bucket, here number 7;
                                            a file is sorted by (stream, sequence)

A bucket is a hash of the stream, the one by which Spark distributes rows. The table is built when it pays: it costs
as much as one fold with a shuffle, and each fold over it takes less than half of that
(docs/how-to/spark/pipeline.md has the figures). A catch-up adds one file to each bucket with new events;
`compact` unites them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlog.core.event import START
from everlog.core.query import Cursor
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.session.failures import own_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUCKETS = 32
PAYS_FROM_EVENTS = 1_000_000
PAYS_FROM_FOLDS = 3
BUCKET_FILES_MAX = 4


def pays(events: int, folds: int) -> bool:
    """Return True if so many folds over so many events cost more without buckets than with them."""
    return events >= PAYS_FROM_EVENTS and folds >= PAYS_FROM_FOLDS


def in_buckets(rows: DataFrame) -> DataFrame:
    """Distribute and sort rows as the table has them: one partition per bucket."""
    return rows.repartition(BUCKETS, "stream").sortWithinPartitions("stream", "sequence")


def bring_up_to_date(spark: SparkSession, lake: Lake, *, upto: Cursor) -> int:
    """Add the events that are new, the first time all of them; return their number."""
    table = lake.buckets
    if table.holds(upto):
        return 0
    held = table.cursor(upto.epoch)
    start = START if held is None else held.position
    new = lake.events.read(spark, files=[file for file in lake.events.files() if file.last > start])
    new = new.where(f"position > {start} AND position <= {upto.position}")
    with own_errors("putting the events into buckets"):
        added = table.write(in_buckets(new), cursor=upto)
    table.commit(added, cursor=upto, schema=new.schema, mode="overwrite" if held is None else "append")
    if held is not None and max(map(len, files_by_bucket(lake).values()), default=0) > BUCKET_FILES_MAX:
        unite(spark, lake, epoch=upto.epoch)
    return sum(file.rows for file in added)


def unite(spark: SparkSession, lake: Lake, *, epoch: str) -> int:
    """Unite the files of each bucket that has several; return how many were replaced."""
    held = lake.buckets.cursor(epoch)
    several = [file for files in files_by_bucket(lake).values() if len(files) > 1 for file in files]
    if held is None or not several:
        return 0
    with own_errors("uniting the files of buckets"):
        united = lake.buckets.write(in_buckets(lake.buckets.read(spark, files=several)), cursor=held)
    lake.buckets.commit(united, remove=several, same_rows=True)
    return len(several)


def files_by_bucket(lake: Lake, *, version: int | None = None) -> dict[int, list[DataFile]]:
    """Return the files of each bucket, oldest events first: a stream continues in the next file of its bucket."""
    found: dict[int, list[DataFile]] = {}
    for file in sorted(lake.buckets.files(version=version), key=lambda file: file.path):
        found.setdefault(bucket_of(file), []).append(file)
    return found


def bucket_of(file: DataFile) -> int:
    """Return the bucket of a file: Spark numbers the files of a write by their partition."""
    return int(file.path.rpartition("/part-")[2][:5])
