"""Remove what was purged in the log from the lake: rows, states, old versions, and every byte on the disk.

    what is gone in the log                        PurgedStreams
    -> gold: the keys that it fed, folded again    `refold`
    -> buckets, silver, quarantine: the files that hold some of it are rewritten without it
    -> events: the same, and the commit records which purge this was
    -> `scrub`, once the new versions are published: files that no table names are removed, every other file is
       searched for what must be gone, and only then the lake counts as scrubbed

The events come last, because they show what else is concerned: after a crash all of it is done again, and steps that
were done find nothing to do. To erase something else than purged streams (the payloads of one person), pass another
`Erasure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from everlog.core.event import Position, Purge
from everlog.core.query import Cursor
from everlog.errors import Damaged
from everlog.pipeline.lake.buckets import bucket_of, files_by_bucket, in_buckets
from everlog.pipeline.lake.lake import BUCKETS, EVENTS, SCRATCH, Lake
from everlog.pipeline.lake.scan import scan
from everlog.pipeline.lake.table import Table
from everlog.pipeline.session.failures import own_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SENTINELS_MAX = 50
PAYLOAD_CHARS_MIN = 24


class Erasure(Protocol):
    """What has to be erased. Rows have the columns `stream` and `position`, and others."""

    def concerned(self, rows: DataFrame) -> DataFrame:
        """Return the rows that must not stay."""
        ...

    def rewritten(self, rows: DataFrame) -> DataFrame:
        """Return what replaces the rows of a file that holds some of them."""
        ...


class PurgedStreams(Erasure):
    """The events of streams below the positions that their purges reserved; a purged stream may continue after it."""

    def __init__(self, spark: SparkSession, purges: Sequence[Purge]) -> None:
        newest: dict[str, int] = {}
        for purge in purges:
            newest[purge.stream] = max(purge.reserved, newest.get(purge.stream, 0))
        self.streams = newest
        self._gone = spark.createDataFrame(list(newest.items()), "stream string, gone_below long")

    def concerned(self, rows: DataFrame) -> DataFrame:
        return self._joined(rows, "left_semi")

    def rewritten(self, rows: DataFrame) -> DataFrame:
        return self._joined(rows, "left_anti")

    def _joined(self, rows: DataFrame, how: str) -> DataFrame:
        from pyspark.sql import functions as sql

        gone = sql.broadcast(self._gone)
        same = (rows["stream"] == gone["stream"]) & (rows["position"] < gone["gone_below"])
        return rows.join(gone, on=same, how=how)


class Erased(NamedTuple):
    """What was removed from the tables."""

    events: int = 0
    files: int = 0  # rewritten
    sentinels: tuple[str, ...] = ()  # texts that must not occur anywhere from now on


class Scrubbed(NamedTuple):
    """What was done on the disk."""

    removed: int  # files of old versions and of killed runs
    scanned: int
    scanned_bytes: int


Refold = Callable[["DataFrame", "DataFrame", Cursor], None]
"""Called with the events that go, those that stay and the new cursor: derive again what they fed, and commit it."""


def purges_unknown_to(purges: Sequence[Purge], cursor: Cursor) -> list[Purge]:
    """Return the purges that a reader at this cursor has not taken into account."""
    return [purge for purge in purges if purge.reserved > max(cursor.position, cursor.knows)]


def erase(
    spark: SparkSession, lake: Lake, erasure: Erasure, *, knows: Position, epoch: str, refold: Refold
) -> Erased:
    """Erase something from every table; `knows` is the purge that is then taken into account.

    The old versions still hold it: publish the new ones, then call `scrub`.
    """
    held = lake.events.cursor(epoch)
    if held is None:
        return Erased()
    cursor = Cursor(held.position, max(held.knows, knows), epoch, held.proof)
    with own_errors("erasing what was purged"):
        going = erasure.concerned(lake.events.read(spark)).cache()
        try:
            count = going.count()
            files, sentinels = 0, tuple[str, ...]()
            if count:
                sentinels = _sentinels(going)
                refold(going, erasure.rewritten(lake.events.read(spark)), cursor)
                types = [row[0] for row in going.select("type").distinct().collect()]
                tables = [lake.buckets, *map(lake.silver, sorted(types)), lake.quarantine]
                files = sum(_rewrite(spark, lake, table, erasure, epoch, knows) for table in tables)
            files += _rewrite(spark, lake, lake.events, erasure, epoch, knows)
        finally:
            going.unpersist()
    return Erased(count, files, sentinels)


def scrub(
    spark: SparkSession, lake: Lake, *, knows: Position, gone: Mapping[str, int], sentinels: Sequence[str] = ()
) -> Scrubbed:
    """Remove every file that no table names, search all others, and record that it was done.

    `gone` are streams with the position below which no row of them may remain.
    """
    removed = sum(table.sweep() for table in lake.tables())
    lake.remove_scratch(but=spark.conf.get("spark.local.dir", "") or "")
    with own_errors("looking for what was purged"):
        # Not the files that this session is working with: they are removed when it ends.
        report = scan(spark, lake.path, sentinels, gone, but=lake.path / SCRATCH)
    # A text that an event which stays contains too, or refers to, proves nothing. That the events' table has no
    # purged row is checked by stream.
    staying = set(map(str, lake.events.paths()))
    shared = {word for path, word in report.found if path in staying}.intersection(sentinels)
    found = [(path, what) for path, what in report.found if what not in shared]
    if found:
        raise Damaged(
            "something that was purged is still in the lake",
            why="; ".join(f"{path} holds {what}" for path, what in found[:5]),
            hint="remove the lake's folder, then everlog pipeline run: it is rebuilt from the log",
            found=len(found),
        )
    lake.scrubbed(knows)
    return Scrubbed(removed, report.files, report.bytes)


def _rewrite(spark: SparkSession, lake: Lake, table: Table, erasure: Erasure, epoch: str, knows: Position) -> int:
    """Rewrite the files that hold some of it, in one commit; return their number."""
    held = table.cursor(epoch)
    if held is None:
        return 0
    files = table.files_with(spark, erasure.concerned)
    cursor = Cursor(held.position, max(held.knows, knows), epoch, held.proof)
    if files and table.name == BUCKETS:
        # Whole buckets: a stream continues in the next file of its bucket, and the new files are the last ones.
        concerned = {bucket_of(file) for file in files}
        files = [file for number in concerned for file in files_by_bucket(lake)[number]]
        table.replace(files, in_buckets(erasure.rewritten(table.read(spark, files=files))), cursor=cursor)
    elif files:
        rows = erasure.rewritten(table.read(spark, files=files))
        table.replace(files, rows.coalesce(len(files)).sortWithinPartitions("position"), cursor=cursor)
    elif table.name == EVENTS:
        table.commit([], cursor=cursor)  # record the purge even if it concerned no row
    return len(files)


def _sentinels(going: DataFrame) -> tuple[str, ...]:
    """Return the ids of some of the events, and their payloads, if these are long enough to be unique."""
    found: list[str] = []
    for row in going.select("id", "payload").limit(SENTINELS_MAX).collect():
        found.append(row["id"])
        if row["payload"] is not None and len(row["payload"]) >= PAYLOAD_CHARS_MIN:
            found.append(row["payload"])
    return tuple(found)
