"""The crash table: `./everlog test --crash` takes logs by surprise in every way there is, and counts what was lost.

Each row is a job in a process of its own, two at a time. A row passes when it was done as often as it should be and
nothing acknowledged was lost, nothing changed in silence, and every log opened again. A row that cannot be run here
(no root, no strace, no PostgreSQL) is skipped and says so; `--strict` makes that a failure.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from tests.crash import flips, full_disk, kills, lost_flushes, planted, power_cuts, processes, states, syscalls
from tests.crash.rows import Row, Scale, timed

# What issue by issue must be shown at least by the whole table, over all stores.
FLOORS = {"states": 20_000, "power cuts": 200, "kills": 300, "system calls": 300, "bit flips": 10_000, "bugs": 25}


@dataclass(frozen=True)
class Job:
    """`times` by scale: in the ordinary suite, in the table, in its long form."""

    name: str
    subject: str
    unit: str
    times: tuple[int, int, int]
    do: Callable[[Row, int, Scale], None]

    @property
    def title(self) -> str:
        return f"{self.name} {self.subject}"


def _states(row: Row, times: int, scale: Scale) -> None:
    states.walk_states(row, states=times, depth=states.SHALLOW if scale is Scale.SUITE else states.NORMAL)


def _kills(row: Row, times: int, scale: Scale) -> None:
    kills.kill_file_writers(row, kills=times)


def _postgres_kills(row: Row, times: int, scale: Scale) -> None:
    kills.kill_postgres_clients(row, kills=times)


def _server_crashes(row: Row, times: int, scale: Scale) -> None:
    kills.crash_servers(row, crashes=times)


def _cuts(row: Row, times: int, scale: Scale) -> None:
    power_cuts.cut_writers(row, cuts=times)


def _xfs_cuts(row: Row, times: int, scale: Scale) -> None:
    power_cuts.cut_writers(row, cuts=times, kind="xfs")


def _control(row: Row, times: int, scale: Scale) -> None:
    power_cuts.control(row, cuts=times)


def _syscalls(row: Row, times: int, scale: Scale) -> None:
    syscalls.fail_calls(row, runs=times)


def _flips(row: Row, times: int, scale: Scale) -> None:
    flips.flip_bits(row, flips=times)


def _lost_flushes(row: Row, times: int, scale: Scale) -> None:
    lost_flushes.lose_flushes(row, flushes=times)


def _full(row: Row, times: int, scale: Scale) -> None:
    full_disk.fill_disks(row, rounds=times)


def _at_once(row: Row, times: int, scale: Scale) -> None:
    processes.write_at_once(row, appends=times)


def _second(row: Row, times: int, scale: Scale) -> None:
    processes.refuse_second_writers(row, rounds=times)


def _woken(row: Row, times: int, scale: Scale) -> None:
    processes.wake_replaced_writers(row, rounds=times)


def _planted(row: Row, times: int, scale: Scale) -> None:
    planted.catch_planted_bugs(row)


# The longest first: two at a time then end together.
JOBS = [
    Job("crash states", "segments", "states", (200, 11_000, 600_000), _states),
    Job("crash states", "jsonl", "states", (200, 9_500, 450_000), _states),
    Job("planted bugs", "all", "bugs", (0, 25, 25), _planted),
    Job("bit flips", "segments", "bit flips", (150, 4_000, 400_000), _flips),
    Job("bit flips", "jsonl", "bit flips", (150, 3_500, 400_000), _flips),
    Job("bit flips", "sqlite", "bit flips", (150, 3_000, 400_000), _flips),
    Job("server crashes", "postgres", "kills", (1, 8, 200), _server_crashes),
    *(
        Job("failing calls", store, "system calls", (12, 110, 1_700), _syscalls)
        for store in ("sqlite", "jsonl", "segments")
    ),
    *(
        Job("lost flushes", store, "flushes", (8, 20, 200), _lost_flushes)
        for store in ("sqlite", "jsonl", "segments")
    ),
    *(Job("power cuts", store, "power cuts", (10, 70, 1_700), _cuts) for store in ("sqlite", "jsonl", "segments")),
    *(Job("cuts on XFS", store, "power cuts", (0, 0, 1_700), _xfs_cuts) for store in ("sqlite", "jsonl", "segments")),
    *(Job("cuts, no flushes", store, "controls", (3, 4, 20), _control) for store in ("sqlite", "jsonl", "segments")),
    *(Job("kills", store, "kills", (16, 80, 1_250), _kills) for store in ("sqlite", "jsonl", "segments")),
    Job("kills", "postgres", "kills", (8, 60, 1_250), _postgres_kills),
    *(Job("8 processes", store, "appends", (25, 120, 5_000), _at_once) for store in ("sqlite", "jsonl", "postgres")),
    Job("second writer", "segments", "refusals", (2, 20, 200), _second),
    Job("woken writer", "segments", "takeovers", (3, 20, 200), _woken),
    *(Job("full disk", store, "rounds", (5, 20, 500), _full) for store in ("sqlite", "jsonl", "segments")),
]


def jobs_at(scale: Scale) -> list[Job]:
    return [job for job in JOBS if job.times[scale]]


def run_job(index: int, scale: Scale) -> Row:
    job = JOBS[index]
    times = job.times[scale]
    return timed(lambda row: job.do(row, times, scale), Row(job.name, job.subject, job.unit, wanted=times))


# ---- the command


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    scale = Scale.LONG if options.full else Scale.TABLE
    chosen = [job for job in jobs_at(scale) if not options.only or any(word in job.title for word in options.only)]
    if not chosen:
        print(f"no row is called {' or '.join(options.only)}: " + ", ".join(sorted({job.title for job in JOBS})))
        return 2
    started = time.monotonic()
    rows: list[Row] = []
    if not options.json:
        print(_line("", "", "count", "of", "lost", "silent", "unopened", "seconds", "", ""))
    for row in _run(chosen, scale, options.processes):
        rows.append(row)
        if not options.json:
            _show(row)
    return _end(rows, whole=not options.only, options=options, seconds=time.monotonic() - started)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./everlog test --crash", description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the long form, of hours")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--strict", action="store_true", help="what cannot be run here is a failure")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, 2), help="rows at a time")
    parser.add_argument("only", nargs="*", metavar="ROW", help="a part of a row's name, such as kills or jsonl")
    return parser.parse_args(arguments)


def _run(jobs: list[Job], scale: Scale, processes: int) -> Iterator[Row]:
    # Spawned, not forked: what a row opens, sets and leaves behind is its own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        running = {pool.submit(run_job, JOBS.index(job), scale): job for job in jobs}
        for future in as_completed(running):
            error = future.exception()
            if error is None:
                yield future.result()
                continue
            job = running[future]
            row = Row(job.name, job.subject, job.unit)
            row.broken(f"the row itself failed: {error!r}")
            yield row


def _show(row: Row) -> None:
    told = row.skipped or row.remark
    figures = (row.count, row.unit, row.lost_events, row.silent_changes, row.failed_restarts, f"{row.seconds:.1f}")
    print(_line(row.name, row.subject, *map(str, figures), row.verdict, told), flush=True)
    for problem in row.problems:
        print(f"    {problem}", flush=True)


def _line(name: str, subject: str, *rest: str) -> str:
    count, unit, lost, silent, unopened, seconds, verdict, told = rest
    left = f"{name:<17}{subject:<10}{count:>8} {unit:<13}{lost:>6}{silent:>8}{unopened:>10}{seconds:>9}"
    return f"{left}  {verdict:<8}{told}".rstrip()


def _end(rows: list[Row], *, whole: bool, options: argparse.Namespace, seconds: float) -> int:
    totals: dict[str, int] = {}
    for row in rows:
        totals[row.unit] = totals.get(row.unit, 0) + row.count
    skipped = [row for row in rows if row.skipped]
    units = {row.unit for row in skipped}
    short = {
        unit: floor for unit, floor in FLOORS.items() if whole and totals.get(unit, 0) < floor and unit not in units
    }
    passed = [row for row in rows if row.verdict == "passed"]
    failed = [row for row in rows if row not in passed and (options.strict or not row.skipped)]
    if options.json:
        figures = {"totals": totals, "too_few": short, "seconds": round(seconds, 1)}
        counted = {"passed": len(passed), "failed": len(failed), "skipped": len(skipped)}
        print(json.dumps({**counted, **figures, "rows": [row.as_object() for row in rows]}, indent=2))
    else:
        for unit, floor in short.items():
            print(f"too few: {totals.get(unit, 0)} {unit}, at least {floor} are wanted")
        lost, silent = sum(row.lost_events for row in rows), sum(row.silent_changes for row in rows)
        said = ", ".join(f"{count} {unit}" for unit, count in totals.items())
        aside = f", {len(skipped)} skipped" if skipped else ""
        print(f"{said}; {lost} acknowledged events lost, {silent} silent changes, {seconds:.0f} s")
        print(f"{len(passed)} passed, {len(failed)} failed{aside}")
    return 1 if failed or short else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
