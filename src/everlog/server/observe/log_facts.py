"""What a log shows about itself, as gauges: its size, the lag of views and consumers, the age of snapshots.

It reads the log, so it runs in a thread, and what was read is used for some seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from everlog.application.consumer_groups import group_overviews
from everlog.errors import EverlogError
from everlog.log.log import Log
from everlog.server.observe.metrics import Family
from everlog.views.builds.overview import NEVER_RUN

USED_S = 5.0

_logger = logging.getLogger("everlog.server")


class LogFacts:
    """The gauges of several logs, by name."""

    def __init__(self, logs: dict[str, Log]) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._read_at = float("-inf")
        self._found: list[Family] = []

    def gauges(self) -> list[Family]:
        with self._lock:
            if time.monotonic() - self._read_at > USED_S:
                self._found = list(chain.from_iterable(self._of(part) for part in _PARTS))
                self._read_at = time.monotonic()
            return self._found

    def _of(self, part: Callable[[Log, Callable[..., None]], None]) -> Iterator[Family]:
        """Yield the gauges of one part. One that cannot be read is left out, and the others are still there."""
        found: dict[str, Family] = {}
        for name, log in self._logs.items():

            def put(metric: str, about: str, value: float, name: str = name, **labels: str) -> None:
                family = found.get(metric)
                if family is None:
                    family = found[metric] = Family("gauge", metric, about, "log", *labels)
                family.set(value, name, *labels.values())

            try:
                part(log, put)
            except EverlogError as error:
                _logger.warning("a gauge of the log %s could not be read: %s", name, error)
        yield from found.values()


def _size(log: Log, put: Callable[..., None]) -> None:
    put("everlog_log_head", "The last position of the log; its rate is the growth.", log.head())
    put("everlog_log_bytes", "Size of the files with the events; 0 in PostgreSQL.", log.views.snapshots.log_bytes())


def _views(log: Log, put: Callable[..., None]) -> None:
    newest = next(log.read(limit=1, newest_first=True), None)
    for view in log.views.overviews():
        if view.state == NEVER_RUN:
            continue
        put("everlog_view_lag", "Positions that a view is behind the log.", view.lag, view=view.view)
        put(
            "everlog_view_gap_seconds",
            "Age of the oldest event that a view lacks.",
            _gap_s(log, view),
            view=view.view,
        )
        put("everlog_view_dead_letters", "Events that a view could not apply.", view.letters, view=view.view)
    if newest is not None:
        put(
            "everlog_log_newest_seconds",
            "When the newest event was recorded, in seconds since 1970.",
            newest.received_us / 1e6,
        )


def _gap_s(log: Log, view: Any) -> float:
    if not view.lag:
        return 0.0
    missing = next(log.read(after=view.position, limit=1), None)
    return 0.0 if missing is None else max(0.0, time.time() - missing.received_us / 1e6)


def _consumers(log: Log, put: Callable[..., None]) -> None:
    for group in group_overviews(log):
        put("everlog_consumer_lag", "Positions that a group is behind the log.", group.behind, group=group.group)
        put(
            "everlog_consumer_dead_letters",
            "Events that a group could not process.",
            group.dead_letters,
            group=group.group,
        )


def _snapshots(log: Log, put: Callable[..., None]) -> None:
    newest: dict[str, int] = {}
    for entry in log.views.snapshots.folder.entries():
        if entry.header is not None:
            newest[entry.view] = max(newest.get(entry.view, 0), entry.header.created_us)
    for view, created_us in newest.items():
        age_s = max(0.0, time.time() - created_us / 1e6)
        put("everlog_snapshot_age_seconds", "Age of the newest snapshot of a view.", age_s, view=view)


_PARTS = (_size, _views, _consumers, _snapshots)
