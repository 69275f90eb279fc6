"""The progress of a Spark job: a bar on a terminal, a line every ten seconds elsewhere, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from everlog.cli.output import Output
from everlog.cli.pipeline.group import log_url, spark_of
from everlog.cli.progress import bar, every_few_seconds
from everlog.cli.session import Session
from everlog.core.text import counted

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

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

    shown = _Shown(rows)
    if not sys.stderr.isatty():
        show = every_few_seconds(out, what)
        with watched(spark, lambda status: show(lambda: shown.text(status))):
            yield lambda step: None
        return
    with (
        bar(what, 1.0, _words) as draw,
        watched(spark, lambda status: draw(lambda: shown.on_terminal(status))) as look,
    ):
        yield lambda step: shown.begin(step, look())


def _words() -> Sequence[ProgressColumn]:
    from rich.progress import TextColumn

    return [TextColumn("{task.fields[words]}")]


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

    def __init__(self, rows: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rows, self._now = rows, now
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
