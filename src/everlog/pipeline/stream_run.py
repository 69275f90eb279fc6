"""Keep a lake up to date with a live log: events are committed within a moment, typed tables and views in seconds.

    the source -> a batch -> one commit to the events' table            as soon as there is something
    typed tables, views, compaction, publish                            every few seconds, in parallel

The table itself records how far it is, so a batch that Spark delivers twice after a crash is added once, whatever the
checkpoint of Spark says; and each start begins with a complete run, so nothing is missed. When history changes (a
purge, a restore), the stream ends, a run applies the change to every table, and a new stream begins.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import EverlogError, HistoryChanged, InvalidSettings
from everlog.files import DiskFiles
from everlog.log.log import Log
from everlog.log.read.resets import proof_at
from everlog.pipeline.engines.spark import SparkEngine
from everlog.pipeline.lake.bucket import is_remote
from everlog.pipeline.lake.compact import SMALL_FILES_MAX, compact, small
from everlog.pipeline.lake.data_file import DataFile, opened
from everlog.pipeline.lake.folders import remove_tree
from everlog.pipeline.lake.lake import EVENTS, Lake
from everlog.pipeline.run import Gold, bring_up_to_date
from everlog.pipeline.session.failures import everlog_error
from everlog.pipeline.session.progress import ignore
from everlog.pipeline.source.source import NAME
from everlog.pipeline.tables import silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "checkpoints/stream"
REFRESH_S = 5.0
TRIGGER_MS = 100
BATCH_EVENTS = 500_000
_LOOK_EVERY_S = 0.1
_KEPT_HOURS = 1
"""A stream leaves thousands of small files per hour; readers that started with them have this long, not a day."""

_logger = logging.getLogger("everlog")


class Commit(NamedTuple):
    """A batch that was committed to the events' table."""

    position: int
    events: int
    lag_s: float  # since its oldest event was recorded
    took_s: float


class Followed(NamedTuple):
    """The result of a stream."""

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
                why="batches are committed from this process, and a Connect server would run them in another one",
                hint="use --master spark://… or this machine",
            )
        self._spark, self._log, self._url, self._lake, self._gold = spark, log, url, lake, gold
        self._engine = SparkEngine(spark)
        self._refresh_s, self._trigger_ms, self._batch_events = refresh_s, trigger_ms, batch_events
        self._committed, self._refreshed = committed, refreshed
        self._checkpoint = lake.path / CHECKPOINT
        self._sinking = threading.Lock()  # held while something is committed to the events' table
        self._stopping = False
        self._has_new = False
        self._events = self._commits = self._refreshes = self._resets = 0
        self._failure: BaseException | None = None

    def run(self, stop: threading.Event) -> Followed:
        """Follow the log until `stop` is set; then commit the current batch, and bring all tables up to it."""
        with self._lake.writing(), self._checkpoints():
            while True:
                self._catch_up()
                if stop.is_set():
                    break
                changed = self._follow(stop)
                if changed is None:
                    if self._has_new:
                        self._refresh()
                    break
                self._resets += 1
                remove_tree(DiskFiles(), self._checkpoint)
            held = self._lake.events.cursor(self._log.identity.epoch)
        position = 0 if held is None else held.position
        return Followed(self._events, self._commits, self._refreshes, self._resets, position)

    @contextmanager
    def _checkpoints(self) -> Iterator[None]:
        """Have a folder for Spark's checkpoint: that of the lake, or one on this machine. Nothing depends on it."""
        if not is_remote(self._lake.path):
            yield
            return
        with TemporaryDirectory(prefix="everlog-stream-") as folder:
            self._checkpoint = Path(folder) / CHECKPOINT
            yield

    def _catch_up(self) -> None:
        outcome = bring_up_to_date(self._engine, self._log, self._url, self._lake, gold=self._gold)
        self._events += outcome.events
        self._refreshed(Cursor.of(outcome.cursor))

    # ---- the stream

    def _follow(self, stop: threading.Event) -> HistoryChanged | None:
        """Run a stream until `stop` is set, or until history changes, which is returned."""
        self._stopping = False
        query = self._start()
        refreshed_at = time.monotonic()
        try:
            while not stop.wait(_LOOK_EVERY_S):
                if self._failure is not None:
                    raise self._failure
                if not query.isActive:
                    return self._reason(query)
                if self._has_new and time.monotonic() - refreshed_at >= self._refresh_s:
                    self._refresh()
                    refreshed_at = time.monotonic()
            return None
        finally:
            self._end(query)

    def _start(self) -> StreamingQuery:
        held = self._lake.events.cursor(self._log.identity.epoch)
        if held is None:
            raise AssertionError("a run was done before, and left a cursor")
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
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(processingTime=f"{self._trigger_ms} milliseconds")
            .start()
        )

    def _end(self, query: StreamingQuery) -> None:
        self._stopping = True
        with self._sinking:
            pass  # the current batch, if there is one, is committed now
        if query.isActive:
            query.stop()

    def _reason(self, query: StreamingQuery) -> HistoryChanged:
        """Return why a query ended by itself: history changed. Raise any other error."""
        failed = query.exception()
        if failed is None:
            raise AssertionError("a query ended by itself without an error")
        error = everlog_error(failed, "following the log")
        if isinstance(error, HistoryChanged):
            _logger.info("history changed under the stream: %s", error)
            return error
        raise error

    def _sink(self, batch: DataFrame, number: int) -> None:
        with self._sinking:
            if self._stopping:
                return  # the next start begins where the table is, not where Spark believes it is
            try:
                self._commit(batch)
            except EverlogError as error:
                self._failure = error  # kept here: Spark would only pass on its text
                raise

    def _commit(self, batch: DataFrame) -> None:
        started = time.monotonic()
        table = self._lake.events
        held = table.cursor(self._log.identity.epoch)
        if held is None:
            raise AssertionError("a run was done before, and left a cursor")
        added = table.write(batch.where(f"position > {held.position}"), cursor=held)
        if not added:
            return
        last = Position(max(file.last for file in added))
        proof = proof_at(self._log.stored, last)
        table.commit(added, cursor=Cursor(last, held.knows, held.epoch, proof))
        now = time.monotonic()
        rows = sum(file.rows for file in added)
        self._events += rows
        self._commits += 1
        self._has_new = True
        self._committed(Commit(last, rows, time.time() - self._oldest(added), now - started))

    def _oldest(self, files: list[DataFile]) -> float:
        """Return when the first of these events was recorded, from the footers of their files."""
        found = []
        for file in files:
            footer = opened(self._lake.events.path / file.path).metadata
            column = footer.schema.names.index("received_at")
            found.append(float(footer.row_group(0).column(column).statistics.min.timestamp()))
        return min(found)

    # ---- every few seconds

    def _refresh(self) -> None:
        """Bring typed tables and views up to the events, and publish the lake."""
        self._has_new = False
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
        with self._sinking:  # this version and no later one: the stream continues meanwhile
            version, upto = lake.events.version(), lake.events.cursor(epoch)
        if upto is None:
            raise AssertionError("a run was done before, and left a cursor")
        upto = Cursor(upto.position, epoch=epoch)
        silver.bring_up_to_date(self._engine, lake, self._log.catalog.without_keys(), upto=upto)
        if self._gold is not None:
            self._gold.bring_up_to_date(self._engine, lake, upto=upto, on_step=ignore)
        lake.publish(upto, versions={EVENTS: version})
        self._refreshes += 1
        self._refreshed(upto)
