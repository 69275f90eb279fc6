"""`everlog pipeline stream`: keep the lake up to date with a live log, until it is stopped."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, Output, json_text, pairs, tsv
from everlog.cli.pipeline.group import log_url, spark_options
from everlog.cli.pipeline.lake import lake_option, spark_beside
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.core.query import Cursor
    from everlog.pipeline.stream_run import Commit, Followed


STOPPING = "stopping after this batch: it is committed, and every table brought up to it …"
COLUMNS = ("position", "events", "commits", "events_per_s", "lag_s", "lag_s_max", "views")


@click.command("stream")
@click.option(
    "--refresh",
    type=click.FloatRange(0.1),
    default=5.0,
    show_default=True,
    help="Seconds between updates of the views.",
)
@click.option(
    "--report", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds between reports."
)
@lake_option
@spark_options
@common_options
@pass_session
def stream_command(
    session: Session, refresh: float, report: float, lake: str | None, master: str, conf: dict[str, str]
) -> None:
    """Keep the lake up to date with a live log: events at once, typed tables and views every few seconds.

    Ctrl-C or SIGTERM ends it, which it reports at once: the current batch is committed first, and every table is
    brought up to it. Killed in any other way, it takes nothing twice and misses nothing when it is started again. A
    purge or a restore of the log is applied to every table as soon as it is noticed.

    Columns when piped, one row per report: position, events, commits, events_per_s, lag_s, lag_s_max, views. The lags
    are the median and the greatest time from append to commit, in seconds; views is the position that they have
    reached. With --json, one object per line with the same names.

    \b
    Examples:
      everlog pipeline stream
      everlog pipeline stream --refresh 2 --json
    """
    from everlog.pipeline.session.session import require_libraries

    require_libraries()
    from everlog.application.lake import lake_path, with_settings
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.run import require_types
    from everlog.pipeline.stream_run import Follower
    from everlog.pipeline.tables.gold import gold_of

    log = session.log()
    require_types(log)
    found = Lake.open(lake_path(session.location, lake), log_id=log.identity.log_id, create=True)
    with_settings(found, session.location)
    meter = Meter()
    with (
        spark_beside(session, found, master, conf, app="everlog pipeline stream") as spark,
        _signals(session.out) as stop,
    ):
        follower = Follower(
            spark,
            log,
            log_url(session),
            found,
            gold=gold_of(found, log.views.known(), log.catalog),
            refresh_s=refresh,
            committed=meter.committed,
            refreshed=meter.refreshed,
        )
        if session.out.progress_wanted:
            session.out.note(_following(session.out))
        with _reports(session.out, meter, report):
            done = follower.run(stop)
    _end(session.out, done)


def _following(out: Output) -> str:
    """Return the first note; in a pipe, where rows have no header, it names their columns."""
    rows = "" if out.terminal else f"; one row per report: {', '.join(COLUMNS)}"
    return f"following; Ctrl-C ends it{rows}"


class Meter:
    """Measures what happened since the last report."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._lock = threading.Lock()
        self._now = now
        self._since = now()
        self._lags: list[float] = []
        self._events = 0
        self._position = 0
        self._views = 0

    def committed(self, commit: Commit) -> None:
        with self._lock:
            self._lags.append(commit.lag_s)
            self._events += commit.events
            self._position = commit.position

    def refreshed(self, cursor: Cursor) -> None:
        with self._lock:
            self._views = cursor.position
            self._position = max(self._position, cursor.position)

    def take(self) -> dict[str, Any]:
        """Return the report since the last one."""
        with self._lock:
            lags, self._lags = self._lags, []
            events, self._events = self._events, 0
            now = self._now()
            seconds, self._since = max(now - self._since, 1e-6), now
            return {
                "position": self._position,
                "events": events,
                "commits": len(lags),
                "events_per_s": round(events / seconds, 1),
                "lag_s": round(median(lags), 3) if lags else None,
                "lag_s_max": round(max(lags), 3) if lags else None,
                "views": self._views,
            }


@contextmanager
def _signals(out: Output) -> Iterator[threading.Event]:
    """Yield an event that Ctrl-C and SIGTERM set, instead of ending the program at any point.

    The signal is acknowledged at once: the current batch may take a while.
    """
    stop = threading.Event()

    def handle(number: int, frame: Any) -> None:
        stop.set()

    def acknowledge() -> None:
        stop.wait()
        if not ended and out.progress_wanted:
            out.note(STOPPING)

    ended = False
    # A separate thread: a signal handler may run while a line is being written.
    thread = threading.Thread(target=acknowledge, name="everlog-stream-stopping", daemon=True)
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    thread.start()
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        ended = not stop.is_set()  # by itself, without a signal
        stop.set()
        thread.join()


@contextmanager
def _reports(out: Output, meter: Meter, every_s: float) -> Iterator[None]:
    end = threading.Event()

    def show() -> None:
        while not end.wait(every_s):
            _report(out, meter.take())

    thread = threading.Thread(target=show, name="everlog-stream-reports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _report(out: Output, found: dict[str, Any]) -> None:
    if out.silent:
        return
    if out.json:
        out.json_line(found)
    elif out.agent:
        out.line("ITEM " + pairs(found))
    elif not out.terminal:
        out.line(tsv(found.values()))
    else:
        lag = "" if found["lag_s"] is None else f", {found['lag_s']:.2f} s from append to commit"
        out.line(
            f"at {found['position']:,}, views at {found['views']:,}: {counted(found['events'], 'event')}"
            f" ({found['events_per_s']:,.0f} per second) in {counted(found['commits'], 'commit')}{lag}"
        )
    sys.stdout.flush()


def _end(out: Output, done: Followed) -> None:
    facts = done._asdict()
    if out.json:
        out.line(json_text({"ended": True, **facts}))
        return
    done_here = f"{counted(done.events, 'event')} in {counted(done.commits, 'commit')}"
    resets = f", {counted(done.resets, 'time')} after history changed" if done.resets else ""
    out.answer(
        Answer(
            data=facts,
            facts=facts,
            rows=[],
            lines=[f"ended at {done.position:,}: {done_here}{resets}"],
        )
    )
