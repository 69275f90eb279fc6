"""What a view took in within writes of the log: told once that is committed, forgotten if the write failed.

Who writes never waits here. That a write failed is only noted, and settled by whoever comes next.
"""

from __future__ import annotations

from collections.abc import Iterator

from everlog.views.fold import Folded

_Item = tuple[int, Folded]  # what was changed, and the revision that the build has once that is committed


class News:
    def __init__(self) -> None:
        self._untold: list[_Item] = []
        self._taken_in: _Item | None = None  # of the write that is going on, or was the last
        self._failed: list[_Item | None] = []

    def begin_write(self) -> None:
        self._taken_in = None

    def took_in(self, revision: int, done: Folded) -> None:
        self._taken_in = (revision, done)
        self._untold.append(self._taken_in)

    def write_failed(self) -> None:
        """The write that began last has failed, whether anything of it was taken in or not."""
        self._failed.append(self._taken_in)

    @property
    def unsettled(self) -> bool:
        """True while a write has failed, and what is in memory may still be of it."""
        return bool(self._failed)

    def forget_failed(self) -> None:
        """Leave out what the first of the failed writes would have told."""
        lost = self._failed.pop(0)
        self._untold = [item for item in self._untold if item is not lost]

    def __bool__(self) -> bool:
        return bool(self._untold)

    def committed(self, revision: int) -> Iterator[Folded]:
        """What is to be told now; a later one belongs to a write that is still going on."""
        while self._untold and self._untold[0][0] <= revision:
            yield self._untold.pop(0)[1]
