"""Keeps the index as new as the day files: looks, catches up, mends what a crash left, and makes it anew.

A look costs three calls of `stat`. Only when they tell of a change, the lock is taken and the files are read. If
somebody else holds it, a write is under way, and what the index says is what is committed.

Where nothing can be written (a read-only folder), the index is a copy in memory, and nothing is mended.

The log's lock comes before the mutex, because a write has the lock when it needs the mutex. A thread that has the
mutex takes the lock only if it is free, and never waits for it.
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
from everlog.stores.jsonl import purging
from everlog.stores.jsonl.catching_up import (
    OutOfOrder,
    Read,
    fill_new,
    find_change,
    last_write,
    read_whole,
    record_change,
)
from everlog.stores.jsonl.day_files import Tail, day_name, day_names, open_names
from everlog.stores.jsonl.drafting import clear_draft, draft_of, put_in_place
from everlog.stores.jsonl.epochs import Following, Kept, find_epoch, follow_git
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.git_state import GitState
from everlog.stores.jsonl.index import Index, IndexBroken, Unusable, new_epoch
from everlog.stores.jsonl.lines import Line, PurgedLine
from everlog.stores.jsonl.refusing import missing_error, refuse_damage
from everlog.stores.jsonl.rows import Rows, remove_purged

_LOCK_TIMEOUT_S = 30.0
_DISTRUST_S = 2.0
_DAY_US = 86_400_000_000
_RACY_NS = 50_000_000
_FULL_DISK_S = 10.0  # after which a writer looks whether there is room again
_logger = logging.getLogger("everlog")


class Keeper:
    def __init__(self, folder: Folder, lock: Lock, tail: Tail, *, in_memory: bool, now_us: Callable[[], int]) -> None:
        self._folder = folder
        self._files = folder.files
        self._lock = lock
        self._tail = tail
        self._now_us = now_us
        self._in_memory = in_memory
        self._read_only = False
        self._closed = False
        self._stopped = False
        self._must_make = False
        self._damaged = False
        self._may_cut = False  # only a write cuts what a crash left: a read leaves every byte (G11)
        self._torn = self._torn_told = ""  # what was left for the next write to cut, and what was told of it
        self._mutex = threading.RLock()
        self._waiting = threading.Lock()  # held by a thread that waits for the lock: `close` lets it finish
        self._index: Index | None = None
        self._inode: tuple[int, int] | None = None
        self._retired: list[Index] = []
        self._seen: object = None
        self._folder_seen: object = ()
        self._newest: list[str] = []
        self._left_disk_s = 0.0  # when the disk was full and the index went on in memory
        self._origins = folder.origins()
        self._git = GitState(folder)
        self._kept = Kept(folder)
        self.index_replaced: Callable[[], None] = lambda: None
        self.clean_notes: Callable[[], None] = lambda: None  # what a purge does to the notes
        self.first_epoch = ""  # a copy that is being made goes by the epoch of what it copies

    @property
    def index(self) -> Index:
        index = self._index
        if index is None:
            raise LogClosed(f"{self._folder.path} is closed", hint="open it again")
        return index

    @property
    def origin(self) -> str:
        return self._origins[0]

    # ---- looking

    def stop(self) -> None:
        """A flush failed: what is in the files is not to be trusted by this process any more, nor mended (G12)."""
        self._stopped = True

    def refresh(self) -> None:
        """The index knows what is committed."""
        if self._stopped:
            return
        if self._index is not None and not self._index.broken and self._glance() == self._seen:
            return
        with self._mutex:
            self._require_open()
            if self._index is not None and self._index.broken:
                self._drop_index()
                self._must_make = True
            if self._index is None:
                self._open_without_lock()
            if self._index is not None and not self._was_replaced() and not self._damaged and self._matches():
                self._seen = self._glance()  # somebody wrote and told the index of it
                return
            if self._index is not None and not self._was_replaced():
                locked = self._acquire(0)
                if locked or self._read_only:
                    self._catch_up_and_release(locked)
                    return
                if not self._was_replaced():
                    return  # somebody else holds the lock, and the index that is open still serves
        # The index is made anew by somebody else, and that has to be waited for.
        with self._waiting:
            self._catch_up_and_release(self._acquire(_LOCK_TIMEOUT_S))

    def distrust(self, file: int) -> None:
        """A line is not what the index says, though its file looks unchanged: read all of that file again."""
        with self._waiting:
            locked = not self._read_only
            if locked:
                self._lock.acquire(_DISTRUST_S)
            self._catch_up_and_release(locked, distrusted=file)

    def _acquire(self, timeout_s: float) -> bool:
        """Hold the lock. False if nothing can be written here, and with a timeout of 0 also if another holds it."""
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
                    self._drop_index()  # from here on a copy in memory: the file is not ours to bring up to date
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

    def _glance(self) -> object:
        """What tells of a change for the price of three looks: the folder, the newest file, the index."""
        events = self._folder.events
        folder = self._files.stamp(events)
        day = self._now_us() // _DAY_US
        if (folder, day) != self._folder_seen:
            self._folder_seen = (folder, day)
            self._newest = open_names(day_names(self._files, events), self._today())
        looked_at = self._newest
        if folder is not None and 0 <= time.time_ns() - folder.changed_ns < _RACY_NS:
            # Within one tick of the clock the folder may change twice and keep its time, as git knows of files, too.
            looked_at = day_names(self._files, events)
        newest = [self._files.stamp(events / name) for name in looked_at]
        path = self.index.path
        version = self.index.fetch("PRAGMA data_version")[0][0]
        git = self._git.stamps() if self._damaged else None  # it may come to say that the lines were its own to take
        return folder, newest, None if path is None else self._files.inode(path), version, git

    def _today(self) -> str:
        return day_name(self._now_us())

    def _matches(self) -> bool:
        """True when every file is as the index knows it."""
        events = self._folder.events
        known = {name: stamp for name, (_, stamp) in self.index.stamps().items()}
        names = day_names(self._files, events)
        return names == sorted(known) and all(self._files.stamp(events / name) == known[name] for name in names)

    def _was_replaced(self) -> bool:
        """Another process may have made the index anew: the one that is open has no name any more."""
        path = None if self._index is None else self._index.path
        return path is not None and self._files.inode(path) != self._inode

    @property
    def seen(self) -> object:
        """The state of the files that the index was last in step with: what is remembered holds for it alone."""
        return self._seen

    def begin_write(self) -> None:
        """With the lock held: everything that was committed is known and mended."""
        with self._mutex:
            if self._read_only:
                raise ReadOnly(
                    f"{self._folder.path} cannot be written",
                    why="the folder is read-only for this user",
                    hint="check its owner and mode; reading works",
                )
            if self._index is not None and self._index.broken:
                self._drop_index()
                self._must_make = True
            self._back_to_disk()
            # A purge that was killed on its way leaves its plan, and nothing else may tell of it.
            left = self._torn or self._files.exists(self._folder.purge_file)
            if self._index is None or self._glance() != self._seen or left:
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

    # ---- what a write does to the index

    def end_of_log(self, today: str) -> tuple[str, int]:
        """The file that a write goes to and its end: today's, whatever a wrong clock has left for days to come."""
        stamp = self._files.stamp(self._folder.events / today)
        return today, 0 if stamp is None else stamp.size

    def record_write(
        self, name: str, at: int, lines: Sequence[tuple[bytes, Line, bytes]], purged: Collection[PurgedLine] = ()
    ) -> None:
        """Tell the index of lines that are on the disk, and of the events that a purge among them removes. That it
        fails must not be told as a failed write."""
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
                        rows.take(file, at, len(data) - 1, line, digest=digest)
                        at += len(data)
                    rows.end()
                    remove_purged(connection, purged)
            except (sqlite3.Error, IndexBroken) as error:
                if _is_full(error):
                    self._go_on_in_memory()
                else:
                    _logger.warning(
                        "the index of %s could not be updated (%s): it is made anew", self._folder.path, error
                    )
                    self._drop_index()
                self._catch_up()
                return
            self._seen = self._glance()

    def finish_purge(self, plan: purging.Plan) -> None:
        """Steps 3 to 5 of a purge, and the index after it."""
        with self._mutex:
            self._seen = None  # if this fails, whoever comes next begins with looking
            self._tail.close()  # the file that it is about may get a new content under the old name
            purging.carry_out(self._files, self._folder.events, plan)
            self._catch_up_lines()
            self.clean_notes()
            self._files.unlink(self._folder.purge_file)
            self._seen = self._glance()

    # ---- catching up

    def _catch_up(self) -> None:
        if self._was_replaced():
            self._drop_index()
            self._origins = self._folder.origins()  # whoever made it anew may have begun a new one
        if not self.origin or self._index is None:
            # Another process of this copy may have been the first to write, and was killed: half of what it wrote is
            # torn, and not a part that came through git. Or it has followed git to another branch.
            self._origins = self._folder.origins()
        if self._index is None:
            self._open_index()
        if not self._read_only:
            for left in self._leftovers():
                self._files.unlink(left)
        try:
            self._catch_up_lines()
        except (sqlite3.Error, IndexBroken) as error:
            if _is_full(error):
                self._go_on_in_memory()
                self._catch_up_lines()
            else:
                _logger.warning("the index of %s is damaged (%s): it is made anew", self._folder.path, error)
                self._drop_index()
                self._make_index()
        if not self._read_only:
            self._finish_old_purge()
        self._damaged = bool(self.index.missing())
        self._seen = self._glance()

    def _catch_up_lines(self) -> None:
        mend = None if self._read_only else self._mend
        self._torn = ""
        # Before anything is mended: git knows by the time of a file whether it wrote it.
        first = None if self._git.inside else mend
        today = self._today()
        change = find_change(self.index, self._files, self._folder.events, own=self.origin, mend=first, today=today)
        if self._git.inside and (change or self.index.missing()):
            following = follow_git(self.index, self._folder, self._git, self._kept, change)
            if following is not None:
                self._go_to(following)
            change = find_change(
                self.index, self._files, self._folder.events, own=self.origin, mend=mend, today=today
            )
        if change:
            going = purging.going(self._files, self._folder.purge_file)
            record_change(self.index, change, own=self._origins, origin=self.origin, purged=going)
            if self.index.has_holes():
                self._drop_index()
                self._make_index()

    # ---- branches of git

    def _go_to(self, following: Following) -> None:
        """Use the index of what is checked out: the kept one, a copy of this one, or one from nothing."""
        self._put_aside()
        if following.kept is not None:
            self._install_kept(following.kept, following.branch)
        elif following.may_go_on:
            self._install(self.index, new_epoch(), following.branch, "")
        else:
            _logger.info("%s: other events are checked out, with an epoch of their own", self._folder.path)
            self._set_origin("")
            self._drop_index()
            self._make_index()

    def _install_kept(self, kept: Index, branch: str) -> None:
        """Go on with the index of the branch. That of another branch is its own, and so are its epoch and origin."""
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
        self._set_origin(origin)  # first: an index of another origin is not used
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
        """In a write: the events that are written belong to the branch that is checked out."""
        branch = self._git.branch()
        known = self.index.branch
        if not branch or branch == known:
            return
        if known:
            self._go_to(find_epoch(self.index, self._folder, self._kept, branch, may_go_on=True))
            self._catch_up_lines()
            self._seen = self._glance()
        else:
            self.index.set_branch(branch)

    def _finish_old_purge(self) -> None:
        plan = purging.read_plan(self._files, self._folder.purge_file)
        if plan is None:
            return
        if all(self.knows(line.id) for line in plan.purges):
            self.finish_purge(plan)
        else:
            self._files.unlink(self._folder.purge_file)  # it never came to be

    def _leftovers(self) -> list[Path]:
        folders, draft = [self._folder.local, self._folder.events], draft_of(self._folder.index_file)
        found = [
            path for folder in folders if self._files.exists(folder) for path in leftover_temps(self._files, folder)
        ]
        # Whoever opened the index while it is made anew would put a journal of the old one beside the new one.
        return [*found, draft] if self._files.exists(draft) else found

    def _mend(self, read: Read, cut: int | None, data: bytes) -> None:
        """End a last line that lacks nothing but its newline, put what is whole on the disk, and if somebody is about
        to write, cut a torn tail."""
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
        if self._torn != self._torn_told:
            self._torn_told = self._torn
            _logger.warning(
                "%s: %d bytes of a write that was never finished are left out, at byte %d; the next write cuts them",
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
                    self._catch_up()  # or what vanished since the last look would be forgotten here
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
        self._make_index()
        self._seen = self._glance()

    def _open_index(self) -> None:
        path = self._folder.index_file
        if self._in_memory or self._must_make or not self._files.exists(path):
            self._make_index()
            return
        try:
            if self._read_only:
                self._use(Index.open_as_it_stands(path))
            else:
                self._use(Index.open(path, origin=self.origin))
        except Unusable as error:
            _logger.warning("the index of %s is made anew: %s", self._folder.path, error)
            self._make_index()

    def _open_without_lock(self) -> None:
        """An index that is whole can be read while somebody writes. Only what a crash left to do needs the lock."""
        path = self._folder.index_file
        if self._in_memory or self._must_make or not self._files.exists(path):
            return
        if self._files.exists(self._folder.purge_file) or self._leftovers():
            return
        with suppress(Unusable):  # then it is made anew, with the lock
            self._use(Index.open(path, origin=self.origin))

    def _go_on_in_memory(self) -> None:
        """The disk is full, and what is in the day files must be found all the same: with a copy of the index that
        needs no room. The file stays behind; whoever finds room brings it up to date."""
        _logger.warning("the disk of %s is full: its index goes on in memory", self._folder.path)
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
            self._make_index_at(None)

    def _back_to_disk(self) -> None:
        """There may be room again."""
        if self._left_disk_s and time.monotonic() - self._left_disk_s > _FULL_DISK_S:
            self._left_disk_s = 0.0
            self._drop_index()

    def _make_index(self) -> None:
        path = None if self._in_memory or self._read_only else self._folder.index_file
        try:
            self._make_index_at(path)
        except (sqlite3.Error, StorageFull) as error:
            if path is None or not _is_full(error):
                raise
            self._go_on_in_memory()
            self._catch_up_lines()

    def _make_index_at(self, path: Path | None) -> None:
        try:
            index = self._filled(path, causal=False)
        except OutOfOrder:
            index = self._filled(path, causal=True)
        self.first_epoch = ""
        index.finish()
        with index.change() as connection:
            remove_purged(connection, purging.going(self._files, self._folder.purge_file))
        if path is not None:
            index = put_in_place(self._files, path, index, origin=self.origin)
        self._must_make = False
        self._use(index)

    def _filled(self, path: Path | None, *, causal: bool) -> Index:
        draft = None
        if path is not None:
            draft = draft_of(path)
            clear_draft(self._files, self._folder.index_file)
            self._files.close(self._files.open(draft, exclusive=True))
        index = Index.make(draft, origin=self.origin, epoch=self.first_epoch, branch=self._git.branch())
        mend = None if self._read_only else self._mend
        self._torn = ""
        reads = read_whole(self._files, self._folder.events, own=self.origin, mend=mend, today=self._today())
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
            self._retired.append(self._index)  # a reader in another thread may be asking it just now
            self._index = None


def _is_full(error: BaseException) -> bool:
    """Whether the disk is full: SQLite says so, or could not even make the files that it needs beside its own."""
    told = error.__cause__ if isinstance(error, IndexBroken) else error
    name = getattr(told, "sqlite_errorname", "") or ""
    return isinstance(told, StorageFull) or name in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE")
