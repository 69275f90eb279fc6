"""The progress of a long command: a bar on a terminal, otherwise one line every ten seconds, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from everlog.cli.output import Output

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

BAR_AFTER_S = 0.5
LINE_EVERY_S = 10.0


@contextmanager
def progress(out: Output, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount done so far, out of `total`."""
    if not out.progress_wanted:
        yield lambda done: None
    elif sys.stderr.isatty():
        with bar(what, total, _counts) as draw:
            yield lambda done: draw(lambda: (done, ""))
    else:
        started, show = time.monotonic(), every_few_seconds(out, what)

        def text(done: int) -> str:
            rate = done / (time.monotonic() - started)
            left = (total - done) / rate if rate else 0
            return f"{done:,} of {total:,}, {rate:,.0f} a second, {left:.0f} s left"

        yield lambda done: show(lambda: text(done))


def every_few_seconds(out: Output, what: str) -> Callable[[Callable[[], str]], None]:
    """Return a function that prints a text as a line, if the last line is ten seconds old."""
    last = time.monotonic()

    def show(text: Callable[[], str]) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_EVERY_S:
            last = now
            out.note(f"{what}: {text()}")

    return show


Drawn = Callable[[], tuple[float, str]]
"""How much is done, and the text of the column `words`."""


@contextmanager
def bar(
    what: str, total: float, columns: Callable[[], Sequence[ProgressColumn]]
) -> Iterator[Callable[[Drawn], None]]:
    """Yield a function that draws a bar. It appears after half a second, because most work is done before that."""
    started = time.monotonic()
    shown: Progress | None = None

    def draw(drawn: Drawn) -> None:
        nonlocal shown
        if shown is None:
            if time.monotonic() - started < BAR_AFTER_S:
                return
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            shown = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                *columns(),
                console=Console(stderr=True),
                transient=True,
            )
            shown.add_task(what, total=total, words="")
            shown.start()
        done, words = drawn()
        shown.update(shown.task_ids[0], completed=done, words=words)

    try:
        yield draw
    finally:
        if shown is not None:
            shown.stop()


def _counts() -> Sequence[ProgressColumn]:
    from rich.progress import ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} a second" if task.speed else "")

    return TextColumn("{task.completed:,} of {task.total:,}"), Rate(), TimeRemainingColumn()
