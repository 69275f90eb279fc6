"""The lake: the log as tables that Spark, Polars, DuckDB and pandas read. It can always be rebuilt from the log.

    lake/
      lake.json          the id of its log, and the versions of the tables after the last complete run
      lock               one pipeline at a time
      events/            bronze: every event once, the payload as the exact text that was logged
      quarantine/        what could not be typed, with position and reason
      silver/TYPE/       one table per event type, upcast and validated
      buckets/           the events by hash of their stream, sorted: folds need no shuffle
      gold/VIEW/         one table per view
      answers/NAME/      tables in SQL: those of the user, and ours about the history
      letters/VIEW/      the events that the view could not apply
      checkpoints/       of `pipeline stream`
      scratch/           temporary files of Spark, while it runs

Each is a `Table` (Delta). `lake.table("gold/streams")` is the one of that name, whether it exists or not:

    lake = Lake.open(path, log_id=log.identity.log_id, create=True)
    with lake.writing():                                    # Busy if another pipeline is writing
        lake.events.append(rows, cursor=cursor)             # one commit; False if the batch is already there
        lake.table("gold/streams").overwrite(states, cursor=cursor, marks={"version": 3})
        lake.publish(cursor)                                # what was committed is now the state of the lake
    lake.read(spark, "events")                              # after the last complete run, never half of the next

A cursor is that of the log (`position~knows@epoch`); rows of another epoch count as nothing, and are overwritten. At
any time and for any reader, every table is a correct state of the log at its own cursor; `lake.read` returns all of
them at the same one.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from everlog.core.query import Cursor
from everlog.errors import Conflict, Damaged, EverlogError, InvalidField, NewerFormat, NotFound
from everlog.files import DiskFiles
from everlog.pipeline.lake.bucket import Lease, is_remote, url_of
from everlog.pipeline.lake.folders import files_for, make_folders, put_file, remove_tree, walk
from everlog.pipeline.lake.table import DELTA_LOG, FILE_BYTES, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
FILE_NAME = "lake.json"
EVENTS, QUARANTINE, SILVER, BUCKETS, GOLD = "events", "quarantine", "silver", "buckets", "gold"
ANSWERS = "answers"
LETTERS = "letters"
SCRATCH = "scratch"


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `lake.json`."""

    format: int = FORMAT
    log_id: str
    cursor: str = ""  # of the last complete run
    tables: Mapping[str, int] = {}  # the version of each table after it
    scrubbed: int = 0  # the newest purge whose events are known to be gone from the disk


