"""Whether a store recovers: from every disk that a crash can leave (`crash_states`), and from flipped bits.

A store is judged by numbers: which were tried, which acknowledged, and which it finds. Nothing acknowledged may be
lost, nothing invented, doubled or reordered, and what was served once must survive the next crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.crash_states import CrashState, Effort, power_cuts
from tests.support.faults import RecordingFiles

Recover = Callable[[RecordingFiles], Sequence[int]]
Append = Callable[[RecordingFiles, int], None]


@dataclass(frozen=True, slots=True)
class Violation:
    kind: str
    label: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.label}): {self.detail}"


@dataclass(slots=True)
class Report:
    states: int = 0
    nested: int = 0
    violations: list[Violation] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        return {violation.kind for violation in self.violations}

    def __str__(self) -> str:
        lines = [f"{self.states} states, {self.nested} nested, {len(self.violations)} violations"]
        return "\n".join([*lines, *(f"  {violation}" for violation in self.violations[:5])])


def check(
    recover: Recover,
    states: Iterable[CrashState],
    *,
    append: Append | None = None,
    nested_max: int = 100,
    effort: Effort = Effort(exhaustive_max=64, samples=16, tears_max=6),  # noqa: B008 - frozen
    first_only: bool = False,
) -> Report:
    """Recover from each state and hold the result against what was tried and acknowledged.

    `recover` opens the store, reads it all and returns the numbers it found, in order. What it returns has been
    served: it must survive the next crash, too. `append` opens the store and adds one. Every kill, and `nested_max`
    of the power cuts, crash again during recovery and append; `effort` bounds that second level. Nothing happens to a
    disk after its second crash, so each such disk is recovered once, and judged for every set of promises that it is
    found with. `first_only` stops at the first violation.

    What a store finds depends on what a reader sees of the disk, and on nothing else. So where no second crash
    follows, each disk as a reader sees it is recovered and extended once, however many crashes lead to it.
    """
    report = Report()
    remembered = _Remembered(recover, append)
    everything = list(states)
    cuts = [index for index, state in enumerate(everything) if state.killed is None]
    deeper = set(random.Random(effort.seed).sample(cuts, min(nested_max, len(cuts))))
    seen: set[object] = set()
    known: dict[object, _Found] = {}
    for index, state in enumerate(everything):
        if first_only and report.violations:
            break
        report.states += 1
        files = state.files()
        since = len(files.trace)
        crashes_again = state.killed is not None or index in deeper
        found = known[state.key] = _recover_twice(remembered, files, for_good=not crashes_again)
        if not _judge(found, state, report):
            continue
        if append:
            number = max((*state.tried, 0)) + 1
            if not _extend(remembered, files, found, number, state, report, for_good=not crashes_again):
                continue
        if not crashes_again:
            continue
        for nested in power_cuts(files, effort=effort, since=since, acked=state.acked, tried=state.tried):
            disk = nested.key
            # The same disk with the same promises has been judged, wherever it came from.
            if (disk, nested.acked) not in seen:
                seen.add((disk, nested.acked))
                report.nested += 1
                if disk not in known:
                    known[disk] = _recover_twice(remembered, nested.files(), for_good=True)
                _judge(known[disk], nested, report, f"{state.label}, then ")
    return report


class _Remembered:
    """What `recover` and `append` find, by the disk as a reader sees it.

    With `for_good`, nobody crashes afterwards, and what is known of such a disk is not done again: nothing happens on
    this one.
    """

    def __init__(self, recover: Recover, append: Append | None) -> None:
        self._recover = recover
        self._append = append
        self._found: dict[object, list[int]] = {}
        self._extended: dict[object, list[int]] = {}

    def recover(self, files: RecordingFiles, *, for_good: bool) -> list[int]:
        disk = _as_seen(files)
        if not (for_good and disk in self._found):
            self._found[disk] = list(self._recover(files))
        return self._found[disk]

    def extend(self, files: RecordingFiles, number: int, *, for_good: bool) -> list[int]:
        """Append a number, and return what is found then."""
        assert self._append is not None
        disk = (_as_seen(files), number)
        if not (for_good and disk in self._extended):
            files.tried(number)
            self._append(files, number)
            files.acked(number)
            self._extended[disk] = self.recover(files, for_good=for_good)
        return self._extended[disk]


def _as_seen(files: RecordingFiles) -> object:
    return frozenset(files.visible().items()), frozenset(files.dirs)


@dataclass(frozen=True, slots=True)
class _Found:
    """What two recoveries of a disk in a row gave: numbers, or the text of an error."""

    numbers: list[int] | str
    again: list[int] | str


def _recover_twice(remembered: _Remembered, files: RecordingFiles, *, for_good: bool) -> _Found:
    try:
        numbers = remembered.recover(files, for_good=False)
    except Exception as error:
        return _Found(repr(error), "")
    for number in numbers:
        files.acked(number)  # served: from here on a reader relies on it
    try:
        return _Found(numbers, remembered.recover(files, for_good=for_good))
    except Exception as error:
        return _Found(numbers, repr(error))


def _judge(recovered: _Found, state: CrashState, report: Report, before: str = "") -> bool:
    def found(kind: str, detail: object) -> None:
        report.violations.append(Violation(kind, before + state.label, str(detail)))

    known = len(report.violations)
    numbers = recovered.numbers
    if isinstance(numbers, str):
        found("recovery failed", numbers)
        return False
    place = {number: index for index, number in enumerate(state.tried)}
    if lost := sorted(set(state.acked) - set(numbers)):
        found("lost", lost)
    if invented := [number for number in numbers if number not in place]:
        found("invented", invented)
    if len(set(numbers)) != len(numbers):
        found("duplicated", numbers)
    places = [place[number] for number in numbers if number in place]
    if places != sorted(places):
        found("reordered", numbers)
    if isinstance(recovered.again, str):
        found("recovery failed", f"the second time: {recovered.again}")
    elif recovered.again != numbers:
        found("differs when recovered twice", f"{numbers}, then {recovered.again}")
    return len(report.violations) == known


def _extend(
    remembered: _Remembered,
    files: RecordingFiles,
    found: _Found,
    number: int,
    state: CrashState,
    report: Report,
    *,
    for_good: bool,
) -> bool:
    try:
        after = remembered.extend(files, number, for_good=for_good)
    except Exception as error:
        report.violations.append(Violation("append failed", state.label, repr(error)))
        return False
    if after != [*found.numbers, number]:
        report.violations.append(
            Violation("append unreadable", state.label, f"{found.numbers} + {number} gave {after}")
        )
        return False
    return True


def check_bit_flips(
    recover: Recover,
    files: RecordingFiles,
    acked: Sequence[int],
    spans: Iterable[tuple[Path, range]],
    *,
    loud: type[Exception],
    readable: Recover | None = None,
    damaged_max: int = 1,
    flips: int = 500,
    seed: int = 0,
    first_only: bool = False,
) -> Report:
    """Flip one bit at a time: everything is found, or `loud` is raised, nothing is written and the rest is readable.

    `spans` names the bytes that may be hit. A recovery that must cut torn tails cannot tell a flip in the very last
    record from a tear, unless its format can; leave that record out if so, and say so. `first_only` stops at the
    first violation.
    """
    report = Report()
    chance = random.Random(seed)
    places = [(path, at) for path, span in spans for at in span]
    intact = files.visible()
    for path, at in chance.sample(places, min(flips, len(places))):
        if first_only and report.violations:
            break
        report.states += 1
        content = bytearray(intact[path])
        content[at] ^= 1 << chance.randrange(8)
        damaged = RecordingFiles({**intact, path: bytes(content)}, dirs=files.dirs)
        label = f"flip in {path} at {at}"
        try:
            numbers = list(recover(damaged))
        except loud:
            if damaged.visible() != damaged.base:
                report.violations.append(Violation("wrote over damage", label, "the files changed"))
            rest = list(readable(damaged)) if readable else []
            missing = [number for number in acked if number not in rest] if readable else []
            if len(missing) > damaged_max or any(number not in acked for number in rest):
                report.violations.append(Violation("undamaged unreadable", label, f"missing {missing}"))
            continue
        except Exception as error:
            report.violations.append(Violation("recovery failed", label, repr(error)))
            continue
        if numbers != list(acked):
            report.violations.append(Violation("silent loss", label, f"found {numbers}"))
    return report
