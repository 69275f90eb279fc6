"""`view.list`, `view.get`, `view.rows`, `view.lag`, `view.audit`, `view.rebuild`: what is derived from the log.

For a caller with a limit, rows are folded from its own events.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.application.events.time_travel import was_then
from everlog.application.operations.fields import AsOf, Limit, Names, ViewName, moment_of
from everlog.application.views.states import audit_views, overviews
from everlog.errors import NotFound, ViewBehind
from everlog.log.log import Log
from everlog.programs.command import Action, By, Done, Question
from everlog.programs.policy import Policy
from everlog.views.as_of import Cut, cut, states_at
from everlog.views.audit import Audit
from everlog.views.builds.overview import Overview
from everlog.views.live import LiveView
from everlog.views.rebuild.blue_green import Rebuilt
from everlog.views.registry import live_view

TIMEOUT_S_MAX = 30.0
_PROBLEMS = ("not_found", "view_behind", "view_stopped", "other_code", "damaged", "schema_broken", "read_only")

AtLeast = Annotated[
    int,
    Meta(
        description="Wait until the view has applied this position (read your writes). After the timeout the stored"
        " state is the answer, and `stale` is true.",
        ge=0,
        le=2**53,
    ),
]
Timeout = Annotated[float, Meta(description="How many seconds to wait for `at_least`.", ge=0, le=TIMEOUT_S_MAX)]


class ViewAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a key, and how old it is: `lag` positions of the log were not applied yet."""

    view: str
    key: str
    state: Any
    position: int
    lag: int
    stale: bool  # it does not have the position that was asked for
    parked: bool  # an event of this key could not be applied, and the later ones wait behind it
    stopped_at: int  # the view as a whole goes no further than this event


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one key."""

    key: str
    state: Any


class RowsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Some states of a view, in order of their keys. `next` is the key to continue after; empty at the end."""

    view: str
    position: int
    lag: int
    stale: bool
    rows: list[Row]
    next: str


class List(Question[list[Overview]], frozen=True, kw_only=True):
    """Return the status of every view. No view is run for it."""

    verb = "list"
    columns = ("view", "state", "position", "lag", "keys")
    policy = Policy(role="read", scope="log")

    def answer(self, log: Log, within: str) -> list[Overview]:
        return overviews(log)


class Lag(Question[Overview], frozen=True, kw_only=True):
    """Return the status of one view: how far it is, and what holds it up. It is not run for it."""

    verb = "lag"
    policy = Policy(role="read", scope="log")
    problems = ("damaged",)
    example: ClassVar[dict[str, Any]] = {"view": "streams"}

    view: ViewName

    def answer(self, log: Log, within: str) -> Overview:
        live_view(log, self.view)  # a mistyped name gets the names that exist
        return next(one for one in overviews(log) if one.view == self.view)


class Get(Question[ViewAnswer], frozen=True, kw_only=True):
    """Return the state of one key of a view, now or as it was."""

    verb = "get"
    waits = True
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"view": "streams", "key": "note/1"}

    view: ViewName
    key: Annotated[str, Meta(description="The key.", min_length=1, max_length=1000)]
    as_of: AsOf = ""
    at_least: AtLeast = 0
    timeout: Timeout = 5.0

    def answer(self, log: Log, within: str) -> ViewAnswer:
        live = live_view(log, self.view)
        if within or self.as_of:
            stream = self.key if live.view.by_stream else ""
            at = cut(log, moment_of(self.as_of), stream=stream, within=within)
            was = was_then(log, live.view, self.key, at)
            row = was.rows.get(self.key)
            return self._found(
                None if row is None else row.state,
                at.upto,
                lag=cut(log, None, within=within).upto - at.upto,
                parked=self.key in was.parked,
                stopped_at=was.stopped_at,
            )
        stale = not _waited(live, self.at_least, self.timeout)
        answer = live.get(self.key, fresh=not stale)
        return self._found(
            answer.state,
            answer.position,
            lag=answer.lag,
            parked=answer.parked,
            stopped_at=answer.stopped_at,
        )

    def _found(self, state: Any, position: int, *, lag: int, parked: bool, stopped_at: int) -> ViewAnswer:
        if state is None:
            raise NotFound(
                f"the view {self.view} has no state for {self.key}",
                why="no event of that key was applied",
                hint=f"everlog views get {self.view}",
                view=self.view,
                key=self.key,
            )
        return ViewAnswer(
            view=self.view,
            key=self.key,
            state=state,
            position=position,
            lag=max(0, lag),
            stale=not self.as_of and position < self.at_least,
            parked=parked,
            stopped_at=stopped_at,
        )


