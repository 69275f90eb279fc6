"""A Parquet file of a table, and what its footer says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everlog.files import DiskFiles

if TYPE_CHECKING:
    import pyarrow as pa

_POSITION = "position"


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    path: str  # below the table's folder
    bytes: int
    rows: int
    first: int = 0  # the least and the greatest position in it; 0 and 0 where rows have none
    last: int = 0

    @property
    def statistics(self) -> str:
        """What a commit says about it: the number of rows, and the least and the greatest position."""
        known = {"minValues": {_POSITION: self.first}, "maxValues": {_POSITION: self.last}} if self.last else {}
        return json.dumps({"numRecords": self.rows, **known})


def measured(folder: Path, path: str, files: DiskFiles) -> DataFile:
    """Return the file at a path below a table's folder, as its own footer describes it."""
    import pyarrow.parquet as pq

    stamp = files.stamp(folder / path)
    footer = pq.read_metadata(folder / path)
    first, last = _positions(footer)
    return DataFile(path, stamp.size if stamp else 0, footer.num_rows, first, last)


def _positions(footer: pa.parquet.FileMetaData) -> tuple[int, int]:
    try:
        column = footer.schema.names.index(_POSITION)
    except ValueError:
        return 0, 0
    groups = [footer.row_group(index).column(column).statistics for index in range(footer.num_row_groups)]
    known = [group for group in groups if group is not None and group.has_min_max]
    return (min(group.min for group in known), max(group.max for group in known)) if known else (0, 0)
