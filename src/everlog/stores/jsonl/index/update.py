"""Keep the index in step with the day files: detect changes, catch up, repair after a crash, rebuild.

A check costs three `stat` calls. Only if they show a change does it take the lock and read the files. If another
process holds the lock, a write is open, and the index has everything that is committed.

Where nothing can be written (a read-only folder), the index is a copy in memory, and nothing is repaired.

The log's lock is taken before the mutex, because a write holds the lock when it needs the mutex. A thread that holds
the mutex takes the lock only if it is free, and never waits for it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from everlog.errors import Busy, LogClosed, ReadOnly, StorageFull
from everlog.files import Lock, leftover_temps
from everlog.stores.contract import Checkout
from everlog.stores.jsonl import purge
from everlog.stores.jsonl.day_files import OpenDayFile, day_name, day_names, open_names
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.changes import Read, find_change, last_write, read_whole
from everlog.stores.jsonl.index.epochs import Following, Kept, find_epoch, follow_git
from everlog.stores.jsonl.index.git_state import GitState
from everlog.stores.jsonl.index.record import OutOfOrder, fill_new, record_change
from everlog.stores.jsonl.index.rows import Rows, remove_purged
from everlog.stores.jsonl.index.schema import (
    Index,
    IndexBroken,
    Unusable,
    clear_draft,
    draft_of,
    is_full,
    new_epoch,
    put_in_place,
)
from everlog.stores.jsonl.lines import Line, PurgedLine
from everlog.stores.jsonl.read_only import missing_error, refuse_damage

_LOCK_TIMEOUT_S = 30.0
_REREAD_LOCK_S = 2.0
_DAY_US = 86_400_000_000
_RACY_NS = 50_000_000
_FULL_DISK_S = 10.0  # after which a writer checks for free space again
_logger = logging.getLogger("everlog")


class IndexUpdater:
    def __init__(
        self, folder: Folder, lock: Lock, tail: OpenDayFile, *, in_memory: bool, now_us: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._files = folder.files
        self._lock = lock
        self._tail = tail
        self._now_us = now_us
        self._in_memory = in_memory
        self._read_only = False
        self._closed = False
        self._stopped = False
        self._must_rebuild = False
        self._damaged = False
        self._may_cut = False  # only a write cuts a torn tail: a read changes no byte (G11)
        self._torn = self._torn_reported = ""  # the tail that the next write cuts; the last one that was reported
        self._mutex = threading.RLock()
        self._waiting = threading.Lock()  # held by a thread that waits for the lock: `close` waits for it
        self._index: Index | None = None
        self._inode: tuple[int, int] | None = None
        self._retired: list[Index] = []
        self._seen: object = None
        self._folder_seen: object = ()
        self._newest: list[str] = []
        self._left_disk_s = 0.0  # when the index moved to memory because the disk was full
        self._origins = folder.origins()
        self._git = GitState(folder)
        self._kept = Kept(folder)
        self.index_replaced: Callable[[], None] = lambda: None
        self.clean_notes: Callable[[], None] = lambda: None  # called by a purge
        self.first_epoch = ""  # a new copy of a log uses the epoch of the original

    @property
    def index(self) -> Index:
        index = self._index
        if index is None:
            raise LogClosed(f"{self._folder.path} is closed", hint="open it again")
        return index

    @property
    def origin(self) -> str:
        return self._origins[0]

    # ---- refreshing

    def stop(self) -> None:
        """Stop updating after a failed flush: this process must not trust or repair the files any more (G12)."""
        self._stopped = True

    def refresh(self) -> None:
        """Update the index to everything that is committed."""
        if self._stopped:
            return
        if self._index is not None and not self._index.broken and self._fingerprint() == self._seen:
            return
        with self._mutex:
            self._require_open()
            if self._index is not None and self._index.broken:
                self._drop_index()
                self._must_rebuild = True
            if self._index is None:
                self._open_without_lock()
            if self._index is not None and not self._was_replaced() and not self._damaged and self._matches():
                self._seen = self._fingerprint()  # another process wrote and updated the index
                return
            if self._index is not None and not self._was_replaced():
                locked = self._acquire(0)
                if locked or self._read_only:
                    self._catch_up_and_release(locked)
                    return
                if not self._was_replaced():
                    return  # another process holds the lock, and the open index is still valid
        # Another process rebuilds the index: wait for it.
        with self._waiting:
            self._catch_up_and_release(self._acquire(_LOCK_TIMEOUT_S))

    def reread_file(self, file: int) -> None:
        """Read all of a file again: a line does not match the index, although the file looks unchanged."""
        with self._waiting:
            locked = not self._read_only
            if locked:
                self._lock.acquire(_REREAD_LOCK_S)
            self._catch_up_and_release(locked, distrusted=file)

    def _acquire(self, timeout_s: float) -> bool:
        """Take the lock. Return False if nothing can be written here, or with a timeout of 0 if it is held."""
        try:
            self._lock.acquire(timeout_s)
        except Busy:
            if timeout_s:
                raise
            return False
        except (ReadOnly, FileNotFoundError):
            with self._mutex:
                self._read_only = True
                if self._index is not None and self._index.path is not None:
                    self._drop_index()  # from here on a copy in memory is used: the file cannot be updated
            return False
        return True

    def _catch_up_and_release(self, locked: bool, *, distrusted: int | None = None) -> None:
        try:
            with self._mutex:
                self._require_open()
                if distrusted is not None:
                    with self.index.change() as connection:
                        connection.execute("UPDATE files SET changed_ns = -1 WHERE file = ?", (distrusted,))
                self._catch_up()
        finally:
            if locked:
                self._lock.release()

    def _require_open(self) -> None:
        if self._closed:
            raise LogClosed(f"{self._folder.path} is closed", hint="open it again")

    def _fingerprint(self) -> object:
        """Return what shows a change at the cost of three `stat` calls: the folder, the newest file, the index."""
        events = self._folder.events
        folder = self._files.stamp(events)
        day = self._now_us() // _DAY_US
        if (folder, day) != self._folder_seen:
            self._folder_seen = (folder, day)
            self._newest = open_names(day_names(self._files, events), self._today())
        looked_at = self._newest
        if folder is not None and 0 <= time.time_ns() - folder.changed_ns < _RACY_NS:
            # Within one tick of the clock the folder may change twice and keep its time, as git has it with files,
            # too.
            looked_at = day_names(self._files, events)
        newest = [self._files.stamp(events / name) for name in looked_at]
        path = self.index.path
        version = self.index.fetch("PRAGMA data_version")[0][0]
        git = self._git.stamps() if self._damaged else None  # git may turn out to have removed the lines
        return folder, newest, None if path is None else self._files.inode(path), version, git

    def _today(self) -> str:
        return day_name(self._now_us())

    def _matches(self) -> bool:
        """Return whether every file is as in the index."""
        events = self._folder.events
        known = {name: stamp for name, (_, stamp) in self.index.stamps().items()}
        names = day_names(self._files, events)
        return names == sorted(known) and all(self._files.stamp(events / name) == known[name] for name in names)

    def _was_replaced(self) -> bool:
        """Return whether another process rebuilt the index, so that the open one has no name any more."""
        path = None if self._index is None else self._index.path
        return path is not None and self._files.inode(path) != self._inode

    @property
    def seen(self) -> object:
        """The state of the files that the index matches. Cached values are valid only for this state."""
        return self._seen

    def begin_write(self) -> None:
        """Bring the index up to date and repair the files. The caller holds the lock."""
        with self._mutex:
            if self._read_only:
                raise ReadOnly(
                    f"{self._folder.path} cannot be written",
                    why="the folder is read-only for this user",
                    hint="check its owner and mode; reading works",
                )
            if self._index is not None and self._index.broken:
                self._drop_index()
                self._must_rebuild = True
            self._back_to_disk()
            # An interrupted purge leaves its plan, and perhaps no other trace.
            left = self._torn or self._files.exists(self._folder.purge_file)
            if self._index is None or self._fingerprint() != self._seen or left:
                self._may_cut = True
                try:
                    self._catch_up()
                finally:
                    self._may_cut = False
            if self._damaged:
                self._catch_up()
            self._note_branch()
            if not self.origin:
                # Another process of this copy may have been the first to write.
                self._origins = self._folder.origins()
                if not self.origin:
                    self._begin_origin()
                self.index.set_origin(self.origin)
            refuse_damage(self._folder, self.index)

    def checkout(self) -> Checkout | None:
        return Checkout(self._git.branch(), self._git.commit()) if self._git.inside else None

    def other_epochs(self) -> set[str]:
        return self._kept.epochs()

    def knows(self, line_id: str) -> bool:
        return self.index.knows(line_id)

    def close(self) -> None:
        with self._waiting, self._mutex:
            self._closed = True
            self._drop_index()
            for index in self._retired:
                index.close()
            self._retired.clear()

    # ---- recording a write

    def end_of_log(self, today: str) -> tuple[str, int]:
        """Return the file for a write and its end: today's file, even if a wrong clock created later ones."""
        stamp = self._files.stamp(self._folder.events / today)
        return today, 0 if stamp is None else stamp.size

    def record_write(
        self, name: str, at: int, lines: Sequence[tuple[bytes, Line, bytes]], purged: Collection[PurgedLine] = ()
    ) -> None:
        """Add lines that are on the disk to the index, and remove the events that a purge among them removed. A
        failure here must not be reported as a failed write."""
        with self._mutex:
            stamp = self._files.stamp(self._folder.events / name)
            assert stamp is not None
            try:
                with self.index.change() as connection:
                    (file,) = connection.execute(
                        "INSERT INTO files (name, size, changed_ns, inode) VALUES (?, ?, ?, ?) ON CONFLICT (name)"
                        " DO UPDATE SET size = excluded.size, changed_ns = excluded.changed_ns,"
                        " inode = excluded.inode RETURNING file",
                        (name, *stamp),
                    ).fetchone()
                    rows = Rows(self.index, connection, own=self._origins)
                    for data, line, digest in lines:
                        rows.add(file, at, len(data) - 1, line, digest=digest)
                        at += len(data)
                    rows.end()
                    remove_purged(connection, purged)
            except (sqlite3.Error, IndexBroken) as error:
                if is_full(error):
                    self._go_on_in_memory()
                else:
                    _logger.warning(
                        "the index of %s could not be updated (%s): it is rebuilt", self._folder.path, error
                    )
                    self._drop_index()
                self._catch_up()
                return
            self._seen = self._fingerprint()

    def finish_purge(self, plan: purge.Plan) -> None:
        """Run steps 3 to 5 of a purge, and update the index."""
        with self._mutex:
            self._seen = None  # if this fails, the next call checks the files first
            self._tail.close()  # its file may be replaced
            purge.carry_out(self._files, self._folder.events, plan)
            self._catch_up_lines()
            self.clean_notes()
            self._files.unlink(self._folder.purge_file)
            self._seen = self._fingerprint()

    # ---- catching up

    def _catch_up(self) -> None:
        if self._was_replaced():
            self._drop_index()
            self._origins = self._folder.origins()  # the process that rebuilt it may have created a new origin
        if not self.origin or self._index is None:
            # Another process of this copy may have been the first to write and then killed: its unfinished write is
            # torn, and did not come through git. Or it has followed git to another branch.
            self._origins = self._folder.origins()
        if self._index is None:
            self._open_index()
        if not self._read_only:
            for left in self._leftovers():
                self._files.unlink(left)
        try:
            self._catch_up_lines()
        except (sqlite3.Error, IndexBroken) as error:
            if is_full(error):
                self._go_on_in_memory()
                self._catch_up_lines()
            else:
                _logger.warning("the index of %s is damaged (%s): it is rebuilt", self._folder.path, error)
                self._drop_index()
                self._build_index()
        if not self._read_only:
            self._finish_old_purge()
        self._damaged = bool(self.index.missing())
        self._seen = self._fingerprint()

    def _catch_up_lines(self) -> None:
        repair = None if self._read_only else self._repair
        self._torn = ""
        # Before any repair: git recognises its own files by their time.
        first = None if self._git.inside else repair
        today = self._today()
        change = find_change(self.index, self._files, self._folder.events, own=self.origin, repair=first, today=today)
        if self._git.inside and (change or self.index.missing()):
            following = follow_git(self.index, self._folder, self._git, self._kept, change)
            if following is not None:
                self._switch_to(following)
            change = find_change(
                self.index, self._files, self._folder.events, own=self.origin, repair=repair, today=today
            )
        if change:
            going = purge.pending_lines(self._files, self._folder.purge_file)
            record_change(self.index, change, own=self._origins, origin=self.origin, purged=going)
            if self.index.has_holes():
                self._drop_index()
                self._build_index()

    # ---- branches of git

    def _switch_to(self, following: Following) -> None:
        """Use the index of what is checked out: a kept one, a copy of this one, or a rebuilt one."""
        self._put_aside()
        if following.kept is not None:
            self._install_kept(following.kept, following.branch)
        elif following.may_go_on:
            self._install(self.index, new_epoch(), following.branch, "")
        else:
            _logger.info("%s: other events are checked out; they get a new epoch", self._folder.path)
            self._set_origin("")
            self._drop_index()
            self._build_index()

    def _install_kept(self, kept: Index, branch: str) -> None:
        """Use the kept index of the branch. A kept index of another branch is copied with a new epoch and origin."""
        if kept.branch == branch:
            epoch = kept.epoch
            self._install(kept, epoch, branch, kept.origin)
            if not self._read_only:
                self._kept.remove(epoch)
        else:
            self._install(kept, new_epoch(), branch, "")

    def _put_aside(self) -> None:
        if not self._read_only and not self._in_memory:
            self._kept.put(self.index)

    def _install(self, source: Index, epoch: str, branch: str, origin: str) -> None:
        """Use a copy of an index."""
        self._set_origin(origin)  # first: an index with another origin is refused
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

    def _set_origin(self, origin: str) -> None:
        if self._read_only:
            self._origins = (origin, *[each for each in self._origins if each and each != origin])
        else:
            self._folder.set_origin(origin)
            self._origins = self._folder.origins()

    def _note_branch(self) -> None:
        """Record the branch that is checked out, to which the events of the write belong."""
        branch = self._git.branch()
        known = self.index.branch
        if not branch or branch == known:
            return
        if known:
            self._switch_to(find_epoch(self.index, self._folder, self._kept, branch, may_go_on=True))
            self._catch_up_lines()
            self._seen = self._fingerprint()
        else:
            self.index.set_branch(branch)

    def _finish_old_purge(self) -> None:
        plan = purge.read_plan(self._files, self._folder.purge_file)
        if plan is None:
            return
        if all(self.knows(line.id) for line in plan.purges):
            self.finish_purge(plan)
        else:
            self._files.unlink(self._folder.purge_file)  # it was never committed

    def _leftovers(self) -> list[Path]:
        folders, draft = [self._folder.local, self._folder.events], draft_of(self._folder.index_file)
        found = [
            path for folder in folders if self._files.exists(folder) for path in leftover_temps(self._files, folder)
        ]
        # A process that opened the index during a rebuild would put the old journal beside the new index.
        return [*found, draft] if self._files.exists(draft) else found

    def _repair(self, read: Read, cut: int | None, data: bytes) -> None:
        """Complete a last line that lacks only its newline, flush what is complete, and cut a torn tail if a write is
        open."""
        self._tail.close()
        self._tail.open(read.name)
        if cut is not None:
            self._cut(read.name, cut, read.start + len(data) - cut)
            data = data[: cut - read.start]
        elif data and not data.endswith(b"\n") and read.found[-1].line is not None:
            data += b"\n"
        begin = last_write(read)
        self._tail.settle(data[begin - read.start :], at=begin)

    def _cut(self, name: str, at: int, size: int) -> None:
        path = self._folder.events / name
        if self._may_cut:
            self._tail.cut(at)
            _logger.warning("%s: cut %d bytes of a write that was never finished, at byte %d", path, size, at)
            return
        self._torn = f"{name} {at}"
        if self._torn != self._torn_reported:
            self._torn_reported = self._torn
            _logger.warning(
                "%s: %d bytes of a write that was never finished are ignored, at byte %d; the next write cuts them",
                path,
                size,
                at,
            )

    # ---- the index itself

    def rebuild(self, *, accept_missing: bool) -> None:
        self._lock.acquire(_LOCK_TIMEOUT_S)
        try:
            with self._mutex:
                if self._index is not None and not self._index.broken:
                    self._catch_up()  # or lines lost since the last check would be forgotten
                missing = self.index.missing() if self._index is not None else []
                if missing and not accept_missing:
                    raise missing_error(self._folder, len(missing))
                if missing:
                    self._begin_origin()
                self.rebuild_locked()
        finally:
            self._lock.release()

    def _begin_origin(self) -> None:
        self._folder.new_origin(self._now_us())
        self._origins = self._folder.origins()

    def rebuild_locked(self) -> None:
        self._drop_index()
        self._build_index()
        self._seen = self._fingerprint()

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
        path = None if self._in_memory or self._read_only else self._folder.index_file
        try:
            self._build_index_at(path)
        except (sqlite3.Error, StorageFull) as error:
            if path is None or not is_full(error):
                raise
            self._go_on_in_memory()
            self._catch_up_lines()

    def _build_index_at(self, path: Path | None) -> None:
        try:
            index = self._filled(path, causal=False)
        except OutOfOrder:
            index = self._filled(path, causal=True)
        self.first_epoch = ""
        index.finish()
        with index.change() as connection:
            remove_purged(connection, purge.pending_lines(self._files, self._folder.purge_file))
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
        repair = None if self._read_only else self._repair
        self._torn = ""
        reads = read_whole(self._files, self._folder.events, own=self.origin, repair=repair, today=self._today())
        try:
            fill_new(index, reads, own=self._origins, causal=causal)
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
