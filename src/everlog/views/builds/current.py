"""The build of a view that answers: it is opened, advanced, replaced when history changed, and repaired.

The active build may change at any time: another process may rebuild the view, empty it after a purge, or remove it.
So every answer is read from one open build, and is read again if that build is not there any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from everlog.errors import EverlogError, ReadOnly
from everlog.log.forgotten import count_forgets
from everlog.stores.small_state import OwnFile, SmallState, StateEmptied
from everlog.views.advance import ENDS, Advance
from everlog.views.builds.build import (
    Build,
    DamagedRecord,
    active_build,
    begin_build,
    builds_of,
    forget_view,
    read_build,
    read_names,
)
from everlog.views.builds.open_build import BATCH, OpenBuild
from everlog.views.builds.rows import DamagedRows, LostRows
from everlog.views.rebuild.blue_green import activate, go_back, rebuild
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.log.log import Log

_TRIES, _ASKED_MAX = 3, 5

_logger = logging.getLogger("everlog")
_Answer = TypeVar("_Answer")


class CurrentBuild:
    """The build of one view that answers in this process."""

    def __init__(
        self, log: Log, small_state: SmallState, view: View, *, seed: Callable[[View], Build | None]
    ) -> None:
        """`seed` may return where a view without states can begin."""
        self.view = view
        self._log = log
        self._small_state = small_state
        self._seed = seed
        # A thread that learns of a commit may find that it has to start over: two would continue one build.
        self._one_rebuild = threading.RLock()
        self._lock = threading.RLock()
        self._opened: OpenBuild | None = None
        self._warned = False  # that the code is not the one that made the states
        self._stop = threading.Event()
        self._moved = threading.Condition()

    def current(self) -> OpenBuild:
        """Return the build that this process advances: the active one if its version is that of this code, otherwise
        one of this code."""
        for _ in range(_TRIES):
            try:
                return self._open_current()
            except DamagedRecord as damaged:
                self._forget(damaged)
            except StateEmptied:
                continue
        return self._open_current()

    def _open_current(self) -> OpenBuild:
        with self._lock:
            names = read_names(self._small_state, self.view.name)
            active = read_build(self._small_state, self.view.name, names.active) if names.active else None
            opened = self._opened
            if active is not None and active.version == self.view.version:
                if opened is None or opened.build.number != active.number:
                    self._warn_of_other_code(active)
                    opened = self._opened = OpenBuild(self._log, self._small_state, self.view, active, live=True)
            elif opened is None or read_build(self._small_state, self.view.name, opened.build.number) is None:
                opened = self._opened = self._of_this_code()
            return opened

    def caught_up(
        self,
        *,
        closely: bool = True,
        upto: int | None = None,
        limit: int = BATCH,
        progress: Callable[[int], None] = lambda position: None,
    ) -> OpenBuild:
        """Return the build that answers, advanced to the head or to a position.

        With `closely=False` the caller reads the record of the build afterwards.
        """
        known = None if closely else self._as_known()
        while True:
            opened, known = known or self.current(), None
            try:
                found = opened.catch_up(upto=upto, stop=self._stop.is_set, limit=limit, progress=progress)
                if found not in ENDS and not opened.live and activate(self._log, self._small_state, opened) is None:
                    found = Advance.GONE
            except DamagedRecord as damaged:
                self._forget(damaged)
                continue
            except StateEmptied:
                continue
            except ReadOnly:
                # This user cannot bring it up to date. What is stored still answers, with its age.
                if not opened.build.complete:
                    raise
                if opened.reload() is Advance.GONE:
                    continue
                return opened
            match found:
                case Advance.REBUILD:
                    self.start_over()
                case Advance.GONE:
                    continue
                case _:
                    with self._moved:
                        self._moved.notify_all()
                    return opened

    def start_over(self) -> None:
        """Follow a change of history: let the build of what is checked out answer, or build it beside."""
        with self._one_rebuild:
            if not go_back(self._log, self._small_state, self.view):
                rebuild(self._log, self._small_state, self.view, fresh=True, stop=self._stop.is_set)
        with self._lock:
            self._opened = None

    def warn_of_other_code(self) -> None:
        """Warn once if the stored states were derived by other code of the same version."""
        active = active_build(self._small_state, self.view.name)
        if active is not None and active.version == self.view.version:
            self._warn_of_other_code(active)

    def _as_known(self) -> OpenBuild | None:
        """Return the open build if it is still the one that answers. The record of the build is not read."""
        opened = self._opened
        if opened is None:
            return None
        try:
            names = read_names(self._small_state, self.view.name)
        except (DamagedRecord, StateEmptied):
            return None
        return opened if names.active == opened.build.number else None

    def _of_this_code(self) -> OpenBuild:
        mine = [build for build in builds_of(self._small_state, self.view.name) if build.version == self.view.version]
        if mine and (mine[-1].complete or mine[-1].is_of(self.view)):
            self._warn_of_other_code(mine[-1])
            return OpenBuild(self._log, self._small_state, self.view, mine[-1], live=mine[-1].complete)
        build = self._seed(self.view)
        if build is None:
            # Not within the change: an append with a view would wait for it.
            standing, forgets = str(self._log.verdicts()), count_forgets(self._log.writer.small_state)
            with self._small_state.change() as change:
                build = begin_build(change, self.view, standing, forgets)
        return OpenBuild(self._log, self._small_state, self.view, build, live=False)

    def _warn_of_other_code(self, build: Build) -> None:
        if not self._warned and not build.is_of(self.view):
            self._warned = True
            _logger.warning(
                "the code of the view %s changed and its version did not: stored states stay as they are, and the new"
                " code continues from them. If it would derive other states: everlog views rebuild %s",
                self.view.name,
                self.view.name,
            )

    # ---- answers and repair

    def _ask(self, fresh: bool, ask: Callable[[OpenBuild], _Answer]) -> _Answer:
        """Return an answer of the build that answers, after damaged rows were folded again.

        Another process may replace the build at any time, and remove the older ones with their rows: an answer from
        a build that is gone afterwards is read again. So is one from a build that was emptied, which a process
        without the view's code does after a purge.
        """
        turns = 0
        asked_before = False
        while turns < _ASKED_MAX:
            # The record of the build is read once, after the answer; and before it, if it was not as expected.
            opened = self.caught_up(closely=asked_before) if fresh else self._ready(fresh)
            asked_before = True
            try:
                with opened.lock:  # a thread that advances the view moves its cursor before that is stored
                    answer = ask(opened)
                    stored = read_build(self._small_state, opened.build.name, opened.build.number)
                    if stored is not None and stored.position >= opened.build.position:
                        return answer
                    opened.reload()
                continue
            except (DamagedRows, DamagedRecord, LostRows, StateEmptied) as damaged:
                problem: EverlogError = damaged
            turns += 1
            try:
                self._heal(opened, problem)
                if turns == _ASKED_MAX // 2 + 1 and isinstance(self._small_state, OwnFile):
                    self._small_state.make_again(problem)  # rows cannot be replaced where the tree of rows is damaged
            except (DamagedRows, LostRows, StateEmptied) as damaged:
                problem = damaged
        raise problem

    def _ready(self, fresh: bool) -> OpenBuild:
        while not fresh:
            opened = self._refreshed(self.current())
            if opened is not None:
                return opened
        return self.caught_up()

    def _refreshed(self, opened: OpenBuild) -> OpenBuild | None:
        """Return an open build as it is stored; None if there is another one by now."""
        try:
            return None if opened.refresh() is Advance.GONE else opened
        except StateEmptied:
            return None
        except DamagedRecord as damaged:
            self._forget(damaged)
            return None

    def _heal(self, opened: OpenBuild, problem: EverlogError) -> None:
        """Fold damaged rows again, or the whole view if rows are lost."""
        try:
            if isinstance(problem, DamagedRows):
                if opened.mend(problem.keys) is Advance.REBUILD:
                    self.start_over()
            elif isinstance(problem, LostRows):
                self._refill(opened, problem)
        except DamagedRecord as damaged:
            self._forget(damaged)

    def _refill(self, opened: OpenBuild, lost: LostRows) -> None:
        """Rebuild a view that has lost rows, unless it was changed while they were counted."""
        current = read_build(self._small_state, opened.build.name, opened.build.number)
        if current is None or current.revision != opened.build.revision:
            opened.reload()
            return
        _logger.warning("%s; the view is rebuilt from the events", lost)
        try:
            self.start_over()
        except ReadOnly as error:
            raise lost from error

    def _forget(self, damaged: DamagedRecord) -> None:
        """Remove everything that is stored for the view, because a record cannot be read: it is derived again."""
        _logger.warning("%s; everything stored for the view is derived again from the events", damaged)
        with self._lock:
            try:
                forget_view(self._small_state, self.view.name)
            except ReadOnly as error:
                raise damaged from error
            self._opened = None