class Rows(Question[RowsAnswer], frozen=True, kw_only=True):
    """Return states of a view, page by page in order of their keys."""

    verb = "rows"
    waits = True
    problems = _PROBLEMS
    example: ClassVar[dict[str, Any]] = {"view": "streams", "limit": 10}

    view: ViewName
    after: Annotated[str, Meta(description="Continue after this key.", max_length=1000)] = ""
    limit: Limit = 100
    as_of: AsOf = ""
    at_least: AtLeast = 0
    timeout: Timeout = 5.0

    def answer(self, log: Log, within: str) -> RowsAnswer:
        live = live_view(log, self.view)
        wanted = self.limit + 1  # one more shows whether there is a next page
        if within or self.as_of:
            at = cut(log, moment_of(self.as_of), within=within)
            rows = _rows_then(log, live, at, after=self.after)[:wanted]
            position, lag = int(at.upto), cut(log, None, within=within).upto - at.upto
        else:
            fresh = _waited(live, self.at_least, self.timeout)
            rows = list(live.items(fresh=fresh, after=self.after, limit=wanted))
            position, lag = live.position(), live.lag()
        some = rows[: self.limit]
        return RowsAnswer(
            view=self.view,
            position=position,
            lag=max(0, lag),
            stale=not self.as_of and position < self.at_least,
            rows=[Row(key=key, state=state) for key, state in some],
            next=some[-1][0] if len(rows) > self.limit else "",
        )


def _rows_then(log: Log, live: LiveView, at: Cut, *, after: str) -> list[tuple[str, Any]]:
    states = states_at(log, live.view, at, skipped=live.skipped()).states()
    return sorted((key, state) for key, state in states.items() if key > after)


def _waited(live: LiveView, at_least: int, timeout_s: float) -> bool:
    """Wait for a position; return whether the view has it."""
    if not at_least:
        return True
    try:
        live.wait_for(at_least, timeout_s)
    except ViewBehind:
        return False
    return True


class AuditViews(Action[list[Audit]], frozen=True, kw_only=True):
    """Compare what views have applied with the log, fold the log again, and compare the states: finds every gap."""

    verb = "audit"
    policy = Policy(role="read", scope="log")
    long = True
    problems = ("not_found", "damaged")
    example: ClassVar[dict[str, Any]] = {"views": ["streams"]}

    views: Names = ()
    sample: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="How many keys to fold again; by default all.")
    ] = None

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[list[Audit]]:
        def show(name: str) -> AbstractContextManager[Callable[[int], None]]:
            return nullcontext(progress)

        return Done(audit_views(log, self.views, show, sample=self.sample))


class Rebuild(Action[Rebuilt], frozen=True, kw_only=True):
    """Rebuild a view beside the one that answers now, compare them, and switch over."""

    verb = "rebuild"
    policy = Policy(role="admin", scope="log")
    long = True
    problems = ("not_found", "damaged", "conflict", "read_only", "view_stopped")
    example: ClassVar[dict[str, Any]] = {"view": "streams"}

    view: ViewName
    switch: Annotated[bool, Meta(description="Let the new build answer from then on.")] = True

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[Rebuilt]:
        return Done(live_view(log, self.view).rebuild(switch=self.switch, progress=progress))
