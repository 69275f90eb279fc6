"""One row of the crash table: what was done how often, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

_SHOWN_MAX = 20


class Scale(IntEnum):
    """How much is done: a part of the ordinary suite, the command, the long form before a release."""

    SUITE = 0
    TABLE = 1
    LONG = 2


@dataclass
class Row:
    """`count` of `unit`, and what was found: events lost, changed in silence, logs that did not open again."""

    name: str
    subject: str
    unit: str
    wanted: int = 0
    count: int = 0
    lost_events: int = 0
    silent_changes: int = 0
    failed_restarts: int = 0
    seconds: float = 0.0
    skipped: str = ""
    remark: str = ""
    problems: list[str] = field(default_factory=list)

    def lost(self, what: str, events: int = 1) -> None:
        """An acknowledged event is gone, or was acknowledged although it never was there."""
        self.lost_events += events
        self._note(what)

    def changed(self, what: str) -> None:
        """Something is there that should not be, or is not what it was, and nothing tells of it."""
        self.silent_changes += 1
        self._note(what)

    def broken(self, what: str) -> None:
        """The log did not open, read or go on."""
        self.failed_restarts += 1
        self._note(what)

    def _note(self, what: str) -> None:
        if len(self.problems) < _SHOWN_MAX:
            self.problems.append(what)

    @property
    def verdict(self) -> str:
        if self.skipped:
            return "skipped"
        wrong = self.lost_events or self.silent_changes or self.failed_restarts or self.problems
        if not wrong and self.count < self.wanted:
            return "too few"
        return "FAILED" if wrong else "passed"

    def as_object(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 2), "verdict": self.verdict}


class Skip(Exception):
    """A row that cannot be run here; the text says why."""


def timed(make: Callable[[Row], None], row: Row) -> Row:
    """Fill a row, and put down how long it took or why it could not be."""
    started = time.monotonic()
    try:
        make(row)
    except Skip as reason:
        row.skipped = str(reason)
    row.seconds = time.monotonic() - started
    return row
