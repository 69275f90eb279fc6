"""How long the event loop was blocked: a timer that is late shows it.

It is late because a handler works or waits in the loop, because other threads hold the interpreter, or because the
machine has other work. The processor time of the loop's thread tells the first from the others: `held` is the longest
piece of work that the loop did in one go.
"""

from __future__ import annotations

import asyncio
import logging
import time

from everlog.server.observe.metrics import Metrics

EVERY_S = 0.010
BLOCKED_S = 0.020
_WINDOW_S = 10.0
_WARN_S = 0.250

_logger = logging.getLogger("everlog.server")


class LoopLag:
    """Measures the loop 100 times per second, so that no delay of 20 ms falls between two measurements."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._window_ends = 0.0
        self._worst = self._worst_before = 0.0
        self._used_before = 0.0
        self._held = self._held_before = 0.0

    def start(self) -> None:
        self._window_ends = self._loop.time() + _WINDOW_S
        self._used_before = time.thread_time()
        self._again()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        self._due = self._loop.time() + EVERY_S
        self._timer = self._loop.call_at(self._due, self._measure)

    def _measure(self) -> None:
        now, used = self._loop.time(), time.thread_time()
        late = now - self._due
        held = min(used - self._used_before, late)  # the timer was due: what the loop did since, it did in one go
        self._used_before = used
        if held > self._held:
            self._held = held
            self._metrics.held_s.set(max(held, self._held_before))
        if late > self._worst:
            self._worst = late
            self._metrics.lag_s.set(max(late, self._worst_before))
        if late > BLOCKED_S:
            self._metrics.blocked.add()
            if late > _WARN_S:
                _logger.warning("the event loop was blocked for %.0f ms", late * 1000)
        if now > self._window_ends:
            self._worst_before, self._worst, self._window_ends = self._worst, 0.0, now + _WINDOW_S
            self._held_before, self._held = self._held, 0.0
            self._metrics.lag_s.set(self._worst_before)
            self._metrics.held_s.set(self._held_before)
        self._again()
