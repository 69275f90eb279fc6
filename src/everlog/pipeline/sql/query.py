"""A SELECT together with the files that it reads: what an engine computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.table import Table
from everlog.pipeline.sql.statement import Statement

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class Input(NamedTuple):
    """A table as a query sees it: some files of it, and of their rows those above a position."""

    table: Table
    files: Sequence[DataFile]
    schema: StructType
    after: int = 0

    @classmethod
    def of(cls, table: Table, *, version: int | None = None) -> Input:
        """Return the last version of a table, or another."""
        return cls(table, table.files(version=version), table.schema(version=version))

    def above(self, position: int) -> Input:
        return self._replace(files=[file for file in self.files if file.last > position], after=position)


class Query(NamedTuple):
    """A statement, and the table for each name in it."""

    statement: Statement
    inputs: Mapping[str, Input]