class Lake:
    def __init__(self, path: Path, log_id: str, *, files: DiskFiles | None = None) -> None:
        self.path = path
        self.log_id = log_id
        self._files = files or files_for(path)
        self._lease: Lease | None = None
        self.file_bytes = FILE_BYTES

    @classmethod
    def open(cls, path: Path, *, log_id: str = "", create: bool = False, files: DiskFiles | None = None) -> Lake:
        """Open the lake in a folder, or make it, with `create`. It must belong to `log_id`, if that is given."""
        if not is_remote(path):
            path = path.absolute()
        if {"%", "\\"}.intersection(str(path)):
            raise InvalidField(
                f"the path of the lake is {path}",
                why="the library that commits its tables gives % and \\ another meaning",
                hint="choose a path without them",
                field="lake",
            )
        lake = cls(path, log_id, files=files)
        if not lake._files.exists(path / FILE_NAME):
            if not create:
                raise NotFound(
                    f"there is no lake in {url_of(path)}",
                    why=f"{FILE_NAME} is not there",
                    hint="everlog pipeline run",
                )
            make_folders(lake._files, path)
            if not is_remote(path):  # a lake is derived and large: it is not part of a log in git
                put_file(lake._files, path / ".gitignore", b"*\n")
            lake._put(Published(log_id=log_id))
        found = lake.published()
        if log_id and found.log_id != log_id:
            raise Conflict(
                f"the lake in {path} belongs to another log",
                why=f"it holds the log {found.log_id}, this one is {log_id}",
                hint="name another folder with --lake",
            )
        lake.log_id = found.log_id
        return lake

    # ---- tables

    def table(self, name: str) -> Table:
        place = self.path / name
        return Table(place, name, log_id=self.log_id, files=self._files, file_bytes=self.file_bytes)

    @property
    def events(self) -> Table:
        return self.table(EVENTS)

    @property
    def quarantine(self) -> Table:
        return self.table(QUARANTINE)

    @property
    def buckets(self) -> Table:
        return self.table(BUCKETS)

    def silver(self, event_type: str) -> Table:
        return self.table(f"{SILVER}/{event_type}")

    def gold(self, view: str) -> Table:
        return self.table(f"{GOLD}/{view}")

    def tables(self, below: str = "") -> list[Table]:
        """Return the tables that exist, by name: all of them, or those of `silver` or `gold`."""
        found = _table_folders(self._files, self.path / below)
        return [self.table(path.relative_to(self.path).as_posix()) for path in sorted(found) if path != self._lock]

    @property
    def _lock(self) -> Path:
        return self.path / "lock"

    def drop(self, table: Table) -> None:
        """Remove a table with all its files: the next run derives it again."""
        # Its log goes first: without one a table does not exist, whatever else a crash leaves.
        remove_tree(self._files, table.path / DELTA_LOG)
        remove_tree(self._files, table.path)

    def discard(self, folder: str, error: BaseException, *, below: str) -> None:
        """Remove the files of a write to all tables of a kind, whether they have a commit or not."""
        found = {path.relative_to(self.path / below).parts[0] for path in walk(self._files, self.path / below)}
        for name in sorted(found):
            self.table(f"{below}/{name}").discard(folder, error)

    # ---- reading

    def published(self) -> Published:
        path = self.path / FILE_NAME
        try:
            found = msgspec.json.decode(self._files.read_all(path), type=Published)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Damaged(
                f"{path} is damaged", why=str(error), hint=f"remove the folder {self.path}, then everlog pipeline run"
            ) from error
        if found.format > FORMAT:
            raise NewerFormat(
                f"the lake in {self.path} was written by a newer program",
                why=f"it has format {found.format}, this program knows {FORMAT}",
                hint="update everlog; the lake was not touched",
            )
        return found

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """Return a table after the last complete run, at the same cursor as every other."""
        version = self.published().tables.get(name)
        if version is None:
            raise NotFound(
                f"the lake has no table {name}",
                why="it has " + (", ".join(sorted(self.published().tables)) or "none yet"),
                hint="everlog pipeline run",
                table=name,
            )
        return self.table(name).read(spark, version=version)

    def register(self, spark: SparkSession) -> list[str]:
        """Make every table after the last complete run a view of a session; return the names of the views.

        A dot in the name of a table is a `_` there: `silver_shop_order_placed`. Later runs do not change these views.
        """
        from everlog.pipeline.sql.plan import sql_name

        found = []
        for name in sorted(self.published().tables):
            if name != BUCKETS:
                found.append(sql_name(name).replace(".", "_"))
                self.read(spark, name).createOrReplaceTempView(found[-1])
        return found

    # ---- writing

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield a folder for temporary files of Spark. After a kill it stays, until the next purge removes it."""
        if is_remote(self.path):
            with TemporaryDirectory(prefix="everlog-spark-") as here:
                yield Path(here)
            return
        folder = self.path / SCRATCH / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        make_folders(self._files, folder)
        try:
            yield folder
        finally:
            with suppress(OSError, EverlogError):  # Spark removes files at the same time; what stays is removed later
                remove_tree(self._files, folder)

    def remove_scratch(self, but: str = "") -> None:
        """Remove what killed pipelines left in their folders; only while no other process writes to this lake."""
        if not is_remote(self.path) and (self.path / SCRATCH).is_dir():
            for folder in (self.path / SCRATCH).iterdir():
                if str(folder) != but:
                    remove_tree(self._files, folder)

    @contextmanager
    def writing(self, *, wait_s: float | None = 0) -> Iterator[None]:
        """Keep other pipelines from writing to this lake while this is open. `Busy` names the one that does."""
        lock = Lease(self._lock) if is_remote(self.path) else self._files.lock(self._lock)
        lock.acquire(wait_s)
        self._lease = lock if isinstance(lock, Lease) else None
        try:
            yield
        finally:
            self._lease = None
            lock.close()

    def publish(self, cursor: Cursor, *, versions: Mapping[str, int] | None = None) -> Published:
        """Make the last version of every table, or the given versions, the state of the lake, in one step."""
        before = self.published()
        tables = {table.name: table.version() for table in self.tables()} | dict(versions or {})
        found = msgspec.structs.replace(before, cursor=str(cursor), tables=tables)
        if found != before:
            self._put(found)
        return found

    def republish(self, table: Table) -> None:
        """Publish the last version of one table, which has the same rows as the published one."""
        before = self.published()
        self._put(msgspec.structs.replace(before, tables={**before.tables, table.name: table.version()}))

    def scrubbed(self, purge: int) -> None:
        """Record that the events of every purge up to this one are gone from the disk."""
        self._put(msgspec.structs.replace(self.published(), scrubbed=purge))

    def _put(self, published: Published) -> None:
        if self._lease is not None:
            self._lease.require()
        text = msgspec.json.format(msgspec.json.encode(published, order="deterministic"), indent=2)
        put_file(self._files, self.path / FILE_NAME, text + b"\n")


def _table_folders(files: DiskFiles, folder: Path) -> Iterator[Path]:
    """Yield the folders of tables at or below a folder. What is inside a table is not looked at: Spark writes there
    and removes what it wrote, at any time."""
    if is_remote(folder):
        yield from {path.parents[1] for path in walk(files, folder) if path.parent.name == DELTA_LOG}
        return
    if (folder / DELTA_LOG).is_dir():
        yield folder
        return
    try:
        inside = [path for path in folder.iterdir() if path.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return
    for path in inside:
        yield from _table_folders(files, path)
