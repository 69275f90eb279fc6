"""Few rows, in this process: files of tables read, written and folded without Spark, which takes longer to start.

What comes of it is what Spark makes: the same columns in the same kind of files, from the same fold.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from everlog.catalog.catalog import Catalog
from everlog.core.query import Cursor
from everlog.errors import Damaged
from everlog.files import DiskFiles
from everlog.pipeline.lake import Lake
from everlog.pipeline.presorted import BATCH_EVENTS, matching, with_streams
from everlog.pipeline.rows import ARROW_SCHEMA
from everlog.pipeline.sorted_fold import FOLDED_SCHEMA, SORTED_SCHEMA, SortedFold, with_keys
from everlog.pipeline.table import DataFile, Table, make_folders, rebuild_hint
from everlog.views.view import Order, View

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class FewEvents:
    """The events of a lake up to a cursor, held in memory; they are read when somebody asks for them."""

    def __init__(self, lake: Lake, upto: Cursor) -> None:
        self._lake = lake
        self.upto = upto

    @cached_property
    def rows(self) -> pa.Table:
        return read(self._lake.events, ARROW_SCHEMA, upto=self.upto.position)

    @cached_property
    def types(self) -> frozenset[str]:
        return frozenset(pc.unique(self.rows.column("type")).to_pylist())


def read(table: Table, schema: pa.Schema, *, after: int = 0, upto: int) -> pa.Table:
    """The rows of a table with positions above one and not above another, in their order."""
    found = [_read_file(table, file, schema) for file in table.files() if file.last > after]
    rows = pa.concat_tables(found) if found else schema.empty_table()
    positions = rows.column("position")
    mine = pc.and_(pc.greater(positions, after), pc.less_equal(positions, upto))
    return rows.filter(mine).sort_by("position")


def takes_more_than(table: Table, bytes_max: int) -> bool:
    """True when the rows of a table would not fit: on the disk, text that repeats itself takes next to nothing."""
    held_bytes = 0
    for file in table.files():
        path = table.path / file.path
        try:
            for batch in pq.ParquetFile(path).iter_batches(batch_size=_ROWS_LOOKED_AT):
                held_bytes += batch.nbytes
                if held_bytes > bytes_max:
                    return True
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(table, path) from error
    return False


_ROWS_LOOKED_AT = 64


def _read_file(table: Table, file: DataFile, schema: pa.Schema) -> pa.Table:
    path = table.path / file.path
    try:
        return pq.ParquetFile(path).read(columns=schema.names).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(table, path) from error


def _unreadable(table: Table, path: Path) -> Damaged:
    return Damaged(
        f"{path} cannot be read",
        why="it is there with the right size, and its content is not what was written",
        hint=rebuild_hint(table.name),
        table=table.name,
    )


def write(table: Table, rows: pa.Table, *, cursor: Cursor) -> list[DataFile]:
    """Write rows as a Parquet file of a table that no commit names yet; none if there are none."""
    if not rows.num_rows:
        return []
    folder = table.new_folder(cursor)
    try:
        make_folders(DiskFiles(), table.path / folder)
        path = f"{folder}/{uuid.uuid4().hex}.parquet"
        # Times as Delta wants them: microseconds, and that they are in UTC.
        pq.write_table(rows, table.path / path, compression="zstd", coerce_timestamps="us")
        return [table.measured(path)]
    except BaseException as error:
        table.discard(folder, error)
        raise


def overwrite(table: Table, rows: pa.Table, *, cursor: Cursor, marks: Mapping[str, int] | None = None) -> None:
    """Put rows in the place of everything, in one commit."""
    files = write(table, rows, cursor=cursor)
    table.commit(files, cursor=cursor, marks=marks, schema=spark_schema(rows.schema), mode="overwrite")


def fold(events: pa.Table, view: View, catalog: Catalog) -> pa.Table:
    """The rows and letters of a view over all its events, as `fold_view` gives them."""
    batches = matching(events.to_batches(), view.query)
    keyed = with_streams(batches) if view.by_stream else with_keys(view, catalog, batches)
    order = ["lamport", "id"] if view.order is Order.CAUSAL else ["position"]
    rows = pa.Table.from_batches(keyed, SORTED_SCHEMA).sort_by([(name, "ascending") for name in ("key", *order)])
    sorted_batches = rows.combine_chunks().to_batches(max_chunksize=BATCH_EVENTS)
    return pa.Table.from_batches(SortedFold(view, catalog, with_places=False).run(sorted_batches), FOLDED_SCHEMA)


def spark_schema(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
