"""Every disk that a crash can leave of a file store, while it appends, purges, copies or imports (R1).

The enumerator is `tests.support.crash_states`: a strict model of a disk and one like ext4, kills beside power cuts,
and a second crash during the recovery from the first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from tests.crash.rows import Row
from tests.crash.subjects import SUBJECTS, Subject, small_and_quiet
from tests.crash.workloads import WORKLOADS, Work
from tests.support.crash_states import CrashState, Effort, kills, power_cuts
from tests.support.recovery import Report, Violation, check

SILENT = {"invented", "reordered", "duplicated", "differs when recovered twice", "append unreadable"}


@dataclass(frozen=True)
class Depth:
    """How far each trace is walked."""

    cuts: Effort
    nested: Effort
    states_max: int  # of one trace; more are drawn from
    nested_of: int  # one of so many states crashes again during its recovery
    killed_max: int  # so many kills crash again, at each of their steps
    extended_of: int = 8  # and one of so many is appended to, or finished, afterwards


SHALLOW = Depth(Effort(exhaustive_max=16, samples=6, tears_max=4), Effort(4, 1, 1), 36, 36, 1)
NORMAL = Depth(Effort(exhaustive_max=512, samples=120, tears_max=40), Effort(8, 4, 2), 1050, 250, 4)


def walk_states(row: Row, *, states: int, depth: Depth, seed: int = 0) -> None:
    """Walk all workloads in turn, each with other events every time, until so many distinct states were judged."""
    subject = SUBJECTS[row.subject]
    per_workload: Counter[str] = Counter()
    nested = 0
    with small_and_quiet():
        while row.count < states:
            for name, workload in WORKLOADS.items():
                report = examine(subject, workload(subject, Random(f"{seed} {name}")), depth, seed)
                row.count += report.states + report.nested
                nested += report.nested
                per_workload[name] += report.states + report.nested
                tell(row, name, report)
                if row.count >= states and len(per_workload) == len(WORKLOADS):
                    break
            seed += 1
    row.remark = f"{nested} nested; " + ", ".join(f"{name} {count}" for name, count in per_workload.items())


def examine(subject: Subject, work: Work, depth: Depth, seed: int) -> Report:
    """Judge the states of one trace."""
    chance = Random(seed)
    cuts = power_cuts(
        work.files, effort=Effort(depth.cuts.exhaustive_max, depth.cuts.samples, depth.cuts.tears_max, seed)
    )
    cuts = [state for state in cuts if _is_after(work, state)] if work.since else cuts
    states = [*cuts, *kills(work.files)[work.since :]]
    if len(states) > depth.states_max:
        states = chance.sample(states, depth.states_max)
    # Kills crash again as well; of those a few will do.
    killed = [state for state in states if state.killed is not None]
    spared = set(map(id, chance.sample(killed, max(len(killed) - depth.killed_max, 0))))
    extended = [state for state in states if id(state) not in spared][:: depth.extended_of]
    apart = set(map(id, extended))
    report = check(
        work.recover,
        [state for state in states if id(state) not in apart and id(state) not in spared],
        nested_max=len(states) // depth.nested_of,
        effort=depth.nested,
    )
    return _sum(
        report,
        check(work.recover, [_as_cut(state) for state in states if id(state) in spared], nested_max=0),
        check(work.recover, extended, append=work.append, nested_max=1, effort=depth.nested),
        _finished(work, extended),
    )


def tell(row: Row, name: str, report: Report) -> None:
    for violation in report.violations:
        what = f"{row.subject}, {name}: {violation}"
        if violation.kind == "lost":
            row.lost(what)
        elif violation.kind in SILENT:
            row.changed(what)
        else:
            row.broken(what)


def _is_after(work: Work, state: CrashState) -> bool:
    """Nothing but what was there before has been acknowledged yet at an earlier point of the trace."""
    return int(state.label.rpartition(" ")[2]) >= work.since


def _as_cut(state: CrashState) -> CrashState:
    """The disk that a kill left, without the steps behind it: as it is after somebody has flushed everything."""
    return CrashState(state.contents, state.dirs, state.acked, state.tried, state.label)


def _finished(work: Work, states: list[CrashState]) -> Report:
    report = Report()
    for state in states if work.finish is not None else ():
        assert work.finish is not None
        try:
            work.finish(state.files())
        except Exception as error:
            report.violations.append(Violation("could not be finished", state.label, repr(error)))
    return report


def _sum(*reports: Report) -> Report:
    return Report(
        sum(report.states for report in reports),
        sum(report.nested for report in reports),
        [violation for report in reports for violation in report.violations],
    )
