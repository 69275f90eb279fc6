"""The table of a view folded on Spark: from its stored rows and the events after them, or from all events.

All events are folded in the fastest way that the view allows: a declared view without a call of Python per event, a
view by stream over buckets, any other by a shuffle. Nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from everlog.catalog.catalog import Catalog
from everlog.core.query import Cursor
from everlog.pipeline.engines.engine import FoldedFiles
from everlog.pipeline.fold.declared import fold_declared, why_not
from everlog.pipeline.fold.fold import fold_keyed, fold_view, keyed, partitions_for
from everlog.pipeline.fold.letters import letter_frame, letter_of, letters_in, letters_table
from everlog.pipeline.fold.presorted import fold_buckets, is_presorted
from everlog.pipeline.fold.sorted_fold import LATE, LETTER, ROW, STOP
from everlog.pipeline.fold.view_code import ship
from everlog.pipeline.fold.view_columns import as_folded, laid_out_frame, schema_of
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.lake.table import Table
from everlog.views.builds.rows import CausalOrder
from everlog.views.dead_letters import ViewLetter
from everlog.views.declared import DeclaredView
from everlog.views.fold import NOBODY
from everlog.views.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def fold_table(
    spark: SparkSession,
    lake: Lake,
    view: View,
    catalog: Catalog,
    *,
    held: Cursor | None,
    upto: Cursor,
    stopped_by: ViewLetter | None = None,
) -> FoldedFiles:
    """Fold what came after `held` onto the rows of the table, and write its rows and letters (`Engine.fold`)."""
    table = lake.gold(view.name)
    start = 0 if held is None else held.position
    stored = None if held is None else as_folded(table.read(spark))
    folded = _folded_faster(spark, lake, view, catalog, upto) if stored is None else None
    if folded is None:
        folded = fold_view(
            lake_events(spark, lake, start, upto.position),
            view,
            catalog,
            stored=stored,
            parked=NOBODY if held is None else _parked(spark, lake, view, start),
            partitions=partitions_for(spark, upto.position - start + (0 if stored is None else table.rows())),
            with_applied=False,
        )
    files, seen = _written(table, folded, view, catalog, upto)
    if seen.stop:
        (row,) = folded.where(f"what = '{STOP}' AND position = {seen.stop}").select("letter").limit(1).collect()
        return FoldedFiles(stop=letter_of(row[0]))
    new = letters_in(folded, LETTER) if seen.letters else None
    late: DataFrame | None = None
    if seen.late:
        keys = [(row[0],) for row in folded.where(f"what = '{LATE}'").select("key").collect()]
        late = spark.createDataFrame(keys, "key string")
        again = _fold_keys(lake_events(spark, lake, 0, upto.position), view, catalog, late)
        more, seen_again = _written(table, again, view, catalog, upto)
        files = [*files, *more]
        if seen_again.letters:
            new = letters_in(again, LETTER) if new is None else new.union(letters_in(again, LETTER))
    if stopped_by is not None:
        stop = letter_frame(spark, [stopped_by])
        new = stop if new is None else new.union(stop)
    return FoldedFiles(files, _write_letters(spark, lake, view, start, upto, new, without=late), seen.letters)


def fold_some(
    spark: SparkSession, lake: Lake, view: View, catalog: Catalog, keys: Sequence[str], *, upto: Cursor
) -> FoldedFiles:
    """Fold some keys from their beginning, and write their rows."""
    chosen = spark.createDataFrame([(key,) for key in keys], "key string")
    folded = _fold_keys(lake_events(spark, lake, 0, upto.position), view, catalog, chosen)
    return FoldedFiles(_written(lake.gold(view.name), folded, view, catalog, upto)[0])


def refold(
    lake: Lake, view: View, catalog: Catalog, going: DataFrame, staying: DataFrame, upto: Cursor
) -> FoldedFiles:
    """Fold again the keys that the events that go have fed, from those that stay; write all rows and letters."""
    table, letters = lake.gold(view.name), letters_table(lake, view)
    spark = going.sparkSession
    keys = keyed(going.where(f"position <= {upto.position}"), view, ship(view, catalog))
    keys = keys.where("key IS NOT NULL").select("key").distinct().cache()
    try:
        again = _fold_keys(staying.where(f"position <= {upto.position}"), view, catalog, keys)
        files, seen = _written(table, again, view, catalog, upto)
        put: list[DataFile] | None = None
        if letters.exists() or seen.letters:
            kept = letters.read(spark) if letters.exists() else letter_frame(spark)
            here = kept.join(going.select("position"), "position", "left_anti").join(keys, "key", "left_anti")
            put = letters.write(here.select(*kept.columns).union(letters_in(again, LETTER)).coalesce(1), cursor=upto)
        files += table.write(
            table.read(spark).join(keys, "key", "left_anti").select(*schema_of(view).names), cursor=upto
        )
        return FoldedFiles(files, put, seen.letters)
    finally:
        keys.unpersist()


def lake_events(spark: SparkSession, lake: Lake, after: int, upto: int) -> DataFrame:
    """Return the events of a lake above a position and not above another."""
    files = [file for file in lake.events.files() if file.last > after]
    return lake.events.read(spark, files=files).where(f"position > {after} AND position <= {upto}")


def _folded_faster(spark: SparkSession, lake: Lake, view: View, catalog: Catalog, upto: Cursor) -> DataFrame | None:
    """Fold all events without a shuffle, if there is a way."""
    if isinstance(view, DeclaredView):
        events = lake_events(spark, lake, 0, upto.position)
        if not why_not(events, view, catalog):
            return fold_declared(spark, lake.events, view, files=lake.events.files(), upto=upto.position)
    held = lake.buckets.cursor(upto.epoch)
    if is_presorted(view) and held is not None and held.position == upto.position:
        return fold_buckets(spark, lake, view, catalog, with_applied=False)
    return None


def _fold_keys(events: DataFrame, view: View, catalog: Catalog, keys: DataFrame) -> DataFrame:
    """Fold some keys from their beginning."""
    mine = keyed(events, view, ship(view, catalog)).join(keys, "key", "left_semi")
    return fold_keyed(mine, view, catalog, with_applied=False)


class _Totals(NamedTuple):
    """What a fold found besides rows."""

    letters: int
    late: int
    stop: int  # the first event that stops it, or 0


def _written(
    table: Table, folded: DataFrame, view: View, catalog: Catalog, cursor: Cursor
) -> tuple[list[DataFile], _Totals]:
    """Write the rows of a fold, and count the rest in the same pass."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import col, count_if, lit, min, when

    seen = Observation()
    watched = folded.observe(
        seen,
        count_if(col("what") == LETTER).alias("letters"),
        count_if(col("what") == LATE).alias("late"),
        min(when(col("what") == STOP, col("position")).otherwise(lit(None))).alias("stop"),
    )
    rows = laid_out_frame(view, watched.where(f"what = '{ROW}'"), catalog)
    files = table.write(rows, cursor=cursor)
    found = seen.get
    return files, _Totals(found["letters"], found["late"], found["stop"] or 0)


