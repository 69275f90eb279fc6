"""The views of a log, for people: their states, kept up to date, rebuilt on the engine that suits, and audited."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from everlog.core.text import counted
from everlog.errors import NotFound, ReadOnly
from everlog.log.derived import Answer
from everlog.log.log import Log
from everlog.pipeline.engines.choose import LOCAL, SPARK, Choice, choose
from everlog.views.audit import Audit
from everlog.views.builds.overview import DAMAGED, NEVER_RUN, Overview
from everlog.views.live import Mode
from everlog.views.rebuild.blue_green import DIFFERING_SHOWN, Rebuilt
from everlog.views.registry import live_view, views_of

if TYPE_CHECKING:
    from everlog.application.folder.open import AnyLog
    from everlog.pipeline.session.session import SparkSession

Progress = Callable[[int], None]
ProgressOf = Callable[[str], AbstractContextManager[Progress]]
"""Called with the name of a view: it shows how far that one is."""


class ViewPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a view is."""

    columns: ClassVar[tuple[str, ...]] = ("view", "position")

    view: str
    position: int


class States(msgspec.Struct, frozen=True, kw_only=True):
    """The states of a view, by key, and how far it is."""

    view: str
    position: int
    lag: int
    states: dict[str, Any]


class RebuiltOn(msgspec.Struct, frozen=True, kw_only=True):
    """A rebuild, the engine that did it, and the engine that suits a log of this size."""

    done: Rebuilt
    engine: str
    advice: str
    why: str

    @property
    def shows_all_differing(self) -> bool:
        return len(self.done.differing) < DIFFERING_SHOWN


def overviews(log: Log) -> list[Overview]:
    """Return the status of every view. No view is run."""
    return views_of(log).overviews()


def warning_about(one: Overview) -> str:
    """Return a warning about rows of a view that are or were damaged, or ''."""
    if one.state == DAMAGED:
        return f"the stored rows of {one.view} are damaged: everlog views rebuild {one.view}"
    if not one.mended:
        return ""
    return (
        f"{counted(one.mended, 'row')} of {one.view} did not match the checksum since build {one.build} was"
        f" made, and {'was' if one.mended == 1 else 'were'} computed again: everlog views audit {one.view}"
    )


def state_of(log: AnyLog, view: str, key: str, *, stale: bool = False) -> Answer:
    """Return the state of a key. With `stale`, the stored one, without reading new events."""
    with _without_storing(view, key):
        answer = log.view(view).get(key, fresh=not stale)
    if not answer.found:
        raise NotFound(
            f"the view {view} has no state for {key}",
            why="no event of that key was applied",
            hint=f"everlog views get {view}",
            view=view,
            key=key,
        )
    return answer


def age_of(answer: Answer) -> str:
    """Return a warning about a state that is older than the log, or ''."""
    if answer.stopped_at:
        return f"the view {answer.view} is stopped at #{answer.stopped_at}: everlog views dead-letters {answer.view}"
    if answer.parked:
        return f"an event of this key could not be applied: everlog views dead-letters {answer.view}"
    return f"the log is {counted(answer.lag, 'position')} ahead of this answer" if answer.lag else ""


def states_of(log: AnyLog, view: str, *, stale: bool = False, after: str = "", limit: int) -> States:
    """Return the states of a view, in the order of their keys."""
    live = log.view(view)
    with _without_storing(view, "KEY"):
        states = dict(live.items(fresh=not stale, after=after, limit=limit))
    return States(view=view, position=live.position(), lag=live.lag(), states=states)


def bring_up_to_date(log: Log, names: Sequence[str], progress: ProgressOf) -> list[ViewPosition]:
    """Bring views up to the head, after removing rows that a purge could not remove from them."""
    log.views.forget_missed()
    found = []
    for name in names or log.views.names():
        live = log.view(name)
        with progress(name) as show:
            live.catch_up(progress=show)
        found.append(ViewPosition(view=name, position=live.position()))
    return found


def run_in_background(log: Log, names: Sequence[str]) -> list[str]:
    """Keep views up to date until the log is closed, and return their names."""
    log.views.forget_missed()
    chosen = list(names or log.views.names())
    for name in chosen:
        log.views.run(name, mode=Mode.ASYNC)
    return chosen


def audit_views(log: Log, names: Sequence[str], progress: ProgressOf, *, sample: int | None = None) -> list[Audit]:
    """Fold the log again and compare the rows of these views; without names, of every view that has been run."""
    known = set(log.views.names())
    run_here = [one.view for one in overviews(log) if one.state != NEVER_RUN and one.view in known]
    found = []
    for name in names or run_here:
        with progress(name) as show:
            found.append(live_view(log, name).audit(sample=sample, progress=show))
    return found


def rebuild_view(
    log: Log,
    name: str,
    *,
    engine: str,
    store: str,
    here: Callable[[], AbstractContextManager[Progress]],
    spark: Callable[[], AbstractContextManager[tuple[SparkSession, str]]],
    switch: bool = True,
    fresh: bool = False,
) -> RebuiltOn:
    """Rebuild a view in this process or on Spark; the engine `auto` is the one that is probably faster.

    `here` shows the progress of this process. `spark` starts Spark, and returns it with a URL that its workers can
    open.
    """
    live = live_view(log, name)
    advice = choose(log.head(), store=store)
    taken = advice.engine if engine == "auto" else engine
    if taken == SPARK and log.catalog.stand_ins(live.view.types):
        taken = LOCAL  # the workers of Spark have no keys, and would derive stand-ins
        advice = Choice(LOCAL, "the view reads personal fields, and only this process has their keys")
    if taken == SPARK:
        with spark() as (session, url):
            from everlog.pipeline.engines.spark import derive_on

            done = live.rebuild(switch=switch, derive=derive_on(session, url, live.view, log.catalog))
    else:
        with here() as show:
            done = live.rebuild(switch=switch, fresh=fresh, progress=show)
    return RebuiltOn(done=done, engine=taken, advice=advice.engine, why=advice.why)


@contextmanager
def _without_storing(view: str, key: str) -> Iterator[None]:
    """Name the command that computes a state without storing it, for a user without write access."""
    try:
        yield
    except ReadOnly as error:
        hint = f"{error.hint}; this command stores nothing: everlog state {view} {key}"
        raise ReadOnly(error.what, why=error.why, hint=hint, **error.details) from error
