"""The table of one view: one row per key, from the same `View` class as live, caught up from its own rows.

    key  [the columns that the view declares]  _position  _count  _lamport  _id  _sources  _state

`fold.view_columns` describes the columns that begin with `_`: they are what the next fold must know. So the table is
the snapshot that a catch-up starts from: its rows and the events after its cursor go through one fold, and the whole
view is written in one commit. The commit records which code derived it; rows of other code are not caught up but
rebuilt.

Events that the view cannot apply are in `letters/VIEW`. It is committed before the rows: after a crash in between,
letters beyond the cursor of the rows count as not written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from everlog.catalog.catalog import Catalog
from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.pipeline.engines.engine import Engine, FoldedFiles
from everlog.pipeline.fold.collected import batches_of
from everlog.pipeline.fold.letters import LETTER_SCHEMA, letters_table
from everlog.pipeline.fold.presorted import is_presorted
from everlog.pipeline.fold.view_columns import LAYOUT, schema_of
from everlog.pipeline.lake.arrow_files import spark_schema
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.lake.table import Table
from everlog.pipeline.tables.gold import AS_IT_WAS, CAUGHT_UP, REBUILT, Done
from everlog.views.builds.fingerprint import catalog_fingerprint, code_fingerprint
from everlog.views.declared import DeclaredView
from everlog.views.view import View, digest_of_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CODE, STOPPED_AT = "code", "stopped_at"


class ViewTable:
    """Keeps the tables `gold/VIEW` and `letters/VIEW` of a lake."""

    def __init__(self, view: View, catalog: Catalog) -> None:
        self.view = view
        self.catalog = catalog

    @property
    def name(self) -> str:
        return self.view.name

    def digest(self, spark: SparkSession, lake: Lake) -> str:
        """Return the digest of all states, as a live view has it."""
        rows = lake.gold(self.name).read(spark).select("key", "_state").orderBy("key")
        return digest_of_bytes(
            (key, state.encode())
            for batch in batches_of(rows, doing=f"reading the view {self.name}")
            for key, state in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        )

    def bring_up_to_date(self, engine: Engine, lake: Lake, *, upto: Cursor) -> Done:
        table = lake.gold(self.name)
        held = table.cursor(upto.epoch) if self.is_current(table, upto.epoch) else None
        stopped_at = 0 if held is None else table.mark(STOPPED_AT) or 0
        if held is not None and (stopped_at or table.holds(upto)):
            # A view that was stopped would be stopped again: its code is the same, and so is the event.
            rows = table.rows()
            return Done(table=table.name, what=AS_IT_WAS, rows=rows, position=held.position, stopped_at=stopped_at)
        folded, upto, stopped_at = self.folded(engine, lake, held=held, upto=upto)
        self._commit(lake, folded.files, folded.letters, upto, stopped_at=stopped_at)
        return Done(
            table=table.name,
            what=REBUILT if held is None else CAUGHT_UP,
            rows=sum(file.rows for file in folded.files),
            position=upto.position,
            letters=folded.new_letters,
            stopped_at=stopped_at,
        )

    def is_current(self, table: Table, epoch: str) -> bool:
        """Return True if the rows are of this epoch, and of the code that this program has."""
        return table.cursor(epoch) is not None and table.mark(CODE) == self._code()

    def folded(
        self, engine: Engine, lake: Lake, *, held: Cursor | None, upto: Cursor
    ) -> tuple[FoldedFiles, Cursor, int]:
        """Write the rows and letters up to a cursor, or up to the event that stops the view; commit nothing."""
        found = engine.fold(lake, self.view, self.catalog, held=held, upto=upto)
        if found.stop is None:
            return found, upto, 0
        # Only what precedes that event counts. What was written is removed later, with other unnamed files.
        before = replace(upto, position=Position(found.stop.position - 1))
        again = engine.fold(lake, self.view, self.catalog, held=held, upto=before, stopped_by=found.stop)
        return again, before, found.stop.position

    def wants_buckets(self, lake: Lake, epoch: str) -> bool:
        """Return True if all events are folded next, in the order that buckets have."""
        table = lake.gold(self.name)
        return (
            not self.is_current(table, epoch) and is_presorted(self.view) and not isinstance(self.view, DeclaredView)
        )

    def refold(self, lake: Lake, going: DataFrame, staying: DataFrame, cursor: Cursor) -> None:
        from everlog.pipeline.fold.view_fold import refold

        table, letters = lake.gold(self.name), letters_table(lake, self.view)
        held = table.cursor(cursor.epoch)
        if held is None or not self.is_current(table, cursor.epoch):
            for derived in (table, letters):  # rebuilt by the run that follows
                if derived.exists():
                    lake.drop(derived)
            return
        upto = replace(cursor, position=held.position)
        folded = refold(lake, self.view, self.catalog, going, staying, upto)
        stopped_at = table.mark(STOPPED_AT) or 0
        if stopped_at and going.where(f"position = {stopped_at}").count():
            stopped_at = 0  # the event that stopped it is gone
        self._commit(lake, folded.files, folded.letters, upto, stopped_at=stopped_at)

    def _commit(
        self, lake: Lake, files: list[DataFile], letters: list[DataFile] | None, upto: Cursor, *, stopped_at: int
    ) -> None:
        if letters is not None:
            schema = spark_schema(LETTER_SCHEMA)
            letters_table(lake, self.view).commit(letters, cursor=upto, schema=schema, mode="overwrite")
        marks = {CODE: self._code(), STOPPED_AT: stopped_at}
        schema = spark_schema(schema_of(self.view))
        lake.gold(self.name).commit(files, cursor=upto, marks=marks, schema=schema, mode="overwrite")

    def _code(self) -> int:
        """Return a number for the code that derives the rows: that of the view, and how its events are read."""
        both = int(code_fingerprint(self.view), 16) ^ int(catalog_fingerprint(self.catalog, self.view), 16)
        return (both ^ LAYOUT) % 2**62
