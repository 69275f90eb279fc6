"""The lake kept fresh from a live log: every event is committed within a moment, typed tables and views in seconds.

    the source -> a batch -> one commit of the events' table            as soon as something is there
    typed tables, views, compaction, published                          every few seconds, beside it

The table itself says how far it is, so a batch that Spark gives twice after a crash is taken once, whatever Spark's
checkpoint says; and a start begins with a whole run, so nothing is missed either. When history changes under the
stream (a purge, a restore), the stream ends, a run applies the change to every table, and a new stream begins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from everlog.core.query import Cursor
from everlog.errors import EverlogError, HistoryChanged, InvalidSettings
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.pipeline import silver
from everlog.pipeline.compacting import SMALL_FILES_MAX, compact, small
from everlog.pipeline.failures import told
from everlog.pipeline.lake import EVENTS, Lake
from everlog.pipeline.run import Gold, bring_up_to_date
from everlog.pipeline.source import NAME
from everlog.pipeline.table import DataFile, remove_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "checkpoints/stream"
REFRESH_S = 5.0
TRIGGER_MS = 100
BATCH_EVENTS = 500_000
_LOOK_EVERY_S = 0.1
_KEPT_HOURS = 1
"""A stream leaves thousands of small files an hour; they are kept for readers that began with them, not for a day."""

_logger = logging.getLogger("everlog")


class Commit(NamedTuple):
    """A batch that is in the events' table."""

    position: int
    events: int
    lag_s: float  # from when its oldest event was recorded to now
    took_s: float


class Followed(NamedTuple):
    """What was done until the end."""

    events: int
    commits: int
    refreshes: int
    resets: int
    position: int


