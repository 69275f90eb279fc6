"""A Parquet file of a table: its name ends with the SHA-256 of its bytes, so a commit that names it proves it.

    data/2026-11-18/000000000500-1f9c2a7e/part-00007-9f86d081…0a08.parquet

Every read compares the bytes with the name first: a changed bit, a file of another table and two files that were
swapped are `Damaged`, whatever they would decode to. The pages have checksums too, for other readers.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from everlog.errors import Damaged
from everlog.files import DiskFiles
from everlog.pipeline.lake.bucket import content_of, is_remote

if TYPE_CHECKING:
    import pyarrow.parquet as pq

HEAL = "everlog pipeline verify --heal"
_POSITION = "position"
_NAME = re.compile(r"(?:^|[/-])([0-9a-f]{64})\.parquet$")
_PART = re.compile(r"part-\d{5}-")


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


def sha256_in(path: str | Path) -> str:
    """Return the SHA-256 that the name of a file promises; empty for a file of an older program."""
    found = _NAME.search(str(path))
    return found[1] if found else ""


def sealed(folder: Path, path: str, files: DiskFiles) -> DataFile:
    """Name a complete file, at a path below a table's folder, after its bytes; return it as its footer describes it.

    The number of its part is kept: it shows the bucket.
    """
    found = described(folder / path, path)
    files.rename(folder / path, folder / found.path)
    return found


def described(there: Path, path: str) -> DataFile:
    """Return the complete file that is there, with the name that it gets at a path below a table's folder."""
    import pyarrow.parquet as pq

    with pa.memory_map(str(there)) as source:
        content = source.read_buffer()
        digest = hashlib.sha256(content).hexdigest()
        footer = pq.read_metadata(pa.BufferReader(content))
        size = content.size
    above, _, name = path.rpartition("/")
    part = _PART.match(name)
    first, last = _positions(footer)
    return DataFile(f"{above}/{part[0] if part else ''}{digest}.parquet", size, footer.num_rows, first, last)


def opened(path: str | Path, *, table: str = "") -> pq.ParquetFile:
    """Open a file of a table for reading. `Damaged` if its bytes are not those that were committed."""
    import pyarrow.parquet as pq

    content = proved(path, table=table)
    try:
        return pq.ParquetFile(pa.BufferReader(content))
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, "its content is not what was written", table=table) from error


def proved(path: str | Path, *, table: str = "") -> pa.Buffer:
    """Return the bytes of a file, once their digest is the one in its name."""
    try:
        content = content_of(path) if is_remote(path) else pa.memory_map(str(path)).read_buffer()
    except FileNotFoundError:
        raise damaged(path, "it is missing", table=table) from None
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, str(error), table=table) from error
    promised = sha256_in(path)
    if promised and hashlib.sha256(content).hexdigest() != promised:
        raise damaged(path, "its bytes are not those that were committed", table=table)
    return content


def damaged(path: str | Path, why: str, *, table: str = "") -> Damaged:
    details = {"table": table} if table else {}
    return Damaged(
        f"the table {table} is damaged" if table else "the lake is damaged",
        why=f"{path}: {why}",
        hint=HEAL,
        path=str(path),
        **details,
    )


def _positions(footer: pa.parquet.FileMetaData) -> tuple[int, int]:
    try:
        column = footer.schema.names.index(_POSITION)
    except ValueError:
        return 0, 0
    groups = [footer.row_group(index).column(column).statistics for index in range(footer.num_row_groups)]
    known = [group for group in groups if group is not None and group.has_min_max]
    return (min(group.min for group in known), max(group.max for group in known)) if known else (0, 0)
