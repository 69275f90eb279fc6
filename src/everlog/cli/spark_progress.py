"""How far a job of Spark is: a bar on a terminal, a line every ten seconds elsewhere, nothing if nobody wants it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from everlog.cli.output import Output
from everlog.cli.progress import BAR_AFTER_S, LINE_EVERY_S
from everlog.core.counted import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from everlog.pipeline.progress import Status


@contextmanager
def spark_progress(out: Output, spark: SparkSession, what: str, *, rows: int = 0) -> Iterator[None]:
    """Show how far the jobs are that are run inside; `rows` is how many they will read, if that is known."""
    if not out.progress_wanted:
        yield
        return
    from everlog.pipeline.progress import watched

    shown = _Shown(what, rows)
    if not sys.stderr.isatty():
        lines = _Lines(out, shown)
        with watched(spark, lines.tell):
            yield
        return
    bar = _Bar(shown)
    try:
        with watched(spark, bar.tell):
            yield
    finally:
        bar.stop()


class _Shown:
    """A status in words."""

    def __init__(self, what: str, rows: int, now: Callable[[], float] = time.monotonic) -> None:
        self.what, self._rows, self._now = what, rows, now
        self._started = now()

    def part(self, status: Status) -> float:
        """How much is done: of the rows if their number is known, else of the tasks that are known so far."""
        return min(status.rows / self._rows, 1.0) if self._rows else status.part

    def text(self, status: Status) -> str:
        seconds = max(self._now() - self._started, 1e-6)
        words = [f"stage {min(status.stages_done + 1, status.stages)} of {status.stages}"] if status.stages else []
        words.append(f"{status.tasks_done:,} of {counted(status.tasks, 'task')}")
        if status.tasks_failed:
            words.append(f"{status.tasks_failed:,} failed and tried again")
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

    def tell(self, status: Status) -> None:
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

    def tell(self, status: Status) -> None:
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
        self._draw = lambda status: bar.update(task, completed=shown.part(status), words=shown.text(status))
        self._end = bar.stop
