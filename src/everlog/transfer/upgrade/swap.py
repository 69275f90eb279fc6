"""Put an upgraded log in the place of the old one. The old files are kept until they are forgotten.

A folder (segments, day files) is swapped item by item, as a plan on the disk says:

    1  upgrading/swap.json is written: the draft is complete, verified, and flushed
    2  each item is moved to format1/, and that of the draft into its place
    3  log.json is replaced: from here on it is a log of the new format
    4  upgrading/ is removed

Until step 3 every program refuses the log as one of an older format. An upgrade that is killed before step 1 leaves
the log as it was; one that is killed later is finished by the next one.

A database is swapped by one rename. Before it the old file gets a second name, so that the log never lacks its name.
The old file stays without a write-ahead log: SQLite refuses a writer that opened it under its first name.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from everlog.errors import Busy, Conflict
from everlog.files import Files, replace_file
from everlog.os_errors import ExplainedErrors

FINISHED, BEGUN_AGAIN = "finished", "begun again"
_ALONE_S = 2.0


class FolderSwap:
    """The swap of a log in a folder. `work` is where the draft and the old files are; `items` are relative to the
    log."""

    def __init__(self, files: Files, root: Path, work: Path, items: Sequence[str]) -> None:
        self._files = files
        self._root = root
        self._items = items
        self.draft = work / "upgrading"
        self.kept = work / "format1"
        self._plan = self.draft / "swap.json"

    def recover(self) -> str:
        """Finish or undo what a killed upgrade has left; return which."""
        if not self._files.exists(self.draft):
            return ""
        if self._files.exists(self._plan) and self._files.exists(self.draft / "log.json"):
            self._carry_out()
            return FINISHED
        self.discard()
        # Old files are kept only after the plan was written: the kill came while the draft was removed.
        return FINISHED if self._files.exists(self.kept) else BEGUN_AGAIN

    def prepare(self) -> None:
        refuse_kept(self._files, self.kept)
        self._files.make_dir(self.draft)

    def discard(self) -> None:
        remove_tree(self.draft)

    def swap(self) -> None:
        self._flush(self.draft)
        replace_file(self._files, self._plan, b"{}\n")
        self._carry_out()

    def _flush(self, folder: Path) -> None:
        """Flush everything in a folder: an index is written without flushes, and the epoch is in it."""
        for name in self._files.names(folder):
            path = folder / name
            if path.is_dir():
                self._flush(path)
                continue
            handle = self._files.open(path)
            try:
                self._files.fsync(handle)
            finally:
                self._files.close(handle)
        self._files.fsync_dir(folder)

    def _carry_out(self) -> None:
        files = self._files
        files.make_dir(self.kept)
        for name in self._items:
            fresh, here, old = self.draft / name, self._root / name, self.kept / name
            if files.exists(here) and not files.exists(old) and (files.exists(fresh) or not self._is_new(name)):
                if not files.exists(old.parent):
                    files.make_dir(old.parent)
                self._rename(here, old)
            if files.exists(fresh):
                self._rename(fresh, here)
        about = self._root / "log.json"
        if files.exists(self.draft / "log.json"):
            if files.exists(about) and not files.exists(self.kept / "log.json"):
                replace_file(files, self.kept / "log.json", files.read_all(about))
            self._rename(self.draft / "log.json", about)
        self.discard()

    def _is_new(self, name: str) -> bool:
        """Return whether an item comes from the draft and may be in its place already."""
        return not name.endswith(DROPPED)

    def _rename(self, source: Path, target: Path) -> None:
        self._files.rename(source, target)
        self._files.fsync_dir(target.parent)
        self._files.fsync_dir(source.parent)


DROPPED = ("views.db", "views.db-wal", "views.db-shm", "epochs", "index.db-wal", "index.db-shm")
"""What is derived and has no successor in the draft."""


class DatabaseSwap:
    """The swap of a log in one SQLite file."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self.draft = path.with_name(path.name + ".upgrading")
        self.kept = path.with_name(path.name + ".format1")

    def recover(self) -> str:
        left = self._left()
        is_kept = self._files.exists(self.kept)
        if is_kept and self._files.inode(self.kept) == self._files.inode(self._path):
            self._files.unlink(self.kept)
            self.discard()
            return BEGUN_AGAIN
        self.discard()
        if not left:
            return ""
        return FINISHED if is_kept else BEGUN_AGAIN  # a draft is begun only where nothing is kept

    def prepare(self) -> None:
        refuse_kept(self._files, self.kept)

    def discard(self) -> None:
        for left in self._left():
            self._files.unlink(left)

    def swap(self) -> None:
        files = self._files
        with alone(self._path):
            with ExplainedErrors("keep", self._path):
                os.link(self._path, self.kept)
            files.fsync_dir(self._path.parent)  # the second name is on the disk before the first one is taken
            files.rename(self.draft, self._path)
            files.fsync_dir(self._path.parent)
        self.discard()

    def _left(self) -> list[Path]:
        """Return the files of a draft that are there."""
        draft = self.draft.name
        names = self._files.names(self._path.parent)
        found = [name for name in names if name == draft or name.startswith((draft + "-", draft + ".new"))]
        return [self._path.with_name(name) for name in found]


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold a database that nobody else has open, without a write-ahead log. Raise Busy if somebody has."""
    connection = sqlite3.connect(path, timeout=_ALONE_S, isolation_level=None)
    try:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise _in_use(path) from error
        if mode != "delete":
            raise _in_use(path)
        yield
        connection.execute("ROLLBACK")
    finally:
        connection.close()


def refuse_kept(files: Files, kept: Path) -> None:
    if files.exists(kept):
        raise Conflict(
            f"{kept} has the files of an earlier upgrade",
            why="an upgrade keeps the old files, and never overwrites others",
            hint="everlog upgrade --forget-old, or move them away",
            path=str(kept),
        )


def remove_tree(path: Path) -> None:
    with ExplainedErrors("remove", path):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()


def size_of(path: Path) -> int:
    """Return how many bytes a file or the files of a folder take."""
    if path.is_dir():
        return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    return path.stat().st_size if path.exists() else 0


def _in_use(path: Path) -> Busy:
    return Busy(
        f"{path} is open in another program",
        why="a program that goes on with the old files would write events that the upgraded log does not have",
        hint="end every program that uses the log, and run everlog upgrade again; nothing was changed",
        path=str(path),
    )
