"""How long questions about work packages take in a long log: one package, the board, a move.

    python -m benchmarks.workpackages                        100,000 events, 20 a package, on SQLite
    python -m benchmarks.workpackages --each 1000            the same, in few long streams

The target is a status within 5 ms with 100,000 events in the log. It ends with 1 when that is missed. "never kept" is
a log whose board nobody has asked for; "kept" one where it has been, and "kept, and grown" one that the package has
moved in since.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import median

import everlog
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.programs import perform as run
from everlog.programs.workpackages.commands import Move
from everlog.programs.workpackages.questions import Board, Status

BATCH = 5000
ASKED = 200
TARGET_MS = 5.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--each", type=int, default=20, help="events of one package")
    parser.add_argument("--store", default="sqlite:log.db")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scheme, _, name = chosen.store.partition(":")
        with everlog.open(f"{scheme}:{Path(folder) / name}", actor="user:ada") as log:
            packages = max(1, chosen.events // chosen.each)
            fill(log, packages, chosen.each)
            print(f"{log.head():,} events, {packages:,} packages, {scheme}")
            return measure(log, packages)


def measure(log: Log, packages: int) -> int:
    def ask(number: int) -> None:
        run.ask(log, Status(id=name(number * 37 % packages)))

    slowest = [timed("status, board never kept", ask)]
    once("board, never kept", lambda: run.ask(log, Board()))
    slowest.append(timed("status, board kept", ask))
    timed("board, kept", lambda _: run.ask(log, Board()), times=3)
    timed("move", lambda number: take(log, number % packages), times=50)
    slowest.append(
        timed("status, kept, and grown", lambda number: run.ask(log, Status(id=name(number % 50 % packages))))
    )
    met = max(slowest) <= TARGET_MS
    print(f"{'met' if met else 'MISSED'}: the target is a status within {TARGET_MS:g} ms")
    return 0 if met else 1


def take(log: Log, number: int) -> None:
    lane = run.ask(log, Status(id=name(number)))["lane"]
    to = "for_review" if lane == "doing" else "doing"
    run.perform(log, Move(id=name(number), to=to, reason="to see how long it takes"))


def fill(log: Log, packages: int, each: int) -> None:
    drafts: list[Draft] = []
    for number in range(packages):
        drafts += life(number, each)
        if len(drafts) >= BATCH or number == packages - 1:
            log.append_batch(drafts)
            drafts = []


def life(number: int, each: int) -> list[Draft]:
    stream = f"workpackage/{name(number)}"
    born = {"work_package_id": name(number), "title": "A package", "feature_slug": f"feature-{number % 50}"}
    lanes = ["planned", *islice(cycle(["doing", "for_review"]), each - 1)]
    moves = [{"old_status": before, "new_status": lane, "reason": "again"} for before, lane in pairwise(lanes)]
    return [Draft("WPCreated", stream, born), *(Draft("WPStatusChanged", stream, move) for move in moves)]


def name(number: int) -> str:
    return f"WP{number:06}"


def timed(what: str, ask: Callable[[int], object], *, times: int = ASKED) -> float:
    took = []
    for number in range(times):
        begun = time.perf_counter()
        ask(number)
        took.append((time.perf_counter() - begun) * 1000)
    took.sort()
    print(f"{what:28} {median(took):9.2f} ms   (shortest {took[0]:.2f}, 9 of 10 within {took[times * 9 // 10]:.2f})")
    return median(took)


def once(what: str, do: Callable[[], object]) -> None:
    begun = time.perf_counter()
    do()
    print(f"{what:28} {(time.perf_counter() - begun) * 1000:9.0f} ms   (once)")


if __name__ == "__main__":
    sys.exit(main())
