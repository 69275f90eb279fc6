"""What a part of `everlog bench trust` is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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
