"""What was acknowledged, and whether the log still has it: the judge of every test that takes a log by surprise."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.crash.rows import Row
from tests.crash.victims import FAILED
from tests.crash.writer import READY

import everlog
from everlog.errors import EverlogError


@dataclass
class Ledger:
    """The acknowledgements of one log, by position."""

    url: str
    acknowledged: dict[int, tuple[str, str]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    began: int = 0
    _after: int = 0

    def take(self, output: bytes, row: Row) -> int:
        """Put down what a victim said, and return how many events that was."""
        taken = 0
        for line in output.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                continue  # its end fell into the acknowledgement itself
            if line == READY:
                self.began += 1
            elif line.startswith(FAILED):
                self.failures.append(line.decode().strip())
            else:
                position, event_id, text = line.decode().rstrip("\n").split(" ", 2)
                if int(position) in self.acknowledged:
                    row.changed(f"{self.url}: position {position} was acknowledged twice")
                self.acknowledged[int(position)] = (event_id, text)
                taken += 1
        return taken

    def count_only(self, output: bytes) -> int:
        """How many events a victim spoke of, if nothing may be expected of them."""
        self.began += output.count(READY)
        return sum(1 for line in output.splitlines() if line[:1].isdigit())

    def judge(self, row: Row, *, unacknowledged_max: int, when: str, append: bool = True) -> None:
        """Open the log, look for everything, and append once more."""
        try:
            with everlog.open(self.url, create=False) as log:
                self._compare(log, row, unacknowledged_max, when)
                if append:
                    self._after += 1
                    text = f"after {self._after}"
                    after = log.append("note.added", stream="note/after", payload={"text": text})
                    self.acknowledged[after.position] = (after.event.id, text)
        except (EverlogError, OSError, AssertionError) as error:
            row.broken(f"{when}: the log cannot be opened, read or appended to: {error!r}")

    def _compare(self, log: everlog.Log, row: Row, unacknowledged_max: int, when: str) -> None:
        records = list(log.read())
        found = {recorded.position: (recorded.event.id, recorded.event.payload["text"]) for recorded in records}
        for position, said in self.acknowledged.items():
            there = found.get(position)  # type: ignore[call-overload]
            if there is None:
                row.lost(f"{when}: position {position} was acknowledged and is gone")
            elif there != said:
                row.changed(f"{when}: position {position} was {said} and is {there}")
        if list(found) != list(range(1, len(found) + 1)):
            row.changed(f"{when}: positions are not gapless")
        if len(found) - len(self.acknowledged) > unacknowledged_max:
            row.changed(f"{when}: {len(found) - len(self.acknowledged)} events that nobody was told of")
        for problem in log.verify().problems:
            row.changed(f"{when}: verify: {problem.code} at {problem.position}: {problem.reason}")
        parts: dict[str, int] = {}
        for recorded in records:
            name, _, part = recorded.event.stream.rpartition("-")
            if name and part in "012":
                text = recorded.event.payload["text"].rsplit(" ", 1)[0]
                parts[text] = parts.get(text, 0) + 1
        if set(parts.values()) - {3}:
            row.changed(f"{when}: half of a batch")
        # What was found has been served: from here on it must stay.
        self.acknowledged.update(found)  # type: ignore[arg-type]
