"""The views of a log: register them, get one by class or name, and show the status of each.

    log.views.register(Board, mode="async")
    log.view(Board).get("workpackage/WP03").state

Every answer states how old it is: up to which position, and how many positions the log is ahead of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from everlog.core.text import did_you_mean
from everlog.errors import Conflict, NotFound
from everlog.stores.small_state import SmallState, again_if_emptied
from everlog.views.builds.build import active_build, every_name
from everlog.views.builds.content import scan_kept
from everlog.views.builds.overview import Overview, overview
from everlog.views.builds.purge import forget_missed, forget_purged
from everlog.views.builds.rows import DamagedRows
from everlog.views.builtin import BUILT_IN, Fields
from everlog.views.conflicts import Conflicts
from everlog.views.live import LiveView, Mode
from everlog.views.snapshots.snapshots import Snapshots
from everlog.views.view import View, view_of

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.stores.open_write import OpenWrite


class DeriveStage:
    """The stage of a write that folds the new events into the inline views of this process.

    A view that fails here never refuses the write: it catches up after the commit.
    """

    name = "derive"

    def __init__(self) -> None:
        self.views: list[LiveView] = []

    def run(self, write: OpenWrite) -> None:
        for live in self.views:
            live.take_write(write)

    def committed(self) -> None:
        for live in self.views:
            live.write_committed()

    def undone(self) -> None:
        for live in self.views:
            live.write_undone()


class Views:
    """All views of one open log."""

    def __init__(
        self,
        log: Log,
        known: Iterable[View | type[View]] = BUILT_IN,
        *,
        more: Callable[[str], View | type[View] | None] = lambda name: None,
        showing: Callable[[str], View | type[View] | None] = lambda kind: None,
        make_snapshots: Callable[[Log, SmallState], Snapshots] = lambda log, small_state: Snapshots(
            log, small_state, None
        ),
    ) -> None:
        """`known` are the views that this log lists; `more` finds others by name when they are requested, and
        `showing` the view that shows a kind of streams."""
        self._log = log
        self._more = more
        self._showing = showing
        self._known = {view.name: view for view in map(view_of, known)}
        self.small_state: SmallState = log.writer.small_state
        self._live: dict[str, LiveView] = {}
        self._derive = DeriveStage()
        self.snapshots = make_snapshots(log, self.small_state)
        self.snapshots.sweep_quietly()  # a purge may have been killed before it did this

    def register(self, given: View | type[View], *, mode: Mode | str = Mode.ON_DEMAND) -> LiveView:
        """Run a view in this process: on demand, in its own thread, or inside every append."""
        view = view_of(given)
        known = self._live.get(view.name)
        if known is not None:
            raise Conflict(
                f"the view {view.name} is registered twice",
                why="a view runs once in a process",
                hint="use log.view(…) to get it",
                view=view.name,
            )
        live = LiveView(self._log, self.small_state, view, Mode(mode), snapshots=self.snapshots)
        self._live[view.name] = live
        if live.mode is Mode.INLINE and self.small_state.in_log:
            self._derive.views.append(live)
            self._log.writer.add_stage(self._derive)
        return live

    def run(self, name: str, *, mode: Mode | str) -> LiveView:
        """Run a view that is known by name in this process."""
        return self._live.get(name) or self.register(self._named(name), mode=mode)

    def of(self, given: View | type[View] | str) -> LiveView:
        """Return a live view. It runs on demand unless it was registered otherwise."""
        if isinstance(given, str):
            if given in self._live:
                return self._live[given]
            given = self._named(given)
        view = view_of(given)
        found = self._live.get(view.name)
        if found is None:
            return self.register(view)
        if type(found.view) is not type(view) or found.view.version != view.version:
            raise Conflict(
                f"two views have the name {view.name}",
                why=f"{type(found.view).__qualname__} and {type(view).__qualname__}",
                hint="give one of them another name",
                view=view.name,
            )
        return found

    def showing(self, kind: str) -> View | None:
        """Return the view that shows streams of a kind, if a program declares one. Its keys are the streams."""
        found = self._showing(kind)
        return None if found is None else view_of(found)

    def names(self) -> list[str]:
        """Return the views that can run here: those that are known, and those that have run before."""
        kept = (name for name in every_name(self.small_state) if self._code(name) is not None and name != Fields.name)
        return sorted({*self._live, *self._known, *kept})

    def known(self) -> list[View]:
        """Return the code of the views that can run here, in order of their names."""
        return [self._named(name) for name in self.names()]

    def overviews(self) -> list[Overview]:
        """Return the status of every view that can run here or has run. Nothing is run for it."""
        return again_if_emptied(self._overviews)

    def _overviews(self) -> list[Overview]:
        head = self._log.head()
        names = sorted({*self.names(), *every_name(self.small_state)})
        return [overview(self.small_state, name, self._code(name), head) for name in names]

    def damaged_rows(self) -> dict[str, frozenset[str]]:
        """Return the keys whose rows do not match their checksums, by view. Nothing is run or repaired."""
        found = {}
        for name in every_name(self.small_state):
            try:
                build = active_build(self.small_state, name)
                for _ in () if build is None else scan_kept(self.small_state, build):
                    pass
            except DamagedRows as damaged:
                found[name] = damaged.keys
        return found

    def forget_purged(self, stream: str) -> None:
        """Remove a purged stream from everything that views store here."""
        self.snapshots.sweep_quietly()
        forget_purged(self._log, self.small_state, stream, self._code)

    def forget_missed(self) -> None:
        """Do the same for earlier purges for which it failed, also for views whose code is not present."""
        forget_missed(self._log, self.small_state, self._code)

    def close(self) -> None:
        for live in self._live.values():
            live.close()
        self._live.clear()
        self._derive.views.clear()

    def _named(self, name: str) -> View:
        found = self._code(name)
        if found is None:
            raise NotFound(
                f"there is no view {name}",
                why=f"the views here are {', '.join(self.names())}",
                hint=did_you_mean(name, self.names())
                or "everlog views list; to add your own: everlog config set views MODULE:NAME",
                view=name,
            )
        return found

    def _code(self, name: str) -> View | None:
        """Return the view with a name, if its code is present."""
        if name in self._live:
            return self._live[name].view
        if name == Fields.name:  # every stream has it; it is not listed, because storing it would double the log
            return Fields()
        if name in self._known:
            return self._known[name]
        if name == Conflicts.name:  # it is listed once it was asked for: most logs have one origin
            return Conflicts()
        found = self._more(name)
        return None if found is None else view_of(found)


def views_of(log: Log) -> Views:
    """Return the views of a log as the class that they are."""
    views = log.views
    assert isinstance(views, Views), views
    return views


def live_view(log: Log, view: View | type[View] | str) -> LiveView:
    """Return one view of a log as the class that it is."""
    return views_of(log).of(view)
