"""Which process runs which tests, in which order, and where the time of a run goes.

With `--dist loadgroup`, whichever process is free takes the next unit, the longest first, so that all processes end
with short units and at the same time. A unit is a file: what its tests share is made once. The tests of a slow file
(`SLOW_S`) are units of their own. All tests that use Spark run in one process, and begin first: a second session
would cost as much again to start and to warm up, and tests that start a Spark of their own never run at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SLOW_S = {
    "tests/stores/test_handles.py": 25,
    "tests/server/listen/test_slow_clients.py": 14,
    "tests/server/listen/test_stopping.py": 11,
    "tests/server/test_killed.py": 10,
    "tests/server/test_histories.py": 8,
    "tests/stores/segments/test_damage.py": 7,
    "tests/programs/test_one_key.py": 6,
    "tests/cli/test_demo.py": 5,
    "tests/crash/test_table.py": 5,
    "tests/programs/workpackages/test_merging.py": 5,
    "tests/stores/postgres/test_machine.py": 5,
    "tests/stores/test_machine.py": 5,
    "tests/consumers/test_processes.py": 4,
    "tests/stores/jsonl/test_crash.py": 4,
    "tests/visible/test_stored_logs.py": 4,
    "tests/crash/test_kill_views.py": 3,
    "tests/stores/segments/test_crash.py": 3,
    "tests/stores/segments/test_planted.py": 3,
    "tests/sync/test_histories.py": 3,
    "tests/log/verify/test_verify_beside.py": 3,
    "tests/log/verify/test_verify_memory.py": 3,
    "tests/stores/test_beside_killed_writers.py": 3,
    "tests/transfer/git/test_interleaved.py": 3,
}
"""Files whose tests go to any process, with the seconds that the longest of them takes on an idle machine."""

SPARK_FILES = ("tests/pipeline/", "tests/docs/test_docs.py")
"""Where the tests are that use the Spark session of the run, or start a Spark of their own, as some pages do."""
SPARK_FILE_S = 60
"""More than any other unit takes: the process that runs these has the longest way to go."""

FILES_SHOWN = 25


def unit_of(nodeid: str) -> str:
    """What is run in one process and in order."""
    path = nodeid.partition("::")[0]
    return nodeid if path in SLOW_S else path


def seconds_of(unit: str) -> int:
    """How long a unit takes, as far as that matters for the order."""
    if unit.startswith(SPARK_FILES):
        return SPARK_FILE_S
    return SLOW_S.get(unit.partition("::")[0], 0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The groups of xdist itself are void: it writes them into the ids of tests, which pytest 9.2 does not read there
    (pytest-xdist issue 1386)."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            first = next(one for one in self.nodes if not one.shutting_down)
            units = [unit for unit in self.workqueue if node is first or not unit.startswith(SPARK_FILES)]
            if not units:
                node.shutdown()  # after what it has: the rest is for the process with the Spark session
                return
            longest = max(units, key=seconds_of)  # of those that are equal, the one with the most tests
            self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return LongestFirst(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(TimeSpent(), "time spent")


class TimeSpent:
    """Adds up what tests take with all that is made for them, and prints it by folder and by file.

    Only of a run that is divided among processes: the others are runs of a few tests.
    """

    def __init__(self) -> None:
        self.began = time.time()
        self.first = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.ended: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.first = self.first or report.start
        self.seconds[report.nodeid.partition("::")[0]] += report.duration
        if hasattr(report, "worker_id"):
            self.ended[report.worker_id] = report.stop

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.ended) > 1:
            terminalreporter.section("where the time goes")
            for line in self.lines():
                terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        folders: dict[str, float] = defaultdict(float)
        for path, seconds in self.seconds.items():
            parts = path.split("/")
            folders["/".join(parts[:2]) if len(parts) > 2 else parts[0]] += seconds
        total, apart = sum(folders.values()), max(self.ended.values()) - min(self.ended.values())
        yield f"{self.first - self.began:7.1f} s until the first test"
        yield f"{total:7.1f} s of tests in {len(self.ended)} processes, which ended {apart:.1f} s apart; by folder:"
        yield from _largest_first(folders)
        yield f"the {FILES_SHOWN} files that took most:"
        yield from list(_largest_first(self.seconds))[:FILES_SHOWN]


def _largest_first(seconds: dict[str, float]) -> Iterator[str]:
    for name, took in sorted(seconds.items(), key=lambda item: -item[1]):
        yield f"{took:7.1f} s  {name}"
