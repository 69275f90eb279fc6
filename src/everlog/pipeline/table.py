"""One Delta table of the lake: Spark writes its Parquet files, `deltalake` commits them from the driver.

    events/
      _delta_log/00000000000000000003.json    which files make up version 3, and up to which cursor they go
      data/000000000500-1f9c2a7e/part-….parquet

A commit is one file in `_delta_log`, so a reader sees all of it or nothing. It carries the cursor as two transaction
numbers of the log's epoch (position, and `knows`: the newest purge that was applied), so that the table itself says
how far it got: a batch that is in it already is not written again, whoever asks and after whatever crash. Files that
no commit names are invisible, and swept later. A version is read as a list of files, at Parquet's own speed.

Only positions get minima and maxima in the commit: words of events must not outlive their files there.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import Busy, Damaged, EverlogError, NewerFormat, SchemaBroken, StorageFull
from everlog.files import DiskFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DATA = "data"
DELTA_LOG = "_delta_log"
_SETTINGS = {
    # A stream commits several times a second: without these its log would be read from the first commit on.
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}
_POSITION = "position"


class DataFile(NamedTuple):
    """A Parquet file of a table."""

    path: str  # below the table's folder
    bytes: int
    rows: int
    first: int = 0  # the least and the greatest position in it; 0 and 0 where rows have none
    last: int = 0


class Table:
    """A table by its folder, there or not yet. Everything is asked of the disk anew: others may have committed.

    exists version cursor mark schema files read      what there is; `version=` reads an older state
    append overwrite replace                          a DataFrame in one commit; False if the batch is in already
    write, then commit                                the two halves, for who writes files in another way
    """

    def __init__(self, path: Path, name: str, *, log_id: str, files: DiskFiles | None = None) -> None:
        self.path = path
        self.name = name
        self._log_id = log_id
        self._files = files or DiskFiles()

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    # ---- what there is

    def exists(self) -> bool:
        from deltalake import DeltaTable

        return (self.path / DELTA_LOG).is_dir() and DeltaTable.is_deltatable(self.path.as_uri())

    def version(self) -> int:
        """The number of the last commit; -1 before the first."""
        return self._delta().version() if self.exists() else -1

    def cursor(self, epoch: str) -> Cursor | None:
        """Up to where this table has the log of an epoch; None if it has nothing of that epoch."""
        if not self.exists():
            return None
        delta = self._delta()
        position = delta.transaction_version(self._app(epoch))
        if position is None:
            return None
        knows = delta.transaction_version(self._app(epoch, "knows")) or 0
        return Cursor(Position(position), Position(knows), epoch)

    def mark(self, name: str) -> int | None:
        """A number that was committed with the rows under this name: see `commit`."""
        found: int | None = self._delta().transaction_version(f"everlog:{name}") if self.exists() else None
        return found

    def schema(self, *, version: int | None = None) -> StructType:
        from pyspark.sql.types import StructType

        # Delta's schema is written as Spark's own.
        return StructType.fromJson(json.loads(self._delta(version).schema().to_json()))

    def files(self, *, version: int | None = None) -> list[DataFile]:
        """The files of a version, the last one by default. Damaged if one of them is not there as it was written."""
        import pyarrow as pa

        if not self.exists():
            return []
        with _telling(self.name):
            found = pa.table(self._delta(version).get_add_actions(flatten=True)).to_pylist()
        listed = [
            DataFile(
                unquote(row["path"]),
                row["size_bytes"],
                row["num_records"] or 0,
                row.get("min.position") or 0,
                row.get("max.position") or 0,
            )
            for row in found
        ]
        listed.sort(key=lambda file: (file.first, file.path))
        for file in listed:
            stamp = self._files.stamp(self.path / file.path)
            if stamp is None or stamp.size != file.bytes:
                raise Damaged(
                    f"the table {self.name} is damaged",
                    why=f"{self.path / file.path} "
                    + ("is not there" if stamp is None else f"has {stamp.size} bytes, {file.bytes} were committed"),
                    hint=rebuild_hint(self.name),
                    table=self.name,
                    path=str(self.path / file.path),
                )
        return listed

    def paths(self, *, version: int | None = None) -> list[Path]:
        """The files as paths, for readers that are not Spark: DuckDB, Polars, pandas."""
        return [self.path / file.path for file in self.files(version=version)]

    def rows(self) -> int:
        return sum(file.rows for file in self.files())

    def read(
        self, spark: SparkSession, *, version: int | None = None, files: Sequence[DataFile] | None = None
    ) -> DataFrame:
        """A version as a DataFrame, or only some of its files. Later commits do not show in it."""
        schema = self.schema(version=version)
        found = self.files(version=version) if files is None else files
        if not found:
            return spark.createDataFrame([], schema)
        return spark.read.schema(schema).parquet(*(_as_glob(self.path / file.path) for file in found))

    def files_with(self, spark: SparkSession, some: Callable[[DataFrame], DataFrame]) -> list[DataFile]:
        """The files that hold a row which the function lets through."""
        by_path = {str(self.path / file.path): file for file in self.files()}
        if not by_path:
            return []
        held = some(self.read(spark).select("*", "_metadata.file_path")).select("file_path").distinct().collect()
        return sorted((by_path[unquote(urlsplit(row[0]).path)] for row in held), key=lambda file: file.path)

    # ---- writing

    def append(self, rows: DataFrame, *, cursor: Cursor, marks: Mapping[str, int] | None = None) -> bool:
        """Add rows in one commit; False, and nothing is done, if the table is at this cursor or beyond."""
        if self.holds(cursor):
            return False
        self._refuse_other_schema(rows.schema)
        added = self.write(rows, cursor=cursor)
        self.commit(added, cursor=cursor, marks=marks, schema=rows.schema)
        return True

    def overwrite(self, rows: DataFrame, *, cursor: Cursor, marks: Mapping[str, int] | None = None) -> None:
        """Put rows in the place of everything, in one commit. Their schema may be another one."""
        added = self.write(rows, cursor=cursor)
        self.commit(added, cursor=cursor, marks=marks, schema=rows.schema, mode="overwrite")

    def replace(
        self,
        files: Sequence[DataFile],
        rows: DataFrame | None,
        *,
        cursor: Cursor,
        marks: Mapping[str, int] | None = None,
    ) -> None:
        """Put rows in the place of some files, in one commit."""
        if rows is not None:
            self._refuse_other_schema(rows.schema)
        added = [] if rows is None else self.write(rows, cursor=cursor)
        self.commit(added, remove=files, cursor=cursor, marks=marks)

    def holds(self, cursor: Cursor) -> bool:
        """True when a batch up to this cursor is in the table already."""
        held = self.cursor(cursor.epoch)
        return held is not None and held.position >= cursor.position and _known(held) >= _known(cursor)

    def write(self, rows: DataFrame, *, cursor: Cursor) -> list[DataFile]:
        """Write rows as Parquet files of this table that no commit names yet: one a partition that has rows."""
        folder = self.new_folder(cursor)
        try:
            rows.write.parquet("file://" + str(self.path / folder), compression="zstd")
            return [file for file in map(self.measured, self._parts(folder)) if file.rows]
        except BaseException as error:
            self.discard(folder, error)
            raise

    def new_folder(self, cursor: Cursor) -> str:
        """A name for the folder of one write: by the position for people, and never twice."""
        return f"{DATA}/{cursor.position:012d}-{uuid.uuid4().hex[:12]}"

    def commit(
        self,
        add: Sequence[DataFile],
        *,
        cursor: Cursor | None = None,
        remove: Sequence[DataFile] = (),
        marks: Mapping[str, int] | None = None,
        schema: StructType | None = None,
        mode: str = "append",
        same_rows: bool = False,
    ) -> None:
        """One version more: files in, files out, the cursor and the marks, or nothing of it.

        `same_rows`: rows only lie in other files now. Then, and only then, the cursor stays as it is.
        Marks are numbers that must change together with the rows, such as the version of the code that made them.
        If it cannot be done, the files that were to be added are removed.
        """
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        now_ms = time.time_ns() // 1_000_000
        if (cursor is None) != same_rows:
            raise ValueError("rows come with a cursor, and only they")
        transactions = [Transaction(f"everlog:{name}", number) for name, number in (marks or {}).items()]
        if cursor is not None:
            transactions.append(Transaction(self._app(cursor.epoch), cursor.position))
            transactions.append(Transaction(self._app(cursor.epoch, "knows"), cursor.knows))
        said = {} if cursor is None else {"cursor": str(cursor)}
        properties = CommitProperties(app_transactions=transactions, custom_metadata=said)
        adds = [AddAction(file.path, file.bytes, {}, now_ms, not same_rows, _statistics(file)) for file in add]
        try:
            with _telling(self.name):
                if not self.exists():
                    if schema is None:
                        raise ValueError(f"the first commit of {self.name} needs a schema")
                    make_folders(self._files, self.path)
                    create_table_with_add_actions(
                        self.path.as_uri(),
                        Schema.from_json(_nullable(schema).json()),
                        adds,
                        name=self.name,
                        configuration=_SETTINGS,
                        commit_properties=properties,
                    )
                    return
                delta = self._delta()
                delta.create_write_transaction(
                    [*adds, *(RemoveAction(file.path, not same_rows, now_ms, file.bytes) for file in remove)],
                    mode,
                    Schema.from_json(_nullable(schema).json()) if mode == "overwrite" and schema else delta.schema(),
                    commit_properties=properties,
                )
        except BaseException as error:
            for folder in {str(Path(file.path).parent) for file in add}:
                self.discard(folder, error)
            raise

    def discard(self, folder: str, error: BaseException) -> None:
        """Remove what a write left that will not be committed."""
        with _noting(error, f"and {self.path / folder} could not be removed"):
            remove_tree(self._files, self.path / folder)

    # ---- taking away

    def unnamed(self, keep_versions: Sequence[int] = ()) -> list[Path]:
        """What lies in the table's folder but belongs neither to its last version nor to these."""
        if not (self.path / DATA).is_dir():
            return []
        named = {self.path / file.path for file in self.files()} if self.exists() else set()
        for version in keep_versions:
            with suppress(EverlogError):  # it is gone already, in part or whole
                named.update(self.paths(version=version))
        return sorted(path for path in (self.path / DATA).rglob("*") if not path.is_dir() and path not in named)

    def sweep(self, keep_versions: Sequence[int] = ()) -> int:
        """Remove all of that, at once: only while nobody else writes to this lake. The number of files."""
        return self._remove(self.unnamed(keep_versions))

    def vacuum(self, hours: int, keep_versions: Sequence[int] = ()) -> int:
        """Remove what has belonged to no version for so many hours: nobody still reads that. The number of files."""
        if not self.exists():
            return 0
        with _telling(self.name):
            old = self._delta().vacuum(
                retention_hours=hours,
                dry_run=True,
                enforce_retention_duration=False,
                full=True,
                keep_versions=list(keep_versions),
            )
        # Listed by the library, which knows when a file was taken out, and removed here: its own way adds commits.
        named = set(self.unnamed(keep_versions))
        return self._remove([path for path in (self.path / unquote(name) for name in old) if path in named])

    def _remove(self, paths: Sequence[Path]) -> int:
        for path in paths:
            self._files.unlink(path)
        if (self.path / DATA).is_dir():
            remove_empty_folders(self._files, self.path / DATA)
        return len(paths)

    # ---- inside

    def _app(self, epoch: str, what: str = "") -> str:
        return ":".join(filter(None, ("everlog", self._log_id, epoch, what)))

    def _delta(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable

        with _telling(self.name):
            return DeltaTable(self.path.as_uri(), version=version)

    def _refuse_other_schema(self, given: StructType) -> None:
        if not self.exists():
            return
        held = self.schema()
        if _nullable(given) != _nullable(held):
            raise SchemaBroken(
                f"rows of another shape than the table {self.name} has",
                why=f"it has {held.simpleString()}, these are {given.simpleString()}",
                hint=rebuild_hint(self.name),
                table=self.name,
            )

    def _parts(self, folder: str) -> Iterator[str]:
        for name in self._files.names(self.path / folder):
            if name.endswith(".parquet"):
                yield f"{folder}/{name}"

    def measured(self, path: str) -> DataFile:
        """A file as its own footer tells it."""
        import pyarrow.parquet as pq

        place = self.path / path
        stamp = self._files.stamp(place)
        footer = pq.read_metadata(place)
        first, last = _positions(footer)
        return DataFile(path, stamp.size if stamp else 0, footer.num_rows, first, last)


def _known(cursor: Cursor) -> Position:
    """The newest purge that a reader at this cursor has taken into account is not above this."""
    return max(cursor.position, cursor.knows)


def rebuild_hint(table: str) -> str:
    return f"everlog pipeline run --rebuild {table}"


def make_folders(files: DiskFiles, folder: Path) -> None:
    """The folder, and those above it that are not there."""
    missing = [parent for parent in (folder, *folder.parents) if not parent.is_dir()]
    for parent in reversed(missing):
        files.make_dir(parent)


def remove_tree(files: DiskFiles, folder: Path) -> None:
    """Remove a folder with all that is in it, if it is there."""
    if not folder.is_dir():
        return
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            files.remove_dir(path)
        else:
            files.unlink(path)
    files.remove_dir(folder)


def remove_empty_folders(files: DiskFiles, folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            files.remove_dir(path)


def _positions(footer: pa.parquet.FileMetaData) -> tuple[int, int]:
    try:
        column = footer.schema.names.index(_POSITION)
    except ValueError:
        return 0, 0
    groups = [footer.row_group(index).column(column).statistics for index in range(footer.num_row_groups)]
    known = [group for group in groups if group is not None and group.has_min_max]
    return (min(group.min for group in known), max(group.max for group in known)) if known else (0, 0)


def _statistics(file: DataFile) -> str:
    known = {"minValues": {_POSITION: file.first}, "maxValues": {_POSITION: file.last}} if file.last else {}
    return json.dumps({"numRecords": file.rows, **known})


def _nullable(schema: StructType) -> StructType:
    """Columns of a table may be null: whether one is belongs to the events, not to how a DataFrame was made."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType, nullable=True) for field in schema])


def _as_glob(path: Path) -> str:
    """A path that stands for itself where Spark expects a pattern."""
    return "file://" + "".join(f"\\{letter}" if letter in "\\*?[]{}," else letter for letter in str(path))


@contextmanager
def _telling(table: str) -> Iterator[None]:
    """Turns what deltalake raises into an error of ours."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

    try:
        yield
    except CommitFailedError as error:
        raise Busy(
            f"somebody else committed to the table {table} at the same time",
            why=str(error),
            hint="let one pipeline write to a lake, and run this one again: nothing was lost",
            table=table,
        ) from error
    except DeltaProtocolError as error:
        raise _newer(table, error) from error
    except (DeltaError, OSError) as error:
        text = str(error)
        if "No space left" in text or "os error 28" in text:
            raise StorageFull(
                f"the commit to the table {table} could not be written",
                why="the disk is full",
                hint="free some space and run it again; the last version stands as it was",
                table=table,
            ) from error
        if "nsupported" in text and ("feature" in text or "version" in text):
            raise _newer(table, error) from error
        raise Damaged(f"the table {table} cannot be read", why=text, hint=rebuild_hint(table), table=table) from error


def _newer(table: str, error: Exception) -> NewerFormat:
    return NewerFormat(
        f"the table {table} was written by a newer program",
        why=str(error),
        hint="update everlog and the library deltalake; the table was not touched",
        table=table,
    )


@contextmanager
def _noting(error: BaseException, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EverlogError) as also:
        error.add_note(f"{what}: {also}")
