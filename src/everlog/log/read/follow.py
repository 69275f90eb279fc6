"""Following a log: catching up and being live are the same loop over pages, so there is no seam between them (G7).

A subscriber sleeps until something was committed. Commits of this process wake it at once; those of others are
noticed by looking at the head a few times a second. The wake-up is a hint to look, never the news itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from everlog.core.event import Position, Recorded
from everlog.core.query import EVERYTHING, Cursor, Page, Query, Reset
from everlog.errors import LogClosed

POLL_S = 0.05

_logger = logging.getLogger("everlog")


class Waiters:
    """The threads and callbacks of this process that wait for the log to grow."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may close the log while this very thread waits
        self._grown = threading.Condition(self._lock)
        self._commits = 0
        self._sleeping = 0
        self._callbacks: set[Callable[[], None]] = set()
        self.closed = False

    @property
    def commits(self) -> int:
        return self._commits

    def wake(self) -> None:
        """Wake all of them after a commit, which is not affected if one of them fails."""
        with self._lock:  # the condition's own, which it would take by two more calls
            self._commits += 1
            if self._sleeping:
                self._grown.notify_all()
            callbacks = list(self._callbacks) if self._callbacks else ()
        for callback in callbacks:
            try:
                callback()
            except Exception:  # the commit is not affected: its caller must not get this error
                _logger.exception("a subscriber's callback failed; the commit is not affected")

    def close(self) -> None:
        self.closed = True
        self.wake()

    def wait(self, seen_commits: int, timeout_s: float) -> None:
        """Wait until there was a commit after the one counted, or the time is over."""
        with self._grown:
            if self._commits == seen_commits:
                self._sleeping += 1
                try:
                    self._grown.wait(timeout_s)
                finally:
                    self._sleeping -= 1

    def watch(self, callback: Callable[[], None]) -> None:
        """Have a callback called after every commit, from the thread that committed: it must be quick."""
        with self._grown:
            self._callbacks.add(callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        with self._grown:
            self._callbacks.discard(callback)


ReadPage = Callable[[Cursor, Query], Page]
ReadHead = Callable[[], Position]


def follow(
    read_page: ReadPage,
    read_head: ReadHead,
    waiters: Waiters,
    cursor: Cursor,
    query: Query = EVERYTHING,
    *,
    to_end: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Recorded | Reset]:
    """Everything after the cursor, then everything new; with `to_end`, up to the head of the moment it gets there.

    Closing the log lets a follower go. With `to_end` it raises LogClosed instead, unless the end was reached:
    a reader must not take a part of the log for all of it.
    """
    closed_before = waiters.closed
    try:
        while not stop():
            commits = waiters.commits  # before the look, so that a commit during it is not slept over
            page = read_page(cursor, query)
            yield from items_of(page)
            cursor = page.next_cursor
            if not page.at_head:
                continue
            if to_end:
                return
            while not stop() and not waiters.closed and read_head() == cursor.position:
                waiters.wait(commits, POLL_S)
                commits = waiters.commits
            if waiters.closed:
                return
    except LogClosed as error:
        # Following ends when the log is closed, wherever it is. A new follower of a closed log is refused.
        if closed_before or not waiters.closed:
            raise
        if to_end:
            raise closed_early(cursor.position) from error


def closed_early(position: int) -> LogClosed:
    """The log was closed under a reader that wanted all of it."""
    return LogClosed(
        "the log was closed before its end was read",
        why=f"it was read up to position {position}, and more may follow",
        hint="open the log again, and read on after that position",
        after=position,
    )


def items_of(page: Page) -> Iterator[Recorded | Reset]:
    if page.reset is not None:
        yield page.reset
    yield from page.events
