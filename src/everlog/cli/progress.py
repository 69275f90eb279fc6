"""The progress of a long command: a bar on a terminal, otherwise one line every ten seconds, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from everlog.cli.output import Output

BAR_AFTER_S = 0.5
LINE_EVERY_S = 10.0


@contextmanager
def progress(out: Output, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount done so far, out of `total`."""
    if not out.progress_wanted:
        yield lambda done: None
    elif sys.stderr.isatty():
        bar = _Bar(what, total)
        try:
            yield bar.show
        finally:
            bar.stop()
    else:
        yield _Lines(out, what, total).show


class _Lines:
    def __init__(self, out: Output, what: str, total: int) -> None:
        self._out, self._what, self._total = out, what, total
        self._started = self._last = time.monotonic()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._last < LINE_EVERY_S:
            return
        self._last = now
        rate = done / (now - self._started)
        left = (self._total - done) / rate if rate else 0
        self._out.note(f"{self._what}: {done:,} of {self._total:,}, {rate:,.0f} a second, {left:.0f} s left")


class _Bar:
    """A bar that appears after half a second, because most work is done before that."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._started = time.monotonic()
        self._draw: Callable[[int], None] | None = None
        self._end: Callable[[], None] = lambda: None

    def show(self, done: int) -> None:
        if self._draw is None:
            if time.monotonic() - self._started < BAR_AFTER_S:
                return
            self._begin()
        if self._draw is not None:
            self._draw(done)

    def stop(self) -> None:
        self._end()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
        from rich.text import Text

        class Rate(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(f"{task.speed:,.0f} a second" if task.speed else "")

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,} of {task.total:,}"),
            Rate(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        task = bar.add_task(self._what, total=self._total)
        bar.start()
        self._draw = lambda done: bar.update(task, completed=done)
        self._end = bar.stop
