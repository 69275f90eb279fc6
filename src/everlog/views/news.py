"""What a view took in within a write of the log: certain once the write has ended, and told then.

Between the two, what the view has in memory may be of a write that fails yet. Who writes never waits here: it only
notes how its write ended. Whoever else comes meanwhile takes the view as it is kept, which is right in any case.
"""

from __future__ import annotations

from collections.abc import Mapping

from everlog.core.event import Position
from everlog.views.rows import row_of
from everlog.views.view import Change


class News:
    def __init__(self) -> None:
        self._open: tuple[Position, Mapping[str, bytes | None]] | None = None
        self._untold: list[tuple[Position, Mapping[str, bytes | None]]] = []
        self._failures = self._settled = 0  # writes that failed, and those of them that left nothing in memory

    def took_in(self, position: Position, rows: Mapping[str, bytes | None]) -> None:
        """An open write is in memory up to a position; of these rows somebody is to be told."""
        self._open = position, rows

    def write_done(self) -> None:
        """The write that is going on is on the disk."""
        if self._open is not None:
            if self._open[1]:
                self._untold.append(self._open)
            self._open = None

    def write_failed(self) -> None:
        """Nothing of the write that was going on has happened."""
        if self._open is not None:
            self._failures += 1  # first: there is no moment at which memory seems to be right
            self._open = None

    @property
    def failed(self) -> bool:
        """True while something of a write that failed may be in memory."""
        return self._failures != self._settled

    @property
    def uncertain(self) -> bool:
        """True while memory may hold what is on record nowhere: of a write that failed, or that goes on."""
        return self.failed or self._open is not None

    @property
    def failures(self) -> int:
        return self._failures

    def settle(self, failures: int) -> None:
        """Memory was read anew, begun after so many failures."""
        self._settled = failures

    def next_untold(self) -> list[Change] | None:
        """The first of what is on record and was told to nobody yet: the states as one write left them."""
        if not self._untold:
            return None
        position, rows = self._untold.pop(0)
        kept = [(key, data) for key, data in sorted(rows.items()) if data is not None]
        return [Change(key, row_of(data).state, position) for key, data in kept]
