"""--past-damage: a command continues after damage, and reports what it left out.

The log is opened so that every read continues (`everlog.stores.past_damage`), and views are computed in memory for
this answer only. So a command needs nothing but the option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlog.cli.output import SCHEMA_VERSION, json_text, pairs
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.cli.output import Output
    from everlog.errors import Damaged

SHOWN_MAX = 20


class LeftOut:
    """The positions that a run has left out of its answer."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._ranges: dict[tuple[int, int], str] = {}

    def take(self, error: Damaged) -> None:
        """Note damage that a read skips. The same damage may be found many times."""
        first = error.details["position"]
        self.add(first, error.details.get("after", first), file=str(error.details.get("file", "")), why=error.why)

    def add(self, first: int, last: int, *, file: str = "", why: str = "") -> None:
        if (first, last) in self._ranges:
            return
        self._ranges[first, last] = file
        if len(self._ranges) <= SHOWN_MAX:
            where = f"#{first}" if first == last else f"#{first} to #{last}"
            self._out.warn(f"left out {where}{f' in {file}' if file else ''}{f': {why}' if why else ''}")

    def report(self) -> None:
        """Print at the end of the run, to standard error, how much was left out, and where."""
        if not self._ranges:
            return
        ranges = _joined(sorted(self._ranges))
        count = sum(last - first + 1 for first, last in ranges)
        files = sorted({file for file in self._ranges.values() if file})
        facts: dict[str, Any] = {"count": count, "positions": [list(one) for one in ranges], "files": files}
        if self._out.json:
            self._out.note(json_text({"schema_version": SCHEMA_VERSION, "left_out": facts}))
        elif self._out.agent:
            self._out.note("LEFT_OUT " + pairs(facts))
        else:
            listed = ", ".join(
                f"#{first}" if first == last else f"#{first} to #{last}" for first, last in ranges[:SHOWN_MAX]
            )
            more = f" and {len(ranges) - SHOWN_MAX} more ranges" if len(ranges) > SHOWN_MAX else ""
            self._out.note(
                f"left out: {counted(count, 'position')} that cannot be read, {listed}{more}; "
                + self._out.as_typed("everlog verify shows what is wrong")
            )


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted ranges with those merged that touch or overlap."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
