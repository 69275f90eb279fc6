"""--past-damage: a command that reads goes on behind damage, and reports what it left out.

The log is opened so that every read of it goes on (`everlog.stores.past_damage`), and views fold in memory for this
answer alone. So a command needs only the option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlog.cli.output import SCHEMA_VERSION, json_text, pairs
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.cli.output import Output
    from everlog.errors import Damaged

TOLD_MAX = 20


class LeftOut:
    """What a run has left out of its answer."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._places: dict[tuple[int, int], str] = {}

    def take(self, error: Damaged) -> None:
        """A read goes past this damage; the same one may be met many times."""
        first = error.details["position"]
        self.add(first, error.details.get("after", first), file=str(error.details.get("file", "")), why=error.why)

    def add(self, first: int, last: int, *, file: str = "", why: str = "") -> None:
        if (first, last) in self._places:
            return
        self._places[first, last] = file
        if len(self._places) <= TOLD_MAX:
            place = f"#{first}" if first == last else f"#{first} to #{last}"
            self._out.warn(f"left out {place}{f' in {file}' if file else ''}{f': {why}' if why else ''}")

    def report(self) -> None:
        """At the end of the run, on standard error: how much was left out, and where."""
        if not self._places:
            return
        places = _joined(sorted(self._places))
        count = sum(last - first + 1 for first, last in places)
        files = sorted({file for file in self._places.values() if file})
        facts: dict[str, Any] = {"count": count, "positions": [list(place) for place in places], "files": files}
        if self._out.json:
            self._out.note(json_text({"schema_version": SCHEMA_VERSION, "left_out": facts}))
        elif self._out.agent:
            self._out.note("LEFT_OUT " + pairs(facts))
        else:
            told = ", ".join(f"#{first}" if first == last else f"#{first} to #{last}" for first, last in places[:20])
            more = f" and {len(places) - 20} more places" if len(places) > TOLD_MAX else ""
            self._out.note(
                f"left out: {counted(count, 'position')} that cannot be read, {told}{more}; "
                + self._out.as_typed("everlog verify says what is wrong")
            )


def _joined(places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Places in order, with those that touch or overlap made one."""
    joined: list[tuple[int, int]] = []
    for first, last in places:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined
