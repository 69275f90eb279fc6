"""The index in use: opening it, building it, moving it to memory when the disk is full, and replacing it."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from everlog.errors import LogClosed, StorageFull
from everlog.files import Lock, leftover_temps
from everlog.stores.jsonl import purge
from everlog.stores.jsonl.day_files import OpenDayFile
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.changes import (
    read_whole,
)
from everlog.stores.jsonl.index.ends import FileEnds
from everlog.stores.jsonl.index.epochs import Kept
from everlog.stores.jsonl.index.git_state import GitState
from everlog.stores.jsonl.index.look import Look
from everlog.stores.jsonl.index.record import OutOfOrder, fill_new, remove_going
from everlog.stores.jsonl.index.schema import (
    Index,
    IndexBroken,
    Unusable,
    clear_draft,
    draft_of,
    is_full,
    put_in_place,
)
from everlog.stores.jsonl.own_origins import OwnOrigins

_FULL_DISK_S = 10.0  # after which a writer checks for free space again
_logger = logging.getLogger("everlog")


class IndexInUse:
    def __init__(
        self, folder: Folder, lock: Lock, tail: OpenDayFile, *, in_memory: bool, now_us: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._files = folder.files
        self._tail = tail
        self._now_us = now_us
        self._in_memory = in_memory
        self._mutex = threading.RLock()  # held by a thread that replaces the index
        self._closed = False
        self._read_only = False
        self._must_rebuild = False
        self._index: Index | None = None
        self._inode: tuple[int, int] | None = None
        self._retired: list[Index] = []
        self._left_disk_s = 0.0  # when the index moved to memory because the disk was full
        self._look = Look(folder, now_us)
        self._ends = FileEnds(folder, tail)
        self._git = GitState(folder)
        self._kept = Kept(folder)
        self.own = OwnOrigins(folder, lock, now_us)
        self.index_replaced: Callable[[], None] = lambda: None
        self.first_epoch = ""  # a new copy of a log uses the epoch of the original

    @property
    def index(self) -> Index:
        """The index in use. While another thread replaces it, there is none: wait for the new one."""
        index = self._index
        if index is None:
            with self._mutex:
                self._require_open()
                index = self._index
        if index is None:
            raise IndexBroken(
                f"{self._folder.path} has no index just now",
                why="it is damaged or is replaced, and another process holds the log's lock",
                hint="try again: it is rebuilt",
            )
        return index

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self._folder.path} is closed", hint="open it again")

    @property
    def origin(self) -> str:
        return self.own.names[0]

    # ---- opening and building

    def _was_replaced(self) -> bool:
        """Return whether another process rebuilt the index, so that the open one has no name any more."""
        path = None if self._index is None else self._index.path
        return path is not None and self._files.inode(path) != self._inode

    def _open_index(self) -> None:
        path = self._folder.index_file
        if self._in_memory or self._must_rebuild or not self._files.exists(path):
            self._build_index()
            return
        try:
            if self._read_only:
                self._use(Index.open_as_it_stands(path))
            else:
                self._use(Index.open(path, origin=self.origin))
        except Unusable as error:
            _logger.warning("the index of %s is rebuilt: %s", self._folder.path, error)
            self._build_index()

    def _open_without_lock(self) -> None:
        """Open a complete index without the lock, even while another process writes. Repairs need the lock."""
        path = self._folder.index_file
        if self._in_memory or self._must_rebuild or not self._files.exists(path):
            return
        if self._files.exists(self._folder.purge_file) or self._leftovers():
            return
        with suppress(Unusable):  # then it is rebuilt, with the lock
            self._use(Index.open(path, origin=self.origin))

    def _go_on_in_memory(self) -> None:
        """Continue with a copy of the index in memory, because the disk is full. The file is brought up to date when
        there is space again."""
        _logger.warning("the disk of %s is full: its index is kept in memory", self._folder.path)
        self._left_disk_s = time.monotonic()
        index = None if self._index is None or self._index.broken else self._index.copy()
        if index is None and self._files.exists(self._folder.index_file):
            try:
                index = Index.open_as_it_stands(self._folder.index_file)
            except Unusable as error:
                _logger.warning("the index of %s cannot be read: %s", self._folder.path, error)
        self._drop_index()
        if index is not None and index.origin == self.origin:
            self._use(index)
        else:
            self._build_index_at(None)

    def _back_to_disk(self) -> None:
        """Use the index file again, because there may be free space."""
        if self._left_disk_s and time.monotonic() - self._left_disk_s > _FULL_DISK_S:
            self._left_disk_s = 0.0
            self._drop_index()

    def _build_index(self) -> None:
        """Build an index from the day files. If the disk is full, it may be an older copy in memory."""
        path = None if self._in_memory or self._read_only else self._folder.index_file
        try:
            self._build_index_at(path)
        except (sqlite3.Error, StorageFull) as error:
            if path is None or not is_full(error):
                raise
            self._go_on_in_memory()

    def _build_index_at(self, path: Path | None) -> None:
        try:
            index = self._filled(path, causal=False)
        except OutOfOrder:
            index = self._filled(path, causal=True)
        self.first_epoch = ""
        index.finish()
        with index.change() as connection:
            remove_going(index, connection, purge.unfinished(self._files, self._folder.purge_file))
        if path is not None:
            index = put_in_place(self._files, path, index, origin=self.origin)
        self._must_rebuild = False
        self._use(index)

    def _filled(self, path: Path | None, *, causal: bool) -> Index:
        draft = None
        if path is not None:
            draft = draft_of(path)
            clear_draft(self._files, self._folder.index_file)
            self._files.close(self._files.open(draft, exclusive=True))
        index = Index.make(draft, origin=self.origin, epoch=self.first_epoch, branch=self._git.branch())
        repair = None if self._read_only else self._ends.repair
        self._ends.torn = ""
        reads = read_whole(self._files, self._folder.events, own=self.origin, repair=repair, today=self._look.today())
        try:
            fill_new(index, reads, own=self.own.all(), causal=causal)
        except OutOfOrder:
            index.close()
            raise
        return index

    def _use(self, index: Index) -> None:
        self._index = index
        self.index_replaced()
        self._inode = None if index.path is None else self._files.inode(index.path)

    def _drop_index(self) -> None:
        if self._index is not None:
            self._retired.append(self._index)  # another thread may be reading it
            self._index = None

    def _leftovers(self) -> list[Path]:
        folders, draft = [self._folder.local, self._folder.events], draft_of(self._folder.index_file)
        found = [
            path for folder in folders if self._files.exists(folder) for path in leftover_temps(self._files, folder)
        ]
        # A process that opened the index during a rebuild would put the old journal beside the new index.
        return [*found, draft] if self._files.exists(draft) else found

    # ---- another epoch or origin

    def _put_aside(self) -> None:
        if not self._read_only and not self._in_memory:
            self._kept.put(self.index)

    def _install(self, source: Index, epoch: str, branch: str, origin: str) -> None:
        """Use a copy of an index."""
        self.own.use(origin, read_only=self._read_only)  # first: an index with another origin is refused
        path = None if self._in_memory or self._read_only else self._folder.index_file
        if path is None:
            index = source.copy()
            index.become(epoch=epoch, branch=branch, origin=origin)
        else:
            clear_draft(self._files, self._folder.index_file)
            source.copy_to(draft_of(path))
            draft = Index.open_as_drafted(draft_of(path))
            draft.become(epoch=epoch, branch=branch, origin=origin)
            draft.use_wal()
            index = put_in_place(self._files, path, draft, origin=self.origin)
        self._drop_index()
        self._use(index)
