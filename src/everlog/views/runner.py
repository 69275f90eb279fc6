"""Running one view: which build answers, keeping it up to date, and waiting for it.

on demand   whoever asks brings it up to date first
async       a thread follows the log
inline      it is kept in the transaction of the append itself, where the store allows that; elsewhere right after
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from everlog.core.event import Position
from everlog.errors import EverlogError, LogClosed, ReadOnly, ViewBehind, ViewStopped
from everlog.log.subscribers import POLL_S
from everlog.stores.shelf import Shelf, ShelfEmptied
from everlog.views.builder import BATCH, Builder, Gone, NeedsRebuild
from everlog.views.checksums import DamagedRecord, DamagedRows, LostRows
from everlog.views.fingerprint import code_fingerprint
from everlog.views.rebuild import Rebuilt, activate, go_back, rebuild
from everlog.views.restoring import put
from everlog.views.states import (
    Build,
    active_build,
    begin_build,
    build_digest,
    builds_of,
    drop_build,
    forget_view,
    read_build,
    read_names,
)
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.stores.staging import Staged
    from everlog.views.snapshot_folder import Entry
    from everlog.views.snapshots import Snapshots

_RETRY_S = 1.0
_TRIES = 3

_logger = logging.getLogger("everlog")


class Mode(StrEnum):
    ON_DEMAND = "on-demand"
    ASYNC = "async"
    INLINE = "inline"


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restore did."""

    view: str
    snapshot: str
    covered: Position  # up to where the snapshot was
    position: Position  # up to where the view is now
    keys: int
    digest: str


