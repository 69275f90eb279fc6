"""What is wrong with the lines of an import, as messages: the first hundred, and one for all lines of a shape."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

PROBLEMS_MAX = 100


class Problem(msgspec.Struct):
    """A reason, the first line that it was found at, and the number of such lines."""

    where: str
    reason: str
    lines: int = 1
    of_shape: bool = False

    def __str__(self) -> str:
        more = f" and {self.lines - 1:,} more {'line' if self.lines == 2 else 'lines'}" if self.lines > 1 else ""
        return f"{self.where}{more}: {self.reason}"


class Problems(msgspec.Struct):
    """Problems in the order in which they were found. Those of one shape are one."""

    found: list[Problem] = []
    lines: int = 0  # also those that are not kept
    shapes: dict[str, int] = {}  # the index of each shape in `found`

    def add(self, where: str, reason: str, *, of_shape: bool = False) -> None:
        self._add(Problem(where, reason, of_shape=of_shape))

    def extend(self, others: Iterable[Problem], lines: int) -> None:
        """Add the problems of another file."""
        before = self.lines
        for other in others:
            self._add(other)
        self.lines = before + lines

    def _add(self, problem: Problem) -> None:
        self.lines += problem.lines
        if problem.of_shape and problem.reason in self.shapes:
            self.found[self.shapes[problem.reason]].lines += problem.lines
        elif not self.are_many:
            if problem.of_shape:
                self.shapes[problem.reason] = len(self.found)
            self.found.append(problem)

    @property
    def are_many(self) -> bool:
        return len(self.found) >= PROBLEMS_MAX

    def texts(self) -> list[str]:
        return list(map(str, self.found))
