"""One Delta table of the lake: Spark writes its Parquet files, `deltalake` commits them from the driver.

    events/
      _delta_log/00000000000000000003.json    the files of version 3, and their cursor
      data/2026-11-18/000000000500-1f9c2a7e/part-….parquet

A commit is one file in `_delta_log`, so a reader sees all of it or nothing. It holds the cursor as two transaction
numbers of the log's epoch (position, and `knows`: the newest purge that was applied), so that the table itself
records how far it is: a batch that it already has is not written again, whatever crashed before. Files that no commit
names are invisible, and removed later. A version is read as a list of files, at Parquet's own speed.

A commit holds minima and maxima only of positions: text of events must not outlive their files there.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import Busy, Damaged, EverlogError, NewerFormat, SchemaBroken, StorageFull
from everlog.files import DiskFiles
from everlog.pipeline.lake.bucket import explained, is_remote, options, url_of
from everlog.pipeline.lake.data_file import DataFile, damaged, proved, sealed
from everlog.pipeline.lake.folders import files_for, make_folders, remove_empty_folders, remove_tree, walk
from everlog.pipeline.lake.parquet_files import REPORT, read_objects, write_objects

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DATA = "data"
DELTA_LOG = "_delta_log"
FILE_BYTES = 512 * 1024 * 1024
"""About the size to which small files are united."""
_SETTINGS = {
    # A stream commits several times per second: without these its log would be read from the first commit on.
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.enableExpiredLogCleanup": "true",
}


class Table:
    """A table by its folder, whether it exists or not. Every call reads the disk: other processes may have committed.

    exists version cursor mark schema files read      what there is; `version=` reads an older state
    append overwrite replace                          a DataFrame in one commit; False if the batch is already there
    write, then commit                                the two halves, for a caller that writes files in another way
    """

    def __init__(
        self, path: Path, name: str, *, log_id: str, files: DiskFiles | None = None, file_bytes: int = FILE_BYTES
    ) -> None:
        self.path = path
        self.file_bytes = file_bytes
        self.name = name
        self._log_id = log_id
        self._files = files or files_for(path)

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    # ---- what there is

    def exists(self) -> bool:
        from deltalake import DeltaTable

        if is_remote(self.path):
            with _own_errors(self.name):
                return DeltaTable.is_deltatable(url_of(self.path), options())
        return (self.path / DELTA_LOG).is_dir() and DeltaTable.is_deltatable(self.path.as_uri())

    def version(self) -> int:
        """Return the number of the last commit; -1 before the first."""
        return self._delta().version() if self.exists() else -1

    def cursor(self, epoch: str) -> Cursor | None:
        """Return how far this table has the log of an epoch; None if it has nothing of that epoch."""
        return self._cursor(self._delta(), epoch) if self.exists() else None

    def state(self, epoch: str, marks: Sequence[str]) -> tuple[Cursor | None, dict[str, int | None]]:
        """Return the cursor and some marks of one and the same version."""
        if not self.exists():
            return None, dict.fromkeys(marks)
        delta = self._delta()
        return self._cursor(delta, epoch), {name: delta.transaction_version(f"everlog:{name}") for name in marks}

    def _cursor(self, delta: DeltaTable, epoch: str) -> Cursor | None:
        position = delta.transaction_version(self._app(epoch))
        if position is None:
            return None
        knows = delta.transaction_version(self._app(epoch, "knows")) or 0
        proof = delta.transaction_version(self._app(epoch, "proof"))
        # A proof is of the position that it was committed with: a commit without one leaves that of another behind.
        if proof is None or delta.transaction_version(self._app(epoch, "proved")) != position:
            return Cursor(Position(position), Position(knows), epoch)
        return Cursor(Position(position), Position(knows), epoch, f"{proof:012x}")

    def mark(self, name: str) -> int | None:
        """Return a number that was committed with the rows under this name: see `commit`."""
        found: int | None = self._delta().transaction_version(f"everlog:{name}") if self.exists() else None
        return found

    def schema(self, *, version: int | None = None) -> StructType:
        from pyspark.sql.types import StructType

        # Delta writes its schema in the form of Spark.
        return StructType.fromJson(json.loads(self._delta(version).schema().to_json()))

    def files(self, *, version: int | None = None) -> list[DataFile]:
        """Return the files of a version, by default the last. `Damaged` if one is missing or has another size."""
        listed = self.listed(version=version)
        for file in listed:
            stamp = self._files.stamp(self.path / file.path)
            if stamp is None or stamp.size != file.bytes:
                why = "it is missing" if stamp is None else f"it has {stamp.size} bytes, {file.bytes} were committed"
                raise damaged(self.path / file.path, why, table=self.name)
        return listed

    def listed(self, *, version: int | None = None) -> list[DataFile]:
        """Return the files of a version as its commit names them, whether they are there or not."""
        import pyarrow as pa

        if not self.exists():
            return []
        with _own_errors(self.name):
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
        return sorted(listed, key=lambda file: (file.first, file.path))

    def paths(self, *, version: int | None = None) -> list[Path]:
        """Return the files as paths, for readers other than Spark: DuckDB, Polars, pandas."""
        return [self.path / file.path for file in self.files(version=version)]

    def rows(self) -> int:
        return sum(file.rows for file in self.files())

    def read(
        self,
        spark: SparkSession,
        *,
        version: int | None = None,
        files: Sequence[DataFile] | None = None,
        schema: StructType | None = None,
    ) -> DataFrame:
        """Return a version as a DataFrame, or only some files, of this schema. Later commits do not change it."""
        schema = schema or self.schema(version=version)
        found = self.files(version=version) if files is None else files
        if not found:
            return spark.createDataFrame([], schema)
        if is_remote(self.path):
            return self.read_with_paths(spark, found, schema).select(*schema.names)
        self.prove(found)
        return spark.read.schema(schema).parquet(*(_as_glob(self.path / file.path) for file in found))

    def read_with_paths(
        self, spark: SparkSession, files: Sequence[DataFile], schema: StructType | None = None
    ) -> DataFrame:
        """Return the rows of some files with the column `file_path`; `path_of` gives the file's path of its value."""
        from pyspark.sql.types import StringType, StructField, StructType

        if not is_remote(self.path):
            return self.read(spark, files=files).select("*", "_metadata.file_path")
        schema = StructType([*(schema or self.schema()), StructField("file_path", StringType())])
        numbers = spark.range(0, len(files), 1, numPartitions=max(len(files), 1))
        task = partial(read_objects, str(self.path), self.name, [file.path for file in files])
        return numbers.mapInArrow(task, schema)

    def path_of(self, value: str) -> str:
        if is_remote(self.path):
            return value
        return Path(unquote(urlsplit(value).path)).relative_to(self.path).as_posix()

    def prove(self, files: Sequence[DataFile]) -> None:
        """Compare the bytes of files with their names. `Damaged` names the first that has others."""
        with ThreadPoolExecutor() as pool:  # a digest is computed without the interpreter's lock
            list(pool.map(lambda file: proved(self.path / file.path, table=self.name), files))

    def files_with(self, spark: SparkSession, some: Callable[[DataFrame], DataFrame]) -> list[DataFile]:
        """Return the files that hold a row which the function selects."""
        by_path = {file.path: file for file in self.files()}
        if not by_path:
            return []
        held = some(self.read_with_paths(spark, self.files())).select("file_path").distinct().collect()
        return sorted((by_path[self.path_of(row[0])] for row in held), key=lambda file: file.path)

    # ---- writing

    def append(self, rows: DataFrame, *, cursor: Cursor, marks: Mapping[str, int] | None = None) -> bool:
        """Add rows in one commit; return False, without a change, if the table is at this cursor or beyond."""
        if self.holds(cursor):
            return False
        self._refuse_other_schema(rows.schema)
        added = self.write(rows, cursor=cursor)
        self.commit(added, cursor=cursor, marks=marks, schema=rows.schema)
        return True

    def overwrite(self, rows: DataFrame, *, cursor: Cursor, marks: Mapping[str, int] | None = None) -> None:
        """Replace all rows in one commit. The schema may change."""
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
        """Replace some files by rows, in one commit."""
        if rows is not None:
            self._refuse_other_schema(rows.schema)
        added = [] if rows is None else self.write(rows, cursor=cursor)
        self.commit(added, remove=files, cursor=cursor, marks=marks)

    def holds(self, cursor: Cursor) -> bool:
        """Return True if the table already has a batch up to this cursor."""
        held = self.cursor(cursor.epoch)
        return held is not None and held.position >= cursor.position and _known(held) >= _known(cursor)

    def write(self, rows: DataFrame, *, cursor: Cursor) -> list[DataFile]:
        """Write rows as Parquet files of this table, one per partition with rows. No commit names them yet."""
        folder = self.new_folder(cursor)
        try:
            if is_remote(self.path):
                done = rows.mapInArrow(partial(write_objects, str(self.path), folder), REPORT).collect()
                return [DataFile(*row[1:]) for row in done]
            rows.write.parquet("file://" + str(self.path / folder), compression="zstd")
            return [file for file in map(self.sealed, list(self._parts(folder))) if file.rows]
        except BaseException as error:
            self.discard(folder, error)
            raise

    def new_folder(self, cursor: Cursor) -> str:
        """Return a unique name for the folder of one write: its day, and the position."""
        day = datetime.now(UTC).date()
        return f"{DATA}/{day}/{cursor.position:012d}-{uuid.uuid4().hex[:12]}"

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
        """Add one version: files in, files out, the cursor and the marks, all or nothing.

        `same_rows`: the rows are the same, only in other files. Then, and only then, the cursor stays.
        Marks are numbers that must change together with the rows, such as the version of the code that made them.
        If it cannot be done, the files that were to be added are removed.
        """
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

        now_ms = time.time_ns() // 1_000_000
        if (cursor is None) != same_rows:
            raise ValueError("a cursor is given exactly if rows change")
        transactions = [Transaction(f"everlog:{name}", number) for name, number in (marks or {}).items()]
        if cursor is not None:
            transactions.append(Transaction(self._app(cursor.epoch), cursor.position))
            transactions.append(Transaction(self._app(cursor.epoch, "knows"), cursor.knows))
            if cursor.proof:
                transactions.append(Transaction(self._app(cursor.epoch, "proof"), int(cursor.proof, 16)))
                transactions.append(Transaction(self._app(cursor.epoch, "proved"), cursor.position))
        metadata = {} if cursor is None else {"cursor": str(cursor)}
        properties = CommitProperties(app_transactions=transactions, custom_metadata=metadata)
        adds = [AddAction(file.path, file.bytes, {}, now_ms, not same_rows, file.statistics) for file in add]
        try:
            with _own_errors(self.name):
                if not self.exists():
                    if schema is None:
                        raise ValueError(f"the first commit of {self.name} needs a schema")
                    make_folders(self._files, self.path)
                    create_table_with_add_actions(
                        self._uri,
                        Schema.from_json(_nullable(schema).json()),
                        adds,
                        name=self.name,
                        configuration=_SETTINGS,
                        storage_options=self._options,
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
        """Remove the files of a write that will not be committed."""
        try:
            remove_tree(self._files, self.path / folder)
        except (OSError, EverlogError) as also:
            error.add_note(f"and {self.path / folder} could not be removed: {also}")

    # ---- removing

    def unnamed(self, keep_versions: Sequence[int] = ()) -> list[Path]:
        """Return the files in the table's folder that belong neither to its last version nor to these."""
        named = {self.path / file.path for file in self.files()} if self.exists() else set()
        for version in keep_versions:
            with suppress(EverlogError):  # it is already removed, in part or completely
                named.update(self.paths(version=version))
        return [path for path in walk(self._files, self.path / DATA) if path not in named]

    def sweep(self, keep_versions: Sequence[int] = ()) -> int:
        """Remove all of them now, and return their number. Only while no other process writes to this lake."""
        return self._remove(self.unnamed(keep_versions))

    def remove(self, files: Sequence[DataFile]) -> None:
        """Remove files that no commit names, and will not."""
        self._remove([self.path / file.path for file in files])

    def vacuum(self, hours: int, keep_versions: Sequence[int] = ()) -> int:
        """Remove files that have belonged to no version for so many hours, and return their number."""
        if not self.exists():
            return 0
        with _own_errors(self.name):
            old = self._delta().vacuum(
                retention_hours=hours,
                dry_run=True,
                enforce_retention_duration=False,
                full=True,
                keep_versions=list(keep_versions),
            )
        # The library knows when a file left the table; they are removed here, because its own vacuum adds commits.
        named = set(self.unnamed(keep_versions))
        found = [path for path in (self.path / unquote(name) for name in old) if path in named]
        return self._remove(found, unchanged_s=hours * 3600.0)

    def _remove(self, paths: Sequence[Path], unchanged_s: float = 0.0) -> int:
        for path in paths:
            self._files.unlink(path)
        remove_empty_folders(self._files, self.path / DATA, unchanged_s)
        return len(paths)

    # ---- internal

    def _app(self, epoch: str, what: str = "") -> str:
        return ":".join(filter(None, ("everlog", self._log_id, epoch, what)))

    def _delta(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable

        with _own_errors(self.name):
            return DeltaTable(self._uri, version=version, storage_options=self._options)

    @property
    def _uri(self) -> str:
        return url_of(self.path) if is_remote(self.path) else self.path.as_uri()

    @property
    def _options(self) -> dict[str, str] | None:
        return options() if is_remote(self.path) else None

    def _refuse_other_schema(self, given: StructType) -> None:
        if not self.exists():
            return
        held = self.schema()
        if _nullable(given) != _nullable(held):
            raise SchemaBroken(
                f"the rows do not fit the table {self.name}",
                why=f"it has {held.simpleString()}, these are {given.simpleString()}",
                hint=rebuild_hint(self.name),
                table=self.name,
            )

    def _parts(self, folder: str) -> Iterator[str]:
        for name in self._files.names(self.path / folder):
            if name.endswith(".parquet"):
                yield f"{folder}/{name}"

    def sealed(self, path: str) -> DataFile:
        """Name a complete file, at a path below this table's folder, after its bytes."""
        return sealed(self.path, path, self._files)


def _known(cursor: Cursor) -> Position:
    """Return a position that is not below the newest purge which this cursor takes into account."""
    return max(cursor.position, cursor.knows)


def rebuild_hint(table: str) -> str:
    return f"everlog pipeline run --rebuild {table}"


def _nullable(schema: StructType) -> StructType:
    """Make all columns nullable: whether a DataFrame says so depends only on how it was made."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType, nullable=True) for field in schema])


def _as_glob(path: Path) -> str:
    """Escape a path where Spark expects a pattern."""
    return "file://" + "".join(f"\\{letter}" if letter in "\\*?[]{}," else letter for letter in str(path))


@contextmanager
def _own_errors(table: str) -> Iterator[None]:
    """Convert what deltalake raises to an everlog error."""
    from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError

    try:
        yield
    except CommitFailedError as error:
        raise Busy(
            f"another process committed to the table {table} at the same time",
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
                hint="free some space and run it again; the last version has not changed",
                table=table,
            ) from error
        if any(word in text for word in ("403", "Forbidden", "AccessDenied", "NoSuchBucket")):
            raise explained(error, "commit to", f"the table {table}") from error
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
