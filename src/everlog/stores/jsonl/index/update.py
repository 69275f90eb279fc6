"""Keep the index in step with the day files: detect changes, catch up, rebuild.

A check costs three `stat` calls. Only if they show a change does it take the lock and read the files. If another
process holds the lock, complete writes that were appended are flushed and recorded without it: for those SQLite's own
lock is enough. Anything else waits until that process is done.

The index may lag. A write of events only adds them to `Pending`; they are recorded before the first question that
needs the index, every 1,000 events, when the log is closed, and by anyone else who writes.

Where nothing can be written (a read-only folder), the index is a copy in memory, and nothing is repaired.

The log's lock is taken before the mutex, because a write holds the lock when it needs the mutex. A thread that holds
the mutex takes the lock only if it is free, and never waits for it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import msgspec

from everlog.core.event import Position
from everlog.errors import Busy, LogClosed, ReadOnly
from everlog.files import Lock
from everlog.stores.contract import Checkout, Claim
from everlog.stores.jsonl import purge
from everlog.stores.jsonl.day_files import OpenDayFile, day_names
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.index.changes import (
    FileChanges,
    Repair,
    find_change,
    only_appended_events,
)
from everlog.stores.jsonl.index.epochs import Following, find_epoch, follow_git
from everlog.stores.jsonl.index.in_use import IndexInUse
from everlog.stores.jsonl.index.look import Fingerprint
from everlog.stores.jsonl.index.pending import Pending, WrittenLine
from everlog.stores.jsonl.index.record import Outdated, purge_again, purged_lines, record_change, remove_going
from everlog.stores.jsonl.index.rows import DISTRUSTED, show_erased
from everlog.stores.jsonl.index.schema import (
    Index,
    IndexBroken,
    is_full,
    new_epoch,
)
from everlog.stores.jsonl.read_only import missing_error, refuse_damage

_LOCK_TIMEOUT_S = 30.0
_REREAD_LOCK_S = 2.0
_logger = logging.getLogger("everlog")


class IndexUpdater(IndexInUse):
    def __init__(
        self, folder: Folder, lock: Lock, tail: OpenDayFile, *, in_memory: bool, now_us: Callable[[], int]
    ) -> None:
        super().__init__(folder, lock, tail, in_memory=in_memory, now_us=now_us)
        self._lock = lock
        self._stopped = False
        self._damaged = False
        self._writing = False  # this process has a write open
        self._checked_branch: str | None = None  # the branch at the last check that found nothing against a write
        self._waiting = threading.Lock()  # held by a thread that waits for the lock: `close` waits for it
        self._seen: Fingerprint | None = None
        self._pending = Pending()
        self.clean_notes: Callable[[], None] = lambda: None  # called by a purge

    # ---- refreshing

    def stop(self) -> None:
        """Stop updating after a failed flush: this process must not trust or repair the files any more (G12). What it
        has acknowledged before is still recorded."""
        with self._mutex:
            self._record_pending()
            self._stopped = True

    def refresh(self) -> None:
        """Update the index to everything that is committed."""
        if self._stopped:
            return
        if self._is_current():
            return
        with self._mutex:
            self._require_open()
            self._record_pending()
            if self._is_current() or (self._writing and self._is_usable()):
                return  # nobody else writes meanwhile
            if self._index is not None and self._index.broken:
                self._drop_index()
                self._must_rebuild = True
            if self._index is None:
                self._open_without_lock()
            seen = None if self._index is None else self._fingerprint()
            if self._index is not None and not self._was_replaced() and not self._damaged and self._matches():
                self._seen = seen  # another process wrote and updated the index
                self._checked_branch = None  # and may have found damage
                return
            if self._index is not None and not self._was_replaced():
                locked = self._acquire(0)
                if locked or self._read_only:
                    self._catch_up_and_release(locked)
                    return
                if not self._was_replaced():
                    self._follow_appends()  # another process holds the lock, and the open index is still valid
                    return
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
                        connection.execute("UPDATE files SET changed_ns = ? WHERE file = ?", (DISTRUSTED, distrusted))
                self._catch_up()
        finally:
            if locked:
                self._lock.release()

    def _is_usable(self) -> bool:
        return self._index is not None and not self._index.broken and not self._was_replaced()

    def _is_current(self) -> bool:
        """Return whether the index has all that is in the files."""
        index = self._index  # another thread may replace it
        if index is None or index.broken or len(self._pending):
            return False
        return self._fingerprint(index=index) == self._seen

    def _fingerprint(self, version: int | None = None, *, index: Index | None = None) -> Fingerprint:
        """Return what shows a change. With `version`, changes within the index itself do not count."""
        index = index or self.index
        if version is None:
            version = index.fetch("PRAGMA data_version")[0][0]
        git = self._git.stamps() if self._damaged else None  # git may turn out to have removed the lines
        return self._look.take(index.path, git=git, version=version)

    def _matches(self) -> bool:
        """Return whether every file is as in the index."""
        events = self._folder.events
        known = {name: stamp for name, (_, stamp) in self.index.stamps().items()}
        names = day_names(self._files, events)
        return names == sorted(known) and all(self._files.stamp(events / name) == known[name] for name in names)

    @property
    def seen(self) -> object:
        """The state of the files that the index and the pending lines match. Cached values are valid only for this
        state."""
        return self._seen

    def begin_write(self) -> None:
        """Find what others have written and repair the files. The caller holds the lock, and calls `end_write`."""
        with self._mutex:
            if not self._may_go_on():
                self._prepare_write()
            self._writing = True

    def end_write(self) -> None:
        self._writing = False

    def _may_go_on(self) -> bool:
        """Return whether nothing has changed since this process last wrote, or looked and found nothing against it.

        Where lines were appended, the file has grown; where git or a purge replaced files, the folder has changed;
        and a rebuilt index is another file. What else is in the index comes from the files."""
        if self._index is None or self._index.broken or self._seen is None or self._left_disk_s:
            return False
        if self._checked_branch is None or self._git.branch() != self._checked_branch:
            return False
        return self._fingerprint(self._seen.version) == self._seen

    def _prepare_write(self) -> None:
        if self._read_only:
            raise ReadOnly(
                f"{self._folder.path} cannot be written",
                why="the folder is read-only for this user",
                hint="check its owner and mode; reading works",
            )
        self._record_pending()
        if self._index is not None and self._index.broken:
            self._drop_index()
            self._must_rebuild = True
        self._back_to_disk()
        # An interrupted purge leaves its plan, and perhaps no other trace.
        left = self._ends.torn or self._files.exists(self._folder.purge_file)
        if self._index is None or self._fingerprint() != self._seen or left:
            with self._ends.cutting():
                self._catch_up()
        if self._damaged:
            self._catch_up()
        self._note_branch()
        if self.index.has_come_back():
            # Git, or somebody, has put back lines that a purge removed.
            plan = purge.Plan([], purged_lines(self.index))
            purge.write_plan(self._files, self._folder.purge_file, plan)
            self.finish_purge(plan)
        if not self.origin:
            # Another process of this copy may have been the first to write.
            self.own.read()
            if not self.origin:
                self.own.begin()
            self.index.set_origin(self.origin)
        refuse_damage(self._folder, self.index)
        self._checked_branch = self._git.branch()

    def checkout(self) -> Checkout | None:
        return Checkout(self._git.branch(), self._git.commit()) if self._git.inside else None

    def other_epochs(self) -> set[str]:
        return self._kept.epochs()

    def knows(self, line_id: str) -> bool:
        return self._pending.knows(line_id) or self.index.knows(line_id)

    def claimed(self, name: bytes) -> Claim | None:
        return self._pending.claims.get(name) or self.index.claimed(name)

    def claimed_among(self, names: Collection[bytes]) -> set[bytes]:
        return self.index.claimed_among(names) | (self._pending.claims.keys() & set(names))

    def close(self) -> None:
        with self._waiting, self._mutex:
            if not self._stopped:
                self._record_pending()
            self._closed = True
            self._drop_index()
            for index in self._retired:
                index.close()
            self._retired.clear()

    # ---- recording a write

    def end_of_log(self, today: str) -> int:
        """Open the file for a write and return its end: today's file, even if a wrong clock created later ones. What
        is pending in another file is recorded first: positions are the order of arrival."""
        with self._mutex:
            if self._pending.name not in ("", today):
                self.record_pending()
            stamp = None if self._seen is None else self._seen.newest.get(today)
            stamp = stamp or self._files.stamp(self._folder.events / today)
            if stamp is None:
                self._files.make_dir(self._folder.events)
            if stamp is None or not self._tail.is_open(today, stamp.inode):
                self._tail.open(today)
        return 0 if stamp is None else stamp.size

    def record_write(
        self,
        name: str,
        at: int,
        first: Position,
        lines: Sequence[WrittenLine],
        going: purge.Plan = purge.NOTHING,
        *,
        now: bool,
    ) -> bool:
        """Note lines that are on the disk, for the index. With `now` they are recorded at once, and what a purge or
        an erasure of the same write removes is removed. Return whether the index is up to date."""
        with self._mutex:
            stamp = self._files.stamp(self._folder.events / name)
            assert stamp is not None
            self._pending.add(name, at, stamp, first, lines)
            self._seen = None if self._seen is None else self._seen.after_write(name, stamp)
            are_many = self._pending.are_many
            if not now and self._seen is not None and not are_many:
                return False
            self.record_pending(going)
            if are_many:
                self._empty_journal()
            if self._seen is None:
                self._seen = self._fingerprint()
            return True

    def _empty_journal(self) -> None:
        """A failure here must not be reported as a failed write."""
        try:
            self.index.empty_journal()
        except (sqlite3.Error, LogClosed) as error:
            _logger.warning("the journal of the index of %s stays as it is: %s", self._folder.path, error)

    def record_pending(self, going: purge.Plan = purge.NOTHING) -> None:
        """Bring the index up to date with the lines of this process; the caller holds the lock."""
        with self._mutex:
            if not self._record_pending(going):
                self._catch_up()

    def _record_pending(self, going: purge.Plan = purge.NOTHING) -> bool:
        """Record the pending lines, which needs no lock but SQLite's. Return False if the files have to be read. A
        failure here must not be reported as a failed write."""
        if not len(self._pending) or self._index is None or self._index.broken:
            self._pending.forget()
            return self._index is not None and not self._index.broken
        try:
            with self.index.change() as connection:
                recorded = self._pending.record(self.index, connection, own=self.own.names)
                if recorded:
                    remove_going(self.index, connection, going)
                else:
                    self._pending.record_as_missing(self.index, connection)
        except (sqlite3.Error, IndexBroken) as error:
            recorded = False
            if is_full(error):
                self._go_on_in_memory()
            else:
                _logger.warning("the index of %s could not be updated (%s): it is rebuilt", self._folder.path, error)
                self._drop_index()
        self._pending.forget()
        if not recorded:
            self._seen = None
        return recorded

    def _follow_appends(self) -> None:
        """Record the complete writes that others have appended, without the log's lock. They are flushed first: the
        one who wrote the last of them may not have done it yet."""
        if self._files.exists(self._folder.purge_file):
            return  # what it removes must not be read beside its lines
        own, today = self.origin, self._look.today()
        change = only_appended_events(self._find_change(repair=None, own=own, today=today))
        if self._git.inside and self._git.branch() not in ("", self.index.branch):
            return
        for read in change.read:
            self._tail.open(read.name)
            self._tail.flush()
        if change:
            with suppress(Outdated):  # somebody else has recorded them
                record_change(self.index, change, own=self.own.among(change.origins), origin=own)

    def finish_purge(self, plan: purge.Plan) -> None:
        """Run steps 3 to 5 of a purge or an erasure, and update the index."""
        with self._mutex:
            self._seen = None  # if this fails, the next call checks the files first
            self._tail.close()  # its file may be replaced
            purge.carry_out(self._files, self._folder.events, plan)
            with self.index.change() as connection:
                show_erased(connection, plan.erased)
            self._catch_up_lines(going=purge.NOTHING)
            self._checked_branch = None
            self.clean_notes()
            self._files.unlink(self._folder.purge_file)
            self._seen = self._fingerprint()

    # ---- catching up

    def _catch_up(self) -> None:
        self._checked_branch = None  # there may be damage now
        if self._was_replaced():
            self._drop_index()
            self.own.read()  # the process that rebuilt it may have created a new origin
        if not self.origin or self._index is None:
            # Another process of this copy may have been the first to write and then killed: its unfinished write is
            # torn, and did not come through git. Or it has followed git to another branch.
            self.own.read()
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
                self._catch_up_lines()
        if not self._read_only:
            self._finish_old_purge()
        self._damaged = bool(self.index.missing())
        self._seen = self._fingerprint()

    def _catch_up_lines(self, *, going: purge.Plan | None = None) -> None:
        """Compare the index with the files, until nobody else changes it. `going` is what a purge or an erasure has
        still to remove, if it is known."""
        if going is None:
            going = purge.unfinished(self._files, self._folder.purge_file)
            if self._read_only:
                going = msgspec.structs.replace(going, erased={})  # nobody here can finish it
        while True:
            with suppress(Outdated):
                self._compare_lines(going)
                return

    def _compare_lines(self, going: purge.Plan) -> None:
        repair = None if self._read_only else self._ends.repair
        self._ends.torn = ""
        # Before any repair: git recognises its own files by their time.
        today = self._look.today()
        change = self._find_change(repair=None if self._git.inside else repair, own=self.origin, today=today)
        if self._git.inside and (change or self.index.missing()):
            following = follow_git(self.index, self._folder, self._git, self._kept, change)
            if following is not None:
                self._switch_to(following)
            change = self._find_change(repair=repair, own=self.origin, today=today)
        if change:
            own = self.own.among(change.origins)
            record_change(self.index, change, own=own, origin=self.origin, going=going)
            if self.index.has_holes():
                self._drop_index()
                self._build_index()
                self._catch_up_lines()

    def _find_change(self, *, repair: Repair | None, own: str, today: str) -> FileChanges:
        events, is_held = self._folder.events, self._tail.is_open
        return find_change(self.index, self._files, events, own=own, repair=repair, is_held=is_held, today=today)

    # ---- branches of git

    def _switch_to(self, following: Following) -> None:
        """Use the index of what is checked out: a kept one, a copy of this one, or a rebuilt one. What is purged
        stays so if the record of the purge is still there."""
        purged = purged_lines(self.index)
        self._put_aside()
        if following.kept is not None:
            self._install_kept(following.kept, following.branch)
        elif following.may_go_on:
            self._install(self.index, new_epoch(), following.branch, "")
        else:
            _logger.info("%s: other events are checked out; they get a new epoch", self._folder.path)
            self.own.use("", read_only=self._read_only)
            self._drop_index()
            self._build_index()
        purge_again(self.index, purged)

    def _install_kept(self, kept: Index, branch: str) -> None:
        """Use the kept index of the branch. A kept index of another branch is copied with a new epoch and origin."""
        if kept.branch == branch:
            epoch = kept.epoch
            self._install(kept, epoch, branch, kept.origin if self._folder.may_continue(kept.origin) else "")
            if not self._read_only:
                self._kept.remove(epoch)
        else:
            self._install(kept, new_epoch(), branch, "")

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
        if plan.is_committed(self.knows):
            self.finish_purge(plan)
        else:
            self._files.unlink(self._folder.purge_file)  # it was never committed

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
                    self.own.begin()
                self.rebuild_locked()
        finally:
            self._lock.release()

    def rebuild_locked(self) -> None:
        self._drop_index()
        self._build_index()
        self._catch_up_lines()
        self._seen = self._fingerprint()
