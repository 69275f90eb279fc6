"""What a part of `everlog bench trust` is given, and what it returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One measured value, and what it must be."""

    name: str
    store: str
    value: float
    unit: str
    must: float | None = None
    at_most: bool = True
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether it is what it must be; None where nothing is demanded."""
        if self.must is None:
            return None
        return self.value <= self.must if self.at_most else self.value >= self.must


class Setup(msgspec.Struct, frozen=True):
    """How much is measured, and where."""

    directory: Path
    rounds: int
    quick: bool
    progress: Callable[[str], None]


Rounds = list[list[float]]
"""The time of each side, by round."""


def in_turns(sides: Sequence[Callable[[], None]], rounds: int, times: int) -> tuple[Rounds, Rounds]:
    """Return the time and the processor time of each side in each round. The sides take turns at every call."""
    for side in sides:
        side()  # what is done once, such as making keys
    took, cpu = Rounds(), Rounds()
    for _ in range(rounds):
        took.append([0.0] * len(sides))
        cpu.append([0.0] * len(sides))
        for _ in range(times):
            for place, side in enumerate(sides):
                start = time.perf_counter()
                cpu[-1][place] += cpu_s(side)
                took[-1][place] += time.perf_counter() - start
    return took, cpu


def ratio(spent: Rounds, other: int) -> float:
    """Return the speed of a side relative to the first: the median of the rounds."""
    return median(one[0] / one[other] for one in spent)


def cpu_s(work: Callable[[], object]) -> float:
    """Return the processor time of a call."""
    start = time.process_time()
    work()
    return time.process_time() - start
