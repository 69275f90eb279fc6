"""The Spark engine: any number of events, on the cores of this machine or of a cluster.

It also derives the build of a live view (`derive_on`, `everlog views rebuild NAME --engine spark`):

    the log up to its head P  ->  the fold on Spark  ->  a build at P  ->  the live view, from P + 1 on

Nothing is lost or repeated in between: P is taken before the job starts, the job reads up to P and no further, and
the cursor of the build is P. If something is purged meanwhile, the source reports it, and the rebuild starts again.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from everlog.catalog.catalog import Catalog
from everlog.catalog.seen import Shape
from everlog.core.event import Position, Purge
from everlog.core.query import Cursor
from everlog.pipeline.engines.choose import SPARK
from everlog.pipeline.engines.engine import FoldedFiles, R, T
from everlog.pipeline.fold.collected import batches_of
from everlog.pipeline.fold.fold import fold_view, partitions_for
from everlog.pipeline.fold.letters import letter_of
from everlog.pipeline.fold.sorted_fold import APPLIED, LETTER, ROW, STOP
from everlog.pipeline.fold.view_fold import fold_some, fold_table, lake_events
from everlog.pipeline.lake import buckets
from everlog.pipeline.lake.compact import compact
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.erase import Erased, PurgedStreams, Refold, Scrubbed, erase, scrub
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.lake.parquet_files import REPORT
from everlog.pipeline.lake.table import Table
from everlog.pipeline.session.failures import carried, own_errors
from everlog.pipeline.session.session import share_environment
from everlog.pipeline.source.source import events
from everlog.pipeline.sql.on_spark import selected
from everlog.pipeline.sql.query import Query
from everlog.pipeline.tables.readings import NO_SHAPES, SHAPES, Readings, ranked, shapes_task
from everlog.pipeline.tables.typed import NEEDED, typing_task
from everlog.views.builds.rows import kept_of
from everlog.views.dead_letters import ViewLetter
from everlog.views.rebuild.elsewhere import Derive, Part
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_sources = msgspec.json.Decoder(list[str]).decode

_DIFFERING_MAX = 10_000

TASK_EVENTS_MIN, TASK_EVENTS_MAX = 50_000, 500_000
"""A task writes one file: of no more events than are cheap to read again, and not so few that files are small."""


class SparkEngine:
    name = SPARK

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        share_environment(spark)

    # ---- events

    def write_events(self, lake: Lake, url: str, *, after: Position, cursor: Cursor) -> list[DataFile]:
        size = task_events(cursor.position - after)
        rows = events(self.spark, url, after=after, upto=cursor.position, range_events=size)
        with own_errors("reading the log"):
            return lake.events.write(rows, cursor=cursor)

    # ---- typed tables

    def type_events(
        self,
        lake: Lake,
        readings: Readings,
        folder: str,
        *,
        after: int,
        upto: int,
        types: Collection[str] = (),
        held: Mapping[str, int],
    ) -> Iterable[Sequence[Any]]:
        rows = lake_events(self.spark, lake, after, upto)
        if types:
            rows = rows.where(_among(types))
        with own_errors("typing the events"):
            return (
                rows.select(*NEEDED).mapInArrow(typing_task(str(lake.path), folder, readings, held), REPORT).collect()
            )

    def shapes(
        self, table: Table, types: Collection[str], *, upto: int, within: Mapping[str, Shape] = NO_SHAPES
    ) -> dict[str, list[Shape]]:
        rows = table.read(self.spark).where(_among(types)).where(f"position <= {upto}").select("type", "payload")
        with own_errors("looking at payloads"):
            return ranked(rows.mapInArrow(shapes_task(within), SHAPES).collect())

    def set_aside(self, lake: Lake) -> set[tuple[str, int]]:
        rows = lake.quarantine.read(self.spark).select("type", "reading").distinct()
        with own_errors("reading the quarantine"):
            return {(row[0], row[1]) for row in rows.collect()}

    def clear_set_aside(
        self, lake: Lake, types: Collection[str], *, cursor: Cursor
    ) -> tuple[list[DataFile], list[DataFile]]:
        table, theirs = lake.quarantine, _among(types)
        with own_errors("judging the quarantine again"):
            stale = table.files_with(self.spark, lambda rows: rows.where(theirs))
            rest = table.read(self.spark, files=stale).where(~theirs).coalesce(1)
            return stale, table.write(rest, cursor=cursor) if stale else []

    # ---- views and SQL

    def prepare_folds(self, lake: Lake, folds: int, *, upto: Cursor) -> None:
        if buckets.pays(lake.events.rows(), folds):
            buckets.bring_up_to_date(self.spark, lake, upto=upto)

    def fold(
        self,
        lake: Lake,
        view: View,
        catalog: Catalog,
        *,
        held: Cursor | None,
        upto: Cursor,
        stopped_by: ViewLetter | None = None,
        keys: Sequence[str] | None = None,
    ) -> FoldedFiles:
        with own_errors(f"folding the view {view.name}"):
            if keys is not None:
                return fold_some(self.spark, lake, view, catalog, keys, upto=upto)
            return fold_table(self.spark, lake, view, catalog, held=held, upto=upto, stopped_by=stopped_by)

    def select(self, lake: Lake, query: Query, into: Table, *, cursor: Cursor) -> tuple[list[DataFile], StructType]:
        with selected(self.spark, query) as rows:
            return into.write(rows, cursor=cursor), rows.schema

    def look(self, lake: Lake, query: Query) -> pa.Table:
        with selected(self.spark, query) as rows:
            return rows.toArrow()

    # ---- comparison with the log

    def spread(self, work: Callable[[T], R], over: Sequence[T]) -> Iterable[R]:
        from pyspark import cloudpickle

        if not over:
            return
        shipped: bytes = cloudpickle.dumps((work, list(over)))  # type: ignore[no-untyped-call]
        task = partial(_worked, shipped, tuple(path for path in sys.path if path))
        numbers = self.spark.range(0, len(over), 1, numPartitions=min(len(over), partitions_for(self.spark)))
        with own_errors("comparing the lake with its log"):
            for row in numbers.mapInArrow(task, "result binary").toLocalIterator():
                yield pickle.loads(row[0])

    def sample_keys(self, table: Table, count: int) -> list[str] | None:
        from pyspark.sql import functions as sql

        rows = table.read(self.spark).select("key").orderBy(sql.rand()).limit(count)
        with own_errors(f"reading {table.name}"):
            return [row[0] for row in rows.collect()]

    def differing(
        self, table: Table, held: Sequence[DataFile], again: Sequence[DataFile], *, keys: Sequence[str] | None
    ) -> tuple[dict[str, list[str]], list[str]]:
        from pyspark.sql import functions as sql

        now = table.read(self.spark, files=again)
        there = table.read_with_paths(self.spark, held) if held else now.withColumn("file_path", sql.lit("")).limit(0)
        if keys is not None:
            now, there = (rows.where(sql.col("key").isin(list(keys))) for rows in (now, there))
        left = there.select("key", "file_path", sql.to_json(sql.struct(*now.columns)).alias("held"))
        right = now.select("key", sql.to_json(sql.struct(*now.columns)).alias("now"))
        found = left.join(right, "key", "full_outer").where(~sql.equal_null("held", "now"))
        wrong, missing = dict[str, list[str]](), list[str]()
        with own_errors(f"comparing {table.name}"):
            for row in found.select("key", "file_path").limit(_DIFFERING_MAX).collect():
                if row["file_path"] is None:
                    missing.append(row["key"])
                else:
                    wrong.setdefault(table.path_of(row["file_path"]), []).append(row["key"])
        return wrong, missing

    def rest(
        self, table: Table, held: Sequence[DataFile], again: Sequence[DataFile], *, cursor: Cursor
    ) -> list[DataFile]:
        there = table.read(self.spark, files=held).select("key")
        rows = table.read(self.spark, files=again).join(there, "key", "left_anti")
        with own_errors(f"writing {table.name}"):
            return table.write(rows.coalesce(1), cursor=cursor)

    # ---- upkeep

    def erase(self, lake: Lake, purges: Sequence[Purge], *, epoch: str, refold: Refold) -> Erased:
        gone = PurgedStreams(self.spark, purges)
        return erase(self.spark, lake, gone, knows=purges[-1].reserved, epoch=epoch, refold=refold)

    def scrub(self, lake: Lake, purges: Sequence[Purge], *, sentinels: Sequence[str]) -> Scrubbed:
        gone = PurgedStreams(self.spark, purges).streams
        return scrub(self.spark, lake, knows=purges[-1].reserved, gone=gone, sentinels=sentinels)

    def compact(self, lake: Lake, *, epoch: str, small_files_max: int) -> None:
        compact(self.spark, lake, epoch=epoch, small_files_max=small_files_max)


def task_events(count: int) -> int:
    """Return how many positions one task takes of so many: enough tasks for some cores, and files of a good size."""
    return max(TASK_EVENTS_MIN, min(TASK_EVENTS_MAX, -(-count // 8)))


def _among(types: Collection[str]) -> Any:
    from pyspark.sql import functions as sql

    return sql.col("type").isin(sorted(types))


def _worked(shipped: bytes, paths: Sequence[str], numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with carried():
        sys.path.extend(path for path in paths if path not in sys.path)
        work, over = pickle.loads(shipped)
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict(
                    {"result": pa.array([pickle.dumps(work(over[number]))], pa.binary())}
                )


# ---- the build of a live view


def derive_on(spark: SparkSession, url: str, view: View, catalog: Catalog) -> Derive:
    """Return what `LiveView.rebuild(derive=…)` takes: it folds the view over the log of this URL on Spark."""

    def derive(upto: Position) -> Iterator[Part]:
        found = events(spark, url, view.query, upto=upto)
        frame = fold_view(found, view, catalog, partitions=partitions_for(spark, upto))
        for batch in batches_of(frame, doing=f"folding the view {view.name}"):
            yield part_of(batch)

    return derive


def part_of(batch: pa.RecordBatch) -> Part:
    """Return some rows of a fold (`FOLDED_SCHEMA`) as a part of a build."""
    rows: dict[str, bytes] = {}
    places: dict[int, int] = {}
    letters: list[ViewLetter] = []
    stops: list[ViewLetter] = []
    columns = (batch.column(number).to_pylist() for number in range(batch.num_columns))
    for what, position, lamport, id, key, count, sources, state, letter, bits in zip(*columns, strict=True):
        if what == ROW:
            known = None if sources is None else _sources(sources)
            rows[key] = kept_of(count, lamport, id, known, state.encode())
        elif what == APPLIED:
            places[position] = places.get(position, 0) | int.from_bytes(bits)
        elif what == LETTER:
            letters.append(letter_of(letter))
        elif what == STOP:
            stops.append(letter_of(letter))
    return Part(rows, places, letters, stops)
