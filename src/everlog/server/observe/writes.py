"""How large commits are, and how long each takes to reach the disk: a stage that measures, and changes nothing."""

from __future__ import annotations

import time

from everlog.server.observe.metrics import Metrics
from everlog.stores.open_write import OpenWrite


class WriteMeter:
    name = "measure"

    def __init__(self, metrics: Metrics, log: str) -> None:
        self._metrics = metrics
        self._log = log
        self._events = 0
        self._since = 0.0

    def run(self, write: OpenWrite) -> None:
        self._events = len(write.records)
        self._since = time.perf_counter()

    def committed(self) -> None:
        if self._events:
            self._metrics.flush_s.observe(time.perf_counter() - self._since, self._log)
            self._metrics.commit_events.observe(self._events, self._log)
            self._metrics.events.add(self._log, by=self._events)

    def undone(self) -> None: ...
