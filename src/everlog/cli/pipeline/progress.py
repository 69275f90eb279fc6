"""The progress of a Spark job: a bar on a terminal, a line every ten seconds elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from everlog.cli.output import Output
from everlog.cli.pipeline.group import log_url, spark_of
from everlog.cli.progress import BAR_AFTER_S, LINE_EVERY_S
from everlog.cli.session import Session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.pipeline.session.progress import OnStep, Status, Step
    from everlog.pipeline.session.session import SparkSession


@contextmanager
def spark_progress(out: Output, spark: SparkSession, what: str, *, rows: int = 0) -> Iterator[OnStep]:
    """Show the progress of the jobs that run inside; `rows` is how many they will read, if that is known.

    Yields a function to call at each step, which a terminal shows.
    """
    if not out.progress_wanted:
        yield lambda step: None
        return
    from everlog.pipeline.session.progress import watched

    shown = _Shown(what, rows)
    if not sys.stderr.isatty():
        lines = _Lines(out, shown)
        with watched(spark, lines.show):
            yield lambda step: None
        return
    bar = _Bar(shown)
    try:
        with watched(spark, bar.show) as look:
            yield lambda step: shown.begin(step, look())
    finally:
        bar.stop()


@contextmanager
def spark_and_url(
    session: Session, what: str, master: str, conf: Mapping[str, str]
) -> Iterator[tuple[SparkSession, str]]:
    """Start Spark for work that reads the whole log, show its progress, and yield it with the URL of the log."""
    session.when_stopped = ""  # Spark starts over
    with (
        spark_of(session, master, conf) as spark,
        spark_progress(session.out, spark, what, rows=session.log().head()),
    ):
        yield spark, log_url(session)


class _Begun(NamedTuple):
    step: Step
    before: Status  # when it began
    at: float


class _Shown:
    """Describes a status in words."""

    def __init__(self, what: str, rows: int, now: Callable[[], float] = time.monotonic) -> None:
        self.what, self._rows, self._now = what, rows, now
        self._started = now()
        self._begun: _Begun | None = None

    def begin(self, step: Step, before: Status) -> None:
        self._begun = _Begun(step, before, self._now())

    def on_terminal(self, status: Status) -> tuple[float, str]:
        """Return the fraction that is done, and a text: for the current step, with its total where that is known."""
        if (begun := self._begun) is None:
            return self.part(status), self.text(status)
        step, status = begun.step, status.since(begun.before)
        tasks = [f"{status.tasks_done:,} of {counted(status.tasks, 'task')}"] if status.tasks else []
        if not step.events:
            return status.part, ": ".join([step.what, *tasks])
        done = min(status.rows, step.events)
        seconds = max(self._now() - begun.at, 1e-6)
        words = [f"{step.what}: {done:,} of {counted(step.events, 'event')}", *tasks]
        if done:
            words += [f"{done / seconds:,.0f} a second", f"{seconds * (step.events / done - 1):.0f} s left"]
        return done / step.events, ", ".join(words)

    def part(self, status: Status) -> float:
        """Return the fraction that is done: of the rows if their number is known, else of the tasks known so far."""
        return min(status.rows / self._rows, 1.0) if self._rows else status.part

    def text(self, status: Status) -> str:
        seconds = max(self._now() - self._started, 1e-6)
        words = [f"stage {min(status.stages_done + 1, status.stages)} of {status.stages}"] if status.stages else []
        words.append(f"{status.tasks_done:,} of {counted(status.tasks, 'task')}")
        if status.tasks_failed:
            words.append(f"{status.tasks_failed:,} failed and retried")
        if status.rows:
            words.append(f"{counted(status.rows, 'row')}")
            words.append(f"{status.rows / seconds:,.0f} a second")
        part = self.part(status)
        if 0 < part < 1:
            words.append(f"{seconds / part - seconds:.0f} s left")
        return ", ".join(words)


class _Lines:
    def __init__(self, out: Output, shown: _Shown) -> None:
        self._out, self._shown = out, shown
        self._last = time.monotonic()

    def show(self, status: Status) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_EVERY_S:
            self._last = now
            self._out.note(f"{self._shown.what}: {self._shown.text(status)}")


class _Bar:
    def __init__(self, shown: _Shown) -> None:
        self._shown = shown
        self._started = time.monotonic()
        self._draw: Callable[[Status], None] | None = None
        self._end: Callable[[], None] = lambda: None

    def show(self, status: Status) -> None:
        if self._draw is None and time.monotonic() - self._started >= BAR_AFTER_S:
            self._begin()
        if self._draw is not None:
            self._draw(status)

    def stop(self) -> None:
        self._end()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[words]}"),
            console=Console(stderr=True),
            transient=True,
        )
        shown = self._shown
        task = bar.add_task(shown.what, total=1.0, words="")
        bar.start()

        def draw(status: Status) -> None:
            part, words = shown.on_terminal(status)
            bar.update(task, completed=part, words=words)

        self._draw = draw
        self._end = bar.stop
