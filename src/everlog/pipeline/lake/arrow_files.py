"""Files of a table that this process reads and writes itself, with Arrow: the same columns and format as Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from everlog.core.query import Cursor
from everlog.errors import Damaged
from everlog.pipeline.lake.data_file import DataFile, damaged, opened
from everlog.pipeline.lake.parquet_files import PARQUET, NewFile
from everlog.pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ROWS_PER_LOOK = 64


def read(table: Table, schema: pa.Schema, *, after: int = 0, upto: int | None = None) -> pa.Table:
    """Return the rows with positions above `after` and not above `upto`, ordered by position."""
    found = [read_file(table, file, schema) for file in table.files() if file.last > after]
    rows = pa.concat_tables(found) if found else schema.empty_table()
    return between(rows, after, upto).sort_by("position")


def read_file(table: Table, file: DataFile, schema: pa.Schema) -> pa.Table:
    """Return the rows of one file of a table."""
    path = table.path / file.path
    source = opened(path, table=table.name)
    try:
        return source.read(columns=schema.names).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(table, path) from error


def between(rows: pa.Table, after: int, upto: int | None) -> pa.Table:
    """Return the rows with positions above `after` and not above `upto`."""
    positions = rows.column("position")
    chosen = pc.greater(positions, after)
    return rows.filter(chosen if upto is None else pc.and_(chosen, pc.less_equal(positions, upto)))


def unlike(rows: pa.Table, right: pa.Table | None, *, by: str) -> list[Any]:
    """Return the values of a column in the rows that are not among the right ones. Both are sorted by it."""
    values = rows.column(by)
    if right is None:
        return values.to_pylist()  # type: ignore[no-any-return]
    same = right.filter(pc.is_in(right.column(by), values.combine_chunks())).select(rows.column_names)
    rows = rows.cast(same.schema)
    if rows.equals(same):
        return []
    expected = {row[by]: row for row in same.to_pylist()}
    return [row[by] for row in rows.to_pylist() if expected.get(row[by]) != row]


def takes_more_than(table: Table, bytes_max: int) -> bool:
    """Return True if the rows of a table do not fit into so much memory.

    The size on disk does not show it: text that repeats itself is compressed to almost nothing.
    """
    held_bytes = 0
    for file in table.files():
        path = table.path / file.path
        source = opened(path, table=table.name)
        try:
            for batch in source.iter_batches(batch_size=_ROWS_PER_LOOK):
                held_bytes += batch.nbytes
                if held_bytes > bytes_max:
                    return True
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(table, path) from error
    return False


def write(table: Table, rows: pa.Table, *, cursor: Cursor) -> list[DataFile]:
    """Write rows as one Parquet file of a table, which no commit names yet; write nothing if there are no rows."""
    if not rows.num_rows:
        return []
    folder = table.new_folder(cursor)
    try:
        file = NewFile(table.path, folder)
        pq.write_table(rows, file.at, **PARQUET)
        return [file.seal()]
    except BaseException as error:
        table.discard(folder, error)
        raise


def overwrite(table: Table, rows: pa.Table, *, cursor: Cursor, marks: Mapping[str, int] | None = None) -> None:
    """Replace all rows of a table, in one commit."""
    files = write(table, rows, cursor=cursor)
    table.commit(files, cursor=cursor, marks=marks, schema=spark_schema(rows.schema), mode="overwrite")


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the schema of Spark with the same columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def _unreadable(table: Table, path: Path) -> Damaged:
    return damaged(path, "its content is not what was written", table=table.name)