class Runner:
    def __init__(
        self,
        log: Log,
        shelf: Shelf,
        view: View,
        mode: Mode = Mode.ON_DEMAND,
        *,
        seed: Callable[[View], Build | None] = lambda view: None,
        followed: Callable[[Runner, Position], object] = lambda runner, position: None,
    ) -> None:
        """`seed` may know where a view without states can begin; `followed` is told how far a thread has got."""
        self.view = view
        self.mode = mode
        code_fingerprint(view)  # reads the source now, as near to its import as can be
        self._log = log
        self._shelf = shelf
        self._seed = seed
        self._followed = followed
        # A thread that is told of a commit may find that it has to start over: two would go on with one build.
        self._one_rebuild = threading.RLock()
        self._lock = threading.RLock()
        self._builder: Builder | None = None
        self._took_part: Builder | None = None  # in the write that is going on, or was the last
        self._told = False  # that the code is another one
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._thread: threading.Thread | None = None
        if mode is Mode.INLINE:
            self.catch_up()
            log.waiters.call_on_commit(self._after_commit)
        elif mode is Mode.ASYNC:
            self._thread = threading.Thread(target=self._follow, name=f"everlog-view-{view.name}", daemon=True)
            self._thread.start()

    # ---- moving on

    def builder(self) -> Builder:
        """The build that this runner keeps: the active one if it is of this code, else one of this code."""
        for _ in range(_TRIES):
            try:
                return self._current()
            except DamagedRecord as damaged:
                self._forget(damaged)
            except ShelfEmptied:
                continue
        return self._current()

    def _current(self) -> Builder:
        with self._lock:
            names = read_names(self._shelf, self.view.name)
            active = read_build(self._shelf, self.view.name, names.active) if names.active else None
            current = self._builder
            if active is not None and active.version == self.view.version:
                if current is None or current.build.number != active.number:
                    self._tell_of_other_code(active)
                    current = self._builder = Builder(self._log, self._shelf, self.view, active, live=True)
            elif current is None or read_build(self._shelf, self.view.name, current.build.number) is None:
                current = self._builder = self._of_this_code()
            return current

    def _as_known(self) -> Builder | None:
        """The builder of before if its build is still the one that answers. The build itself is not looked at."""
        current = self._builder
        if current is None:
            return None
        try:
            names = read_names(self._shelf, self.view.name)
        except (DamagedRecord, ShelfEmptied):
            return None
        return current if names.active == current.build.number else None

    def catch_up(
        self,
        *,
        closely: bool = True,
        upto: int | None = None,
        limit: int = BATCH,
        progress: Callable[[int], None] = lambda position: None,
    ) -> Builder:
        """Bring the view to the head, or to a position, and let it answer.

        Not `closely`: the caller looks at the record of the build afterwards.
        """
        known = None if closely else self._as_known()
        while True:
            builder, known = known or self.builder(), None
            try:
                builder.catch_up(upto=upto, stop=self._stop.is_set, limit=limit, progress=progress)
                if not builder.live:
                    builder.live = True
                    activate(self._log, self._shelf, builder)
            except NeedsRebuild:
                self._start_over()
            except DamagedRecord as damaged:
                self._forget(damaged)
            except (Gone, ShelfEmptied):
                continue
            except ReadOnly:
                # It cannot be brought up to date by this user. What is kept still answers, and says how old it is.
                if not builder.build.complete:
                    raise
                builder.reload()
                return builder
            else:
                with self._moved:
                    self._moved.notify_all()
                return builder

    def heal(self, builder: Builder, problem: EverlogError) -> None:
        """Fold rows again that are damaged, or the whole view if rows are lost."""
        try:
            if isinstance(problem, DamagedRows):
                builder.mend(problem.keys)
            elif isinstance(problem, LostRows):
                self._refill(builder, problem)
        except NeedsRebuild:
            self._start_over()
        except DamagedRecord as damaged:
            self._forget(damaged)
        except Gone:
            pass  # there is another build by now

    def _refill(self, builder: Builder, lost: LostRows) -> None:
        """Derive a view again that has lost rows, unless it was changed while they were counted."""
        current = read_build(self._shelf, builder.build.name, builder.build.number)
        if current is None or current.revision != builder.build.revision:
            builder.reload()
            return
        _logger.warning("%s; the view is derived again from the events", lost)
        try:
            self._start_over()
        except ReadOnly as error:
            raise lost from error

    def rebuild(self, **options: object) -> Rebuilt:
        try:
            return self._rebuild(**options)
        except DamagedRecord as damaged:
            self._forget(damaged)
            return self._rebuild(**options)

    def _rebuild(self, **options: object) -> Rebuilt:
        with self._one_rebuild:
            return rebuild(
                self._log,
                self._shelf,
                self.view,
                stop=self._stop.is_set,
                catch_up_old=lambda position: self._catch_up_quietly(position),
                **options,  # type: ignore[arg-type]
            )

    def restore(self, snapshots: Snapshots, entry: Entry | None = None) -> Restored:
        """Let a snapshot and what came after it answer: the one that is given, or the newest that can be used."""
        loaded = snapshots.to_restore(self.view, entry)
        with self._shelf.change() as change:
            build = put(change, self.view, loaded.header, loaded.body)
        builder = Builder(self._log, self._shelf, self.view, build, live=False)
        try:
            builder.catch_up(stop=self._stop.is_set)
        except NeedsRebuild:
            with self._shelf.change() as change:
                drop_build(change, build)
            raise
        activate(self._log, self._shelf, builder)
        with self._lock:
            self._builder = None
        return Restored(
            view=self.view.name,
            snapshot=loaded.header.id,
            covered=loaded.header.position,
            position=builder.cursor.position,
            keys=self._shelf.count(builder.build.rows),
            digest=build_digest(self._shelf, builder.build),
        )

    def in_write(self, staged: Staged) -> None:
        """Keep the view in the log's own write. Whatever goes wrong here is mended after the commit."""
        self._took_part = builder = self._builder
        if builder is None or not staged.records:
            return
        try:
            builder.in_write(staged, Position(staged.records[0][0].position - 1))
        except Exception:  # an append is never refused because of a view
            _logger.exception("the view %s could not be kept within an append", self.view.name)

    def written(self) -> None:
        """The write that the view may have been kept in is on the disk."""
        if self._took_part is not None:
            self._took_part.written()

    def undone(self) -> None:
        """That write failed."""
        if self._took_part is not None:
            self._took_part.undone()

    def tell_of_other_code(self) -> None:
        """Warn, once, if what is kept was derived by other code of the same version."""
        active = active_build(self._shelf, self.view.name)
        if active is not None and active.version == self.view.version:
            self._tell_of_other_code(active)

    # ---- waiting

    def wait_for(self, position: int, timeout_s: float) -> Position:
        """Until the view has seen a position; ViewBehind when the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            builder = self.builder() if self.mode is Mode.ASYNC else self.catch_up()
            if builder.cursor.position >= position and self.mode is Mode.ASYNC:
                try:
                    builder.settle()  # another process may have emptied the build, and its thread does not know yet
                except (Gone, ShelfEmptied):
                    continue
                except DamagedRecord as damaged:
                    self._forget(damaged)
                    continue
            reached = builder.cursor.position
            if reached >= position:
                return reached
            if builder.stopped_at and builder.stopped_at <= position:
                raise stopped(self.view.name, builder.stopped_at)
            left = deadline - time.monotonic()
            if left <= 0:
                raise ViewBehind(
                    f"the view {self.view.name} is at position {reached}, not yet at {position}",
                    why=f"it did not get there within {timeout_s:g} s",
                    hint="wait longer, or take the answer as old as it says it is",
                    view=self.view.name,
                    position=reached,
                    wanted=position,
                )
            with self._moved:
                self._moved.wait(min(left, POLL_S))

    def close(self) -> None:
        self._stop.set()
        self._log.waiters.call_no_more(self._after_commit)
        if self._thread is not None:
            self._thread.join()
        if self._builder is not None:
            try:
                self._builder.save()
            except (EverlogError, Gone) as error:  # the next run goes on from an earlier cursor
                _logger.debug("the cursor of the view %s was not kept: %s", self.view.name, error)

    # ---- inside

    def _follow(self) -> None:
        waiters = self._log.waiters
        while not self._stop.is_set() and not waiters.closed:
            commits = waiters.commits
            try:
                builder = self.catch_up()
                self._followed(self, builder.cursor.position)
                while (
                    not self._stop.is_set()
                    and not waiters.closed
                    and (builder.stopped_at or self._log.head() <= builder.cursor.position)
                    and self.builder() is builder
                ):
                    waiters.wait(commits, POLL_S)
                    commits = waiters.commits
                    self._followed(self, builder.cursor.position)
                    if builder.stopped_at:
                        break
            except LogClosed:
                return
            except Exception as error:  # a full disk, a busy database: it must not end for good because of one
                _logger.warning("the view %s waits: %s", self.view.name, error)
                self._stop.wait(_RETRY_S)

    def _after_commit(self) -> None:
        builder = self._builder
        if builder is not None:
            builder.tell()
        if builder is None or builder.unsettled or builder.cursor.position < self._log.head():
            self._catch_up_quietly(None)

    def _catch_up_quietly(self, position: int | None) -> None:
        try:
            self.catch_up(upto=position)
        except EverlogError as error:  # the commit stands; whoever asks for the view is told
            _logger.warning("the view %s is behind: %s", self.view.name, error)

    def _forget(self, damaged: DamagedRecord) -> None:
        """Remove all that the view keeps, because a record of it cannot be read: it is derived again."""
        _logger.warning("%s; all that the view keeps is derived again from the events", damaged)
        with self._lock:
            try:
                forget_view(self._shelf, self.view.name)
            except ReadOnly as error:
                raise damaged from error
            self._builder = None

    def _start_over(self) -> None:
        """History changed: let the build of what is checked out answer, or build it beside."""
        with self._one_rebuild:
            if not go_back(self._log, self._shelf, self.view):
                rebuild(self._log, self._shelf, self.view, fresh=True, stop=self._stop.is_set)
        with self._lock:
            self._builder = None

    def _of_this_code(self) -> Builder:
        mine = [build for build in builds_of(self._shelf, self.view.name) if build.version == self.view.version]
        if mine and (mine[-1].complete or mine[-1].is_of(self.view)):
            self._tell_of_other_code(mine[-1])
            return Builder(self._log, self._shelf, self.view, mine[-1], live=mine[-1].complete)
        build = self._seed(self.view)
        if build is None:
            with self._shelf.change() as change:
                build = begin_build(change, self.view)
        return Builder(self._log, self._shelf, self.view, build, live=False)

    def _tell_of_other_code(self, build: Build) -> None:
        if not self._told and not build.is_of(self.view):
            self._told = True
            _logger.warning(
                "the code of the view %s changed and its version did not: what it derived before stays as it was, and"
                " the new code goes on from there. If it would say something else: everlog views rebuild %s",
                self.view.name,
                self.view.name,
            )


def stopped(name: str, position: int) -> ViewStopped:
    return ViewStopped(
        f"the view {name} is stopped at position {position}",
        why="it cannot tell what that event belongs to",
        hint=f"everlog views dead-letters {name}, then retry or skip",
        view=name,
        position=position,
    )