class Follower:
    def __init__(
        self,
        spark: SparkSession,
        log: Log,
        url: str,
        lake: Lake,
        *,
        gold: Gold | None = None,
        refresh_s: float = REFRESH_S,
        trigger_ms: int = TRIGGER_MS,
        batch_events: int = BATCH_EVENTS,
        committed: Callable[[Commit], None] = lambda commit: None,
        refreshed: Callable[[Cursor], None] = lambda cursor: None,
    ) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise InvalidSettings(
                "a stream into the lake cannot run over Spark Connect",
                why="batches are committed from here, and a Connect server would run them in a process of its own",
                hint="use --master spark://… or this machine",
            )
        self._spark, self._log, self._url, self._lake, self._gold = spark, log, url, lake, gold
        self._refresh_s, self._trigger_ms, self._batch_events = refresh_s, trigger_ms, batch_events
        self._committed, self._refreshed = committed, refreshed
        self._sinking = threading.Lock()  # held while the events' table gets a commit
        self._stopping = False
        self._news = False
        self._events = self._commits = self._refreshes = self._resets = 0
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event) -> Followed:
        """Follow the log until `stop` is set: then the batch under way is committed, and all tables brought up."""
        with self._lake.writing():
            while True:
                self._catch_up()
                if stop.is_set():
                    break
                changed = self._follow(stop)
                if changed is None:
                    if self._news:
                        self._refresh()
                    break
                self._resets += 1
                remove_tree(DiskFiles(), self._lake.path / CHECKPOINT)
            held = self._lake.events.cursor(self._log.identity.epoch)
        position = 0 if held is None else held.position
        return Followed(self._events, self._commits, self._refreshes, self._resets, position)

    def _catch_up(self) -> None:
        outcome = bring_up_to_date(self._spark, self._log, self._url, self._lake, gold=self._gold)
        self._events += outcome.events
        self._refreshed(Cursor.of(outcome.cursor))

    # ---- the stream

    def _follow(self, stop: threading.Event) -> HistoryChanged | None:
        """Until it is to stop; or until history changed, which is returned."""
        self._stopping = False
        query = self._start()
        refreshed_at = time.monotonic()
        try:
            while not stop.wait(_LOOK_EVERY_S):
                if self._failure is not None:
                    raise self._failure
                if not query.isActive:
                    return self._reason(query)
                if self._news and time.monotonic() - refreshed_at >= self._refresh_s:
                    self._refresh()
                    refreshed_at = time.monotonic()
            return None
        finally:
            self._end(query)

    def _start(self) -> StreamingQuery:
        held = self._lake.events.cursor(self._log.identity.epoch)
        if held is None:
            raise AssertionError("a run came before, and left a cursor")
        stream = (
            self._spark.readStream.format(NAME)
            .option("url", self._url)
            .option("after", str(held))
            .option("knows", max(held.position, held.knows))
            .option("maxEventsPerTrigger", self._batch_events)
            .load()
        )
        return (
            stream.writeStream.foreachBatch(self._sink)
            .option("checkpointLocation", str(self._lake.path / CHECKPOINT))
            .trigger(processingTime=f"{self._trigger_ms} milliseconds")
            .start()
        )

    def _end(self, query: StreamingQuery) -> None:
        self._stopping = True
        with self._sinking:
            pass  # the batch under way, if there is one, has its commit now
        if query.isActive:
            query.stop()

    def _reason(self, query: StreamingQuery) -> HistoryChanged:
        """Why a query ended by itself: history changed, or it is an error."""
        failed = query.exception()
        if failed is None:
            raise AssertionError("a query that nobody stopped has ended without an error")
        error = told(failed, "following the log")
        if isinstance(error, HistoryChanged):
            _logger.info("history changed under the stream: %s", error)
            return error
        raise error

    def _sink(self, batch: DataFrame, number: int) -> None:
        with self._sinking:
            if self._stopping:
                return  # the next start begins at what the table has, not at what Spark thinks was done
            try:
                self._commit(batch)
            except EverlogError as error:
                self._failure = error  # as it is: through Spark it would only be text
                raise

    def _commit(self, batch: DataFrame) -> None:
        started = time.monotonic()
        table = self._lake.events
        held = table.cursor(self._log.identity.epoch)
        if held is None:
            raise AssertionError("a run came before, and left a cursor")
        at = Cursor(held.position, held.knows, held.epoch)
        added = table.write(batch.where(f"position > {held.position}"), cursor=at)
        if not added:
            return
        last = max(file.last for file in added)
        table.commit(added, cursor=Cursor(type(held.position)(last), held.knows, held.epoch))
        now = time.monotonic()
        rows = sum(file.rows for file in added)
        self._events += rows
        self._commits += 1
        self._news = True
        self._committed(Commit(last, rows, time.time() - self._oldest(added), now - started))

    def _oldest(self, files: list[DataFile]) -> float:
        """When the first of these events was recorded, by the footers of their files."""
        import pyarrow.parquet as pq

        found = []
        for file in files:
            footer = pq.read_metadata(self._lake.events.path / file.path)
            column = footer.schema.names.index("received_at")
            found.append(float(footer.row_group(0).column(column).statistics.min.timestamp()))
        return min(found)

    # ---- beside it

    def _refresh(self) -> None:
        """Bring typed tables and views up to the events, and make that the state of the lake."""
        self._news = False
        lake, epoch = self._lake, self._log.identity.epoch
        if any(len(small(table)) > SMALL_FILES_MAX for table in lake.tables()):
            compact(
                self._spark,
                lake,
                epoch=epoch,
                small_files_max=SMALL_FILES_MAX,
                kept_hours=_KEPT_HOURS,
                while_committing=self._sinking,
            )
        with self._sinking:  # this version and no later one: the stream goes on while the rest is done
            version, upto = lake.events.version(), lake.events.cursor(epoch)
        if upto is None:
            raise AssertionError("a run came before, and left a cursor")
        upto = Cursor(upto.position, epoch=epoch)
        silver.bring_up_to_date(self._spark, lake, self._log.catalog, upto=upto)
        if self._gold is not None:
            self._gold.bring_up_to_date(self._spark, lake, upto=upto)
        lake.publish(upto, versions={EVENTS: version})
        self._refreshes += 1
        self._refreshed(upto)
