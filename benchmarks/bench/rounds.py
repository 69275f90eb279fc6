"""Measuring things against each other: in a shuffled order, in one run, so that they meet the same machine.

A disk or a neighbour that is slow for a minute is slow for every side of a round. So ratios are taken inside a round
and their median is what counts; absolute numbers of two runs say little about each other.
"""

from __future__ import annotations

import os
import random
import resource
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple


class Sample(NamedTuple):
    """What one side did in one round."""

    events_s: float
    p50_us: float = 0.0  # of one acknowledged request, where requests are timed one by one
    cpu_us: float = 0.0  # processor time of this process for one event, of all its threads
    switches: float = 0.0  # context switches for one event, voluntary or not


Job = Callable[[], Sample]


class Contest(NamedTuple):
    """The same work done by several sides."""

    name: str
    sides: Mapping[str, Job]


class Spread(NamedTuple):
    """The median of the rounds, and the extremes."""

    middle: float
    low: float
    high: float


Rounds = list[dict[str, Sample]]


def interleave(contests: Sequence[Contest], *, rounds: int, progress: Callable[[str], None]) -> dict[str, Rounds]:
    """Every side of every contest once a round, in an order that is shuffled for each round."""
    results: dict[str, Rounds] = {contest.name: [] for contest in contests}
    order = random.Random(3)
    for number in range(rounds):
        for contest in contests:
            progress(f"round {number + 1} of {rounds}: {contest.name}")
            sides = list(contest.sides.items())
            order.shuffle(sides)
            samples: dict[str, Sample] = {}
            for side, job in sides:
                os.sync()  # what others left to be written must not be paid for by this side's flushes
                samples[side] = job()
            results[contest.name].append(samples)
    return results


def ratio(rounds: Rounds, over: str, under: str) -> Spread:
    """How many times as fast one side was as another."""
    return spread([samples[over].events_s / samples[under].events_s for samples in rounds])


def latency_ratio(rounds: Rounds, over: str, under: str) -> Spread:
    """How many times as long one side's median request took as another's."""
    return spread([samples[over].p50_us / samples[under].p50_us for samples in rounds])


def cpu_ratio(rounds: Rounds, over: str, under: str) -> Spread:
    """How many times as much processor time one side took for an event as another."""
    return spread([samples[over].cpu_us / samples[under].cpu_us for samples in rounds])


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


class Meter:
    """The clock, the processor time and the context switches since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._cpu, self._switches = _usage()

    def sample(self, events: int, *, p50_us: float = 0.0) -> Sample:
        took = time.perf_counter() - self._start
        cpu, switches = _usage()
        return Sample(events / took, p50_us, (cpu - self._cpu) * 1e6 / events, (switches - self._switches) / events)


def _usage() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_nvcsw + used.ru_nivcsw


def timed(events: int, work: Callable[[], object]) -> Sample:
    """Measure one piece of work."""
    meter = Meter()
    work()
    return meter.sample(events)


def timed_each(events_each: int, requests: Sequence[Callable[[], object]]) -> Sample:
    """Measure requests one after the other, and the time of each."""
    clock = time.perf_counter
    latencies = []
    meter = Meter()
    before = clock()
    for request in requests:
        request()
        now = clock()
        latencies.append(now - before)
        before = now
    return meter.sample(events_each * len(requests), p50_us=median(latencies) * 1e6)


def timed_threads(works: Sequence[Sequence[Callable[[], object]]]) -> Sample:
    """Measure threads that carry out their requests at the same time, each request of one event."""
    barrier = threading.Barrier(len(works) + 1)
    failures: list[BaseException] = []

    def run(mine: Sequence[Callable[[], object]]) -> None:
        barrier.wait()
        try:
            for request in mine:
                request()
        except BaseException as error:
            failures.append(error)  # raised below, in the thread that measures

    started = [threading.Thread(target=run, args=(mine,)) for mine in works]
    for thread in started:
        thread.start()

    def wait() -> None:
        barrier.wait()
        for thread in started:
            thread.join()

    sample = timed(sum(map(len, works)), wait)
    if failures:
        raise failures[0]
    return sample
