"""A live view: a view that runs in this process. It opens the build that answers, keeps it up to date, and answers.

on demand   a caller that asks brings it up to date first
async       a thread follows the log
inline      it is updated in the transaction of the append itself where the store allows that, elsewhere right after
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from everlog.core.event import Position, Recorded
from everlog.core.text import words
from everlog.errors import EverlogError, LogClosed, NotFound, ViewStopped
from everlog.log.dead_letters import FAILED, SKIPPED, STOPPED
from everlog.log.derived import Answer, view_behind
from everlog.log.read.follow import POLL_S
from everlog.stores.small_state import SmallState, again_if_emptied
from everlog.views.advance import Advance
from everlog.views.as_of import Cut, Moment, Was, cut
from everlog.views.audit import Audit, audit
from everlog.views.builds.answers import answer, answer_now, count_of, page_of, states_of
from everlog.views.builds.build import Build, DamagedRecord, active_build
from everlog.views.builds.content import build_digest, dead_letters_of, require_all
from everlog.views.builds.current import CurrentBuild
from everlog.views.builds.fingerprint import code_fingerprint
from everlog.views.builds.open_build import BATCH, OpenBuild
from everlog.views.builds.rows import parsed_kept, parsed_state
from everlog.views.dead_letters import ViewLetter
from everlog.views.rebuild.blue_green import Rebuilt, rebuild, roll_back
from everlog.views.rebuild.elsewhere import Derive
from everlog.views.snapshots.folder import SnapshotEntry
from everlog.views.snapshots.restore import Restored, restore, was_at
from everlog.views.snapshots.snapshots import Snapshots
from everlog.views.view import State, View

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.stores.open_write import OpenWrite

WAIT_S = 5.0
_PAGE_ROWS, _PAGE_ROWS_MAX = 1000, 16_000  # growing: most callers want a few rows, and some want all of them
_WORDS_MAX = 256  # of a title that others are compared with; SQLite takes no more than 500 at once
_RETRY_S = 1.0

_logger = logging.getLogger("everlog")


class Mode(StrEnum):
    ON_DEMAND = "on-demand"
    ASYNC = "async"
    INLINE = "inline"


class LiveView(CurrentBuild):
    """One view of a log, running in this process."""

    def __init__(
        self,
        log: Log,
        small_state: SmallState,
        view: View,
        mode: Mode = Mode.ON_DEMAND,
        *,
        snapshots: Snapshots | None = None,
    ) -> None:
        """`snapshots` is where a view without states may begin, and what a thread makes on its way."""
        code_fingerprint(view)  # reads the source now, as near to its import as possible
        self._snapshots = snapshots or Snapshots(log, small_state, None)
        super().__init__(log, small_state, view, seed=self._snapshots.seed)
        self.mode = mode
        self._in_last_write: OpenBuild | None = None  # the build that took part in the last write of the log
        self._thread: threading.Thread | None = None
        if mode is Mode.INLINE:
            self.catch_up()
            log.writer.waiters.watch(self._after_commit)
        elif mode is Mode.ASYNC:
            self._thread = threading.Thread(target=self._follow, name=f"everlog-view-{view.name}", daemon=True)
            self._thread.start()

    # ---- asking

    def get(self, key: str, *, fresh: bool = True, as_of: Moment | None = None) -> Answer:
        """Return the state of a key.

        With `fresh=False` it is the state that was stored last, without reading the log first. With `as_of` it is
        the state at an earlier moment.
        """
        if as_of is not None:
            at = cut(self._log, as_of, stream=key if self.view.by_stream else "")
            was = self.was_at(key, at)
            row, parked, stopped_at = was.rows.get(key), key in was.parked, was.stopped_at
            return answer(self._log, self.view, key, row, at.upto, parked=parked, stopped_at=stopped_at)
        return self._ask(fresh, lambda opened: answer_now(self._log, self._small_state, opened, key))

    def get_many(self, keys: Collection[str], *, fresh: bool = True) -> dict[str, State]:
        """Return the states of those of the keys that have one."""
        rows = self._ask(fresh, lambda opened: opened.rows(keys))
        return {key: row.state for key, row in rows.items()}

    def items(self, *, fresh: bool = True, after: str = "", limit: int | None = None) -> Iterator[tuple[str, State]]:
        """Yield keys and states, in order of the keys."""
        page, whole, count = _PAGE_ROWS, not after, 0
        begun: Build | None = None
        while limit is None or limit > 0:
            size = page if limit is None else min(limit, page)
            # Page by page, because a caller may be slow, and the view cannot move while a page is read.
            rows, build = self._ask(fresh, lambda opened: page_of(opened, after, size))  # noqa: B023
            fresh = False
            begun, count = begun or build, count + len(rows)
            for key, data in rows:
                yield key, parsed_state(parsed_kept(data).state)
            if len(rows) < size:
                if whole and begun == build:
                    require_all(build, count)
                return
            after, page = rows[-1][0], min(2 * page, _PAGE_ROWS_MAX)
            limit = None if limit is None else limit - size

    def search(self, text: str, *, within: str = "", limit: int = 50, fresh: bool = True) -> list[tuple[str, State]]:
        """Return the rows whose text contains every word of `text`, the greatest key first; see `View.text`."""
        asked, small_state = words(text), self._small_state
        return self._ask(
            fresh, lambda one: states_of(one, small_state.holding(one.build.rows, asked, within=within, limit=limit))
        )

    def alike(
        self, title: str, *, part: str = "", least: float = 0.5, limit: int = 50, fresh: bool = True
    ) -> list[tuple[str, State]]:
        """Return the rows of a part whose title has at least this share of words in common with `title`, by Jaccard's
        measure, the most similar first."""
        asked, small_state = words(title)[:_WORDS_MAX], self._small_state
        return self._ask(
            fresh,
            lambda one: states_of(one, small_state.alike(one.build.rows, asked, part=part, least=least, limit=limit)),
        )

    def count(self, *, fresh: bool = True) -> int:
        return self._ask(fresh, lambda opened: count_of(self._small_state, opened.build))

    def digest(self, *, fresh: bool = True) -> str:
        """Return one hash over all states. It is equal wherever the same states were derived."""
        return self._ask(fresh, lambda opened: build_digest(self._small_state, opened.build))

    def position(self, *, fresh: bool = False) -> Position:
        """Return the position up to which the view has applied the log."""
        return self._ready(fresh).cursor.position

    def lag(self) -> int:
        """Return how many positions the log is ahead of the view."""
        return max(0, self._log.head() - self.position())

    def build(self) -> Build | None:
        return active_build(self._small_state, self.view.name)

    def was_at(self, key: str, at: Cut) -> Was:
        """Return the row of one key, as of a moment."""
        return was_at(self._snapshots, self.view, key, at, skipped=self.skipped())

    def skipped(self) -> set[int]:
        """Return the positions that the view leaves out because somebody decided so."""

        def found() -> list[ViewLetter]:
            build = self.build()
            return [] if build is None else dead_letters_of(self._small_state, build)

        letters = again_if_emptied(found)
        return {letter.position for letter in letters if letter.what == SKIPPED}

    # ---- keeping it up to date

    def catch_up(
        self,
        *,
        upto: int | None = None,
        limit: int = BATCH,
        progress: Callable[[int], None] = lambda position: None,
    ) -> Position:
        """Bring the view to the head, or to a position, and return where it is."""
        return self.caught_up(upto=upto, limit=limit, progress=progress).cursor.position

    def wait_for(self, position: int | Recorded, timeout_s: float = WAIT_S) -> Position:
        """Wait until the view has applied a position; ViewBehind when the time is over."""
        wanted = position.position if isinstance(position, Recorded) else position
        deadline = time.monotonic() + timeout_s
        while True:
            opened = self.current() if self.mode is Mode.ASYNC else self.caught_up()
            there = self.mode is Mode.ASYNC and opened.cursor.position >= wanted
            if there and self._refreshed(opened) is None:  # another process may have emptied the build meanwhile
                continue
            reached = opened.cursor.position
            if reached >= wanted and opened.live:  # a first build is not stored as the one that answers until then
                return reached
            if opened.stopped_at and opened.stopped_at <= wanted:
                raise _stopped(self.view.name, opened.stopped_at)
            left = deadline - time.monotonic()
            if left <= 0:
                raise view_behind(self.view.name, reached=reached, wanted=wanted, timeout_s=timeout_s)
            with self._moved:
                self._moved.wait(min(left, POLL_S))

    def rebuild(
        self,
        *,
        switch: bool = True,
        fresh: bool = False,
        progress: Callable[[int], None] = lambda position: None,
        limit: int = BATCH,
        derive: Derive | None = None,
    ) -> Rebuilt:
        """Rebuild everything beside the build that answers now, compare, and switch over.

        `derive` does it elsewhere up to a position, such as on Spark (`everlog.pipeline.handover`).
        """

        def attempt() -> Rebuilt:
            with self._one_rebuild:
                return rebuild(
                    self._log,
                    self._small_state,
                    self.view,
                    switch=switch,
                    fresh=fresh,
                    stop=self._stop.is_set,
                    progress=progress,
                    catch_up_old=self._catch_up_quietly,
                    limit=limit,
                    derive=derive,
                )

        try:
            return again_if_emptied(attempt)
        except DamagedRecord as damaged:
            self._forget(damaged)
            return again_if_emptied(attempt)

    def rollback(self) -> Build:
        """Let the build before the last rebuild answer again."""
        return roll_back(self._small_state, self.view.name)

    def audit(self, *, sample: int | None = None, progress: Callable[[int], None] = lambda position: None) -> Audit:
        """Compare what the view has applied with the log, fold the log again, and compare the states.

        `sample` is the number of keys to fold again, chosen at random; by default all of them are.
        """
        while True:
            opened = self.current()
            with opened.lock:
                if opened.save() is not Advance.GONE:
                    build = opened.build
                    break
        return audit(self._log, self._small_state, self.view, build, sample=sample, progress=progress)

    def snapshot(self, *, full: bool = False) -> SnapshotEntry:
        """Save all states as they are now to a file: a full one, or a patch on the last full one."""
        return self._snapshots.create(self, full=full)

    def restore(self, entry: SnapshotEntry | None = None) -> Restored:
        """Let a snapshot and the events after it answer, in place of the stored states."""
        restored = restore(self._snapshots, self.view, entry, stop=self._stop.is_set)
        with self._lock:
            self._opened = None
        return restored

    # ---- dead letters

    def dead_letters(self) -> list[ViewLetter]:
        return self.current().dead_letters()

    def retry(self) -> list[ViewLetter]:
        """Try all waiting events once more, and return those that still cannot be applied."""
        return self._retry({})

    def skip(self, position: int, *, reason: str, actor: str = "") -> list[ViewLetter]:
        """Leave an event out, with the reason on record, and continue after it."""
        known = {letter.position: letter for letter in self.dead_letters()}
        if position not in known or known[position].what == SKIPPED:
            raise NotFound(
                f"the view {self.view.name} has no dead letter at position {position}",
                why="only an event that could not be applied can be skipped",
                hint=f"everlog views dead-letters {self.view.name}",
                view=self.view.name,
                position=position,
            )
        return self._retry({position: (actor or self._log.actor, reason)})

    def _retry(self, skip: dict[int, tuple[str, str]]) -> list[ViewLetter]:
        while self.current().retry(skip=skip) is not Advance.MORE:
            continue  # another process changed or replaced the build meanwhile
        self.catch_up()
        return [letter for letter in self.dead_letters() if letter.what in (FAILED, STOPPED)]

    # ---- inside a write of the log

    def take_write(self, write: OpenWrite) -> None:
        """Update the view in the log's own write. Anything that goes wrong here is repaired after the commit."""
        self._in_last_write = opened = self._opened
        if opened is None or not write.records:
            return
        try:
            opened.take_write(write, Position(write.records[0][0].position - 1))
        except Exception:  # an append is never refused because of a view
            _logger.exception("the view %s could not be updated inside an append", self.view.name)

    def write_committed(self) -> None:
        if self._in_last_write is not None:
            self._in_last_write.write_committed()

    def write_undone(self) -> None:
        if self._in_last_write is not None:
            self._in_last_write.write_undone()

    def close(self) -> None:
        self._stop.set()
        self._log.writer.waiters.unwatch(self._after_commit)
        if self._thread is not None:
            self._thread.join()
        if self._opened is not None:
            try:
                self._opened.save()
            except EverlogError as error:  # the next run continues from an earlier cursor
                _logger.debug("the cursor of the view %s was not stored: %s", self.view.name, error)

    # ---- following the log

    def _follow(self) -> None:
        waiters = self._log.writer.waiters
        while not self._stop.is_set() and not waiters.closed:
            commits = waiters.commits
            try:
                opened = self.caught_up()
                self._snapshots.create_if_due(self, opened.cursor.position)
                while (
                    not self._stop.is_set()
                    and not waiters.closed
                    and (opened.stopped_at or self._log.head() <= opened.cursor.position)
                    and self.current() is opened
                ):
                    waiters.wait(commits, POLL_S)
                    commits = waiters.commits
                    self._snapshots.create_if_due(self, opened.cursor.position)
                    if opened.stopped_at:
                        break
            except LogClosed:
                return
            except Exception as error:  # a full disk, a busy database: one of them must not end it for good
                _logger.warning("the view %s waits: %s", self.view.name, error)
                self._stop.wait(_RETRY_S)

    def _after_commit(self) -> None:
        opened = self._opened
        if opened is not None:
            opened.publish_changes()
        if opened is None or opened.holds_failed_write or opened.cursor.position < self._log.head():
            self._catch_up_quietly(None)

    def _catch_up_quietly(self, position: int | None) -> None:
        try:
            self.catch_up(upto=position)
        except EverlogError as error:  # the commit is not affected; a caller that asks the view gets the error
            _logger.warning("the view %s is behind: %s", self.view.name, error)


def _stopped(name: str, position: int) -> ViewStopped:
    return ViewStopped(
        f"the view {name} is stopped at position {position}",
        why="the key of that event cannot be determined",
        hint=f"everlog views dead-letters {name}, then retry or skip",
        view=name,
        position=position,
    )