def _parked(spark: SparkSession, lake: Lake, view: View, upto: int) -> dict[str, CausalOrder]:
    """Return the keys whose events wait, and the causal order of the event that they wait behind."""
    from pyspark.sql.functions import min, struct

    table = letters_table(lake, view)
    if not table.exists():
        return {}
    found = table.read(spark).where(f"position <= {upto} AND key <> ''")
    first = found.groupBy("key").agg(min(struct("lamport", "id")).alias("order")).collect()
    return {row["key"]: (row["order"]["lamport"], row["order"]["id"]) for row in first}


def _write_letters(
    spark: SparkSession,
    lake: Lake,
    view: View,
    start: int,
    upto: Cursor,
    new: DataFrame | None,
    *,
    without: DataFrame | None,
) -> list[DataFile] | None:
    """Write all letters: those up to a position stay, except for some keys; what a killed run left beyond it goes.

    Returns None if nothing changes.
    """
    table = letters_table(lake, view)
    there = table.exists()
    if not (new or (there and without) or (there and any(file.last > start for file in table.files()))):
        return None
    kept = table.read(spark).where(f"position <= {start}") if there else letter_frame(spark)
    if without is not None:
        kept = kept.join(without, "key", "left_anti").select(*kept.columns)
    return table.write((kept if new is None else kept.union(new)).coalesce(1), cursor=upto)
