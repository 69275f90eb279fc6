"""The lake: the log as tables that Spark, Polars, DuckDB and pandas read, and that can always be made from it again.

    lake/
      lake.json          whose log it is, and the versions of the tables that the last whole run left
      lock               one pipeline at a time
      events/            bronze: every event once, the payload as the exact text that was logged
      quarantine/        what could not be typed, with position and reason
      silver/TYPE/       one table an event type, upcast and validated
      buckets/           the events by hash of their stream, sorted: folds need no shuffle
      gold/VIEW/         one table a view
      answers/NAME/      what people ask of history, one table a question
      letters/VIEW/      what that view could not take
      checkpoints/       of `pipeline stream`
      scratch/           what Spark writes on the way, while it runs

Each is a `Table` (Delta). `lake.table("gold/streams")` is the one of that name, there or not:

    lake = Lake.open(path, log_id=log.identity.log_id, create=True)
    with lake.writing():                                    # Busy if another pipeline does
        lake.events.append(rows, cursor=cursor)             # one commit; False if the batch is in already
        lake.table("gold/streams").overwrite(states, cursor=cursor, marks={"version": 3})
        lake.publish(cursor)                                # what was committed since is now the state of the lake
    lake.read(spark, "events")                              # as the last whole run left it, never half of the next

A cursor is that of the log (`position~knows@epoch`); what a table holds of another epoch counts as nothing, and is
written over. Every table is a true state of the log at its own cursor, at any time and for any reader; `lake.read`
gives all of them at the same one.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from everlog.core.query import Cursor
from everlog.errors import Conflict, Damaged, EverlogError, InvalidField, NewerFormat, NotFound
from everlog.files import DiskFiles, replace_file
from everlog.pipeline.table import DELTA_LOG, Table, make_folders, remove_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
FILE_NAME = "lake.json"
EVENTS, QUARANTINE, SILVER, BUCKETS, GOLD = "events", "quarantine", "silver", "buckets", "gold"
ANSWERS = "answers"
LETTERS = "letters"
SCRATCH = "scratch"


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What `lake.json` says."""

    format: int = FORMAT
    log_id: str
    cursor: str = ""  # of the last whole run
    tables: Mapping[str, int] = {}  # the version of each table that it left
    scrubbed: int = 0  # the newest purge whose events are known to be gone from the disk


class Lake:
    def __init__(self, path: Path, log_id: str, *, files: DiskFiles | None = None) -> None:
        self.path = path
        self.log_id = log_id
        self._files = files or DiskFiles()

    @classmethod
    def open(cls, path: Path, *, log_id: str = "", create: bool = False, files: DiskFiles | None = None) -> Lake:
        """The lake in a folder, made if it is not there and `create` says so. `log_id` is whose it must be."""
        path = path.absolute()
        if {"%", "\\"}.intersection(str(path)):
            raise InvalidField(
                f"the path of the lake is {path}",
                why="the library that commits its tables takes % and \\ for something else",
                hint="choose a path without them",
                field="lake",
            )
        lake = cls(path, log_id, files=files)
        if not lake._files.exists(path / FILE_NAME):
            if not create:
                raise NotFound(
                    f"there is no lake in {path}", why=f"{FILE_NAME} is not there", hint="everlog pipeline run"
                )
            make_folders(lake._files, path)
            # Derived, and large: a log in git does not take its lake along.
            replace_file(lake._files, path / ".gitignore", b"*\n")
            lake._put(Published(log_id=log_id))
        found = lake.published()
        if log_id and found.log_id != log_id:
            raise Conflict(
                f"the lake in {path} is of another log",
                why=f"it holds the log {found.log_id}, this one is {log_id}",
                hint="name another folder with --lake",
            )
        lake.log_id = found.log_id
        return lake

    # ---- tables

    def table(self, name: str) -> Table:
        return Table(self.path / name, name, log_id=self.log_id, files=self._files)

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
        """The tables that are there, by name: all of them, or those of `silver` or `gold`."""
        found = sorted((self.path / below).rglob(DELTA_LOG)) if (self.path / below).is_dir() else []
        return [self.table(path.parent.relative_to(self.path).as_posix()) for path in found if path.is_dir()]

    def drop(self, table: Table) -> None:
        """Remove a table with all its files: what it held is then derived anew."""
        # Its log goes first: a table without one is not there, whatever else is left of it after a crash.
        remove_tree(self._files, table.path / DELTA_LOG)
        remove_tree(self._files, table.path)

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
        """A table as the last whole run left it, at the same cursor as every other."""
        version = self.published().tables.get(name)
        if version is None:
            raise NotFound(
                f"the lake has no table {name}",
                why="it has " + (", ".join(sorted(self.published().tables)) or "none yet"),
                hint="everlog pipeline run",
                table=name,
            )
        return self.table(name).read(spark, version=version)

    # ---- writing

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for what Spark writes on the way. After a kill it stays, and the next purge takes it along."""
        folder = self.path / SCRATCH / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        make_folders(self._files, folder)
        try:
            yield folder
        finally:
            with suppress(OSError, EverlogError):  # Spark removes its own at the same time; what stays is found later
                remove_tree(self._files, folder)

    def remove_scratch(self, but: str = "") -> None:
        """Remove what killed pipelines left in their folders: only while nobody else writes to this lake."""
        if (self.path / SCRATCH).is_dir():
            for folder in (self.path / SCRATCH).iterdir():
                if str(folder) != but:
                    remove_tree(self._files, folder)

    @contextmanager
    def writing(self, *, wait_s: float | None = 0) -> Iterator[None]:
        """While this is open, no other pipeline writes to this lake. Busy names who does."""
        lock = self._files.lock(self.path / "lock")
        lock.acquire(wait_s)
        try:
            yield
        finally:
            lock.close()

    def publish(self, cursor: Cursor, *, versions: Mapping[str, int] | None = None) -> Published:
        """Make the last version of every table the state of the lake, in one step; or of some these versions."""
        before = self.published()
        tables = {table.name: table.version() for table in self.tables()} | dict(versions or {})
        found = msgspec.structs.replace(before, cursor=str(cursor), tables=tables)
        if found != before:
            self._put(found)
        return found

    def republish(self, table: Table) -> None:
        """Make the last version of one table its published one: it has the same rows as that."""
        before = self.published()
        self._put(msgspec.structs.replace(before, tables={**before.tables, table.name: table.version()}))

    def scrubbed(self, purge: int) -> None:
        """Put on record that the events of every purge up to this one are gone from the disk."""
        self._put(msgspec.structs.replace(self.published(), scrubbed=purge))

    def _put(self, published: Published) -> None:
        text = msgspec.json.format(msgspec.json.encode(published, order="deterministic"), indent=2)
        replace_file(self._files, self.path / FILE_NAME, text + b"\n")
