"""Counters, gauges and histograms, and their text for Prometheus.

Our own, because a server needs three kinds of them and one page of text: see docs/decisions/0049. Most are counted in
the event loop; a few in threads, hence the locks.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 10000.0)


class Family:
    """One metric: a number per set of labels."""

    def __init__(self, kind: str, name: str, about: str, *labels: str) -> None:
        self.kind, self.name, self.about, self.labels = kind, name, about, labels
        self._lock = threading.Lock()
        self._values: dict[tuple[str, ...], float] = {}

    def add(self, *labels: str, by: float = 1) -> None:
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + by

    def set(self, value: float, *labels: str) -> None:
        with self._lock:
            self._values[labels] = value

    def get(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.kind, self.about)
        if not self._values and not self.labels:
            yield f"{self.name} 0"
        for labels, value in sorted(self._values.copy().items()):
            yield f"{self.name}{_braces(zip(self.labels, labels, strict=True))} {_number(value)}"


class Histogram:
    """How many observations were at most so large, per set of labels."""

    def __init__(self, bounds: tuple[float, ...], name: str, about: str, *labels: str) -> None:
        self.bounds, self.name, self.about, self.labels = bounds, name, about, labels
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._sums: dict[tuple[str, ...], float] = {}

    def observe(self, value: float, *labels: str) -> None:
        with self._lock:
            counts = self._counts.get(labels)
            if counts is None:
                counts = self._counts[labels] = [0] * (len(self.bounds) + 1)
                self._sums[labels] = 0.0
            counts[bisect_left(self.bounds, value)] += 1
            self._sums[labels] += value

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, "histogram", self.about)
        with self._lock:
            found = [(labels, list(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in sorted(found):
            own = list(zip(self.labels, labels, strict=True))
            below = 0
            for bound, count in zip((*map(_number, self.bounds), "+Inf"), counts, strict=True):
                below += count
                yield f"{self.name}_bucket{_braces([*own, ('le', bound)])} {below}"
            yield f"{self.name}_sum{_braces(own)} {_number(total)}"
            yield f"{self.name}_count{_braces(own)} {below}"


class Watched(Protocol):
    """A connection, as far as gauges need it."""

    streaming: bool

    @property
    def waiting_bytes(self) -> int: ...


class Streams(Protocol):
    """The hub of a log, as far as gauges need it."""

    drops: int
    resets_sent: int

    @property
    def clients(self) -> int: ...
    @property
    def queued_bytes(self) -> int: ...


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.requests = Family(
            "counter", "everlog_requests_total", "Requests; status 0: the client left.", "route", "status"
        )
        self.in_flight = Family("gauge", "everlog_requests_in_flight", "Requests being answered, with streams.")
        self.request_s = Histogram(
            SECONDS, "everlog_request_seconds", "Time to answer; of a stream, its whole time.", "route"
        )
        self.append_s = Histogram(SECONDS, "everlog_append_seconds", "Time to answer a request that records.")
        self.problems = Family("counter", "everlog_refusals_total", "Problems reported, by code.", "code")
        self.refusals_not_recorded = Family(
            "counter", "everlog_refusals_not_recorded_total", "Refusals beyond the rate at which they are recorded."
        )
        self.connections_made = Family("counter", "everlog_connections_total", "Connections accepted.")
        self.connections_cut = Family(
            "counter", "everlog_connections_cut_total", "Connections that the server ended.", "reason"
        )
        self.events = Family(
            "counter",
            "everlog_events_recorded_total",
            "Events recorded by this process; its rate is that of appends.",
            "log",
        )
        self.commit_events = Histogram(SIZES, "everlog_commit_events", "Events per commit.", "log")
        self.flush_s = Histogram(SECONDS, "everlog_flush_seconds", "Time for a commit to reach the disk.", "log")
        self.lag_s = Family("gauge", "everlog_loop_lag_seconds", "Longest delay of the event loop in 10 to 20 s.")
        self.held_s = Family(
            "gauge",
            "everlog_loop_held_seconds",
            "Longest work of the event loop in one go, as processor time, in 10 to 20 s.",
        )
        self.blocked = Family("counter", "everlog_loop_blocked_total", "Times the loop was late by over 20 ms.")
        self.hubs: dict[str, Streams] = {}  # by log
        self._connections: Callable[[], Collection[Any]] = tuple
        self._started = time.time()

    def watch(self, connections: Callable[[], Collection[Any]]) -> None:
        """Have the gauges of connections count these."""
        self._connections = connections

    def text(self, beside: Iterable[Family] = ()) -> str:
        """Return all metrics as Prometheus reads them. `beside` are those that were made for this answer."""
        own = [one for one in vars(self).values() if isinstance(one, Family | Histogram)]
        lines = [line for one in (*own, *self._gauges(), *beside) for line in one.lines()]
        return "\n".join(lines) + "\n"

    def _gauges(self) -> Iterator[Family]:
        connections: Collection[Watched] = list(self._connections())
        for name, about, value in (
            ("everlog_connections", "Open connections.", len(connections)),
            ("everlog_streaming_connections", "Connections that stream.", sum(c.streaming for c in connections)),
            (
                "everlog_connection_waiting_bytes",
                "Bytes that clients have not taken yet, in this process.",
                sum(c.waiting_bytes for c in connections),
            ),
            ("process_resident_memory_bytes", "Resident memory.", resident_bytes()),
            ("process_start_time_seconds", "Start of the process, in seconds since 1970.", self._started),
        ):
            yield gauge(name, about, value)
        for kind, name, about, field in (
            ("gauge", "everlog_stream_clients", "Open streams and waiting polls.", "clients"),
            ("gauge", "everlog_stream_queued_bytes", "Bytes in the queues of streams.", "queued_bytes"),
            ("counter", "everlog_stream_drops_total", "Streams that were ended because they were too slow.", "drops"),
            ("counter", "everlog_stream_resets_total", "Resets sent.", "resets_sent"),
        ):
            family = Family(kind, name, about, "log")
            for log, hub in self.hubs.items():
                family.set(getattr(hub, field), log)
            yield family
        cpu = Family("counter", "process_cpu_seconds_total", "Processor time used.")
        cpu.set(time.process_time())
        yield cpu


def gauge(name: str, about: str, value: float) -> Family:
    made = Family("gauge", name, about)
    made.set(value)
    return made


def resident_bytes() -> int:
    """Return the memory of this process that is in RAM; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _head(name: str, kind: str, about: str) -> tuple[str, str]:
    return f"# HELP {name} {about}", f"# TYPE {name} {kind}"


def _braces(labels: Iterable[tuple[str, str]]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{inside}}}" if inside else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
