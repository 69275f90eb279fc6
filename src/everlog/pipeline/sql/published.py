"""Queries of a person over the published versions of all tables: they read, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet

from everlog.errors import InvalidField, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.pipeline.engines.local import BYTES_MAX
from everlog.pipeline.engines.needs import NeedsSpark
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.sql import duck
from everlog.pipeline.sql.on_spark import selected
from everlog.pipeline.sql.plan import Names
from everlog.pipeline.sql.query import Input, Query
from everlog.pipeline.sql.statement import read_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "the query"
FORMS = (".csv", ".parquet")


def published_query(lake: Lake, text: str) -> Query:
    """Return a query over the published tables of a lake. Anything but one SELECT over them is refused."""
    statement = read_statement(text, SOURCE, repeatable=False)
    versions = lake.published().tables
    if not versions:
        raise NotFound("the lake has no tables yet", why="no run has ended", hint="everlog pipeline run")
    names = Names(versions)
    found = {one.name: names.find(one, statement) for one in statement.references}
    return Query(
        statement, {name: Input.of(lake.table(table), version=versions[table]) for name, table in found.items()}
    )


def rows_of(
    query: Query, start_spark: Callable[[str], AbstractContextManager[SparkSession]], *, asked_for: str = ""
) -> tuple[pa.Table, str]:
    """Return the rows, and why Spark computed them; empty if this process did."""
    why = asked_for
    if not why:
        try:
            return duck.look(query, bytes_max=BYTES_MAX), ""
        except NeedsSpark as needed:
            why = needed.why
    with start_spark(why) as spark, selected(spark, query) as rows:
        return rows.toArrow(), why


def require_form(path: Path) -> None:
    if path.suffix not in FORMS:
        raise InvalidField(
            f"{path.name} is of no form that rows can be written in",
            why="the form follows from the end of the name",
            hint=f"name a file that ends in {' or '.join(FORMS)}",
            field="to",
        )


def write_rows(rows: pa.Table, path: Path) -> int:
    """Write rows to a file in the form that its name ends with; return its size."""
    sink = pa.BufferOutputStream()
    if path.suffix == ".csv":
        plain = [
            column
            if not pa.types.is_nested(column.type)
            else pa.array([_text(value) for value in column.to_pylist()])
            for column in rows.columns
        ]
        csv.write_csv(pa.table(plain, names=rows.column_names), sink)
    else:
        parquet.write_table(rows, sink)
    content: bytes = sink.getvalue().to_pybytes()
    replace_file(DiskFiles(), path, content)
    return len(content)


def _text(value: object) -> str | None:
    import msgspec

    return None if value is None else msgspec.json.encode(value).decode()
