"""A row of the targets: what was measured, and what it must be."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.bench.rounds import Spread


class Figure(NamedTuple):
    row: str
    what: str
    value: Spread
    must: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.value.middle <= self.must if self.at_most else self.value.middle >= self.must
