"""Measuring things against each other: in turns, in one run, so that they meet the same machine.

A disk or a neighbour that is slow for a minute is slow for every side of a round. So ratios are taken inside a round
and their median is what counts; absolute numbers of two runs say little about each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple


class Sample(NamedTuple):
    """What one side did in one round."""

    events_s: float
    p50_us: float = 0.0  # of one acknowledged request, where requests are timed one by one


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
    """Every side of every contest once a round; who goes first changes from round to round."""
    results: dict[str, Rounds] = {contest.name: [] for contest in contests}
    for number in range(rounds):
        for contest in contests:
            progress(f"round {number + 1} of {rounds}: {contest.name}")
            sides = list(contest.sides.items())
            first = number % len(sides)
            samples: dict[str, Sample] = {}
            for side, job in sides[first:] + sides[:first]:
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


def spread(values: Sequence[float]) -> Spread:
    return Spread(median(values), min(values), max(values))


def timed(events: int, work: Callable[[], object]) -> Sample:
    """One piece of work, by the clock."""
    start = time.perf_counter()
    work()
    return Sample(events / (time.perf_counter() - start))


def timed_each(events_each: int, requests: Sequence[Callable[[], object]]) -> Sample:
    """Requests one after the other, each by the clock as well."""
    clock = time.perf_counter
    latencies = []
    start = before = clock()
    for request in requests:
        request()
        now = clock()
        latencies.append(now - before)
        before = now
    return Sample(events_each * len(requests) / (before - start), median(latencies) * 1e6)
