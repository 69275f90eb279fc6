"""What the benchmark finds: for every store and every kind of work, how it compares with each other side."""

from __future__ import annotations

from statistics import median

import msgspec
from benchmarks.bench.rounds import Rounds, Spread, ratio

FLOOR, LINE = "floor", "straight line"
STORES = ("segments", "sqlite", "jsonl")


class Against(msgspec.Struct, frozen=True):
    """A ratio to one other side: the median of the rounds, the extremes, and what it must be."""

    value: float
    low: float
    high: float
    must: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether it is what it must be; None where nothing is demanded."""
        if self.must is None:
            return None
        return self.value <= self.must if self.at_most else self.value >= self.must


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the benchmark. `value`, `low`, `high` and `target` are those of its first ratio.

    In `against`, a peer that does this work and is not installed has None.
    """

    name: str
    store: str
    value: float
    target: float | None
    unit: str
    ours: float
    floor: float
    note: str
    low: float
    high: float
    cpu_us: float | None
    switches: float | None
    against: dict[str, Against | None]

    @property
    def met(self) -> bool | None:
        """Whether every ratio is what it must be; None where nothing is demanded of any."""
        found = [ratio.met for ratio in self.against.values() if ratio is not None and ratio.met is not None]
        return all(found) if found else None


def rate_figure(
    name: str, store: str, rounds: Rounds, *, musts: dict[str, float], absent: tuple[str, ...] = (), note: str = ""
) -> Figure:
    """Return what a store did in a contest, against every other side that is not a store."""
    others = sorted(
        (side for side in rounds[0] if side not in (*STORES, store)),
        key=lambda side: (side != FLOOR, side != LINE, side),
    )
    against = {side: Against(*ratio(rounds, store, side), must=musts.get(side)) for side in others}
    first = against[others[0]]
    return Figure(
        name=name,
        store=store,
        value=first.value,
        target=first.must,
        unit="events/s",
        ours=median([samples[store].events_s for samples in rounds]),
        floor=median([samples[others[0]].events_s for samples in rounds]),
        note=note,
        low=first.low,
        high=first.high,
        cpu_us=median([samples[store].cpu_us for samples in rounds]),
        switches=median([samples[store].switches for samples in rounds]),
        against={**against, **dict.fromkeys(absent)},
    )


def plain_figure(
    name: str,
    store: str,
    side: str,
    found: Spread,
    *,
    unit: str,
    ours: float,
    other: float,
    must: float | None = None,
    at_most: bool = False,
    note: str = "",
) -> Figure:
    """Return a figure that is one ratio alone."""
    return Figure(
        name=name,
        store=store,
        value=found.middle,
        target=must,
        unit=unit,
        ours=ours,
        floor=other,
        note=note,
        low=found.low,
        high=found.high,
        cpu_us=None,
        switches=None,
        against={side: Against(*found, must=must, at_most=at_most)},
    )
