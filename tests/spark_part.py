"""The Spark part of the suite: which tests it is, what JVM they get, and how long they took.

A test is of it when it uses the fixture `spark`, the session of its process, or when it is marked `spark` because it
starts a Spark of its own. One process runs them all, with one session (`tests/schedule.py`).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

PROMISED_S = 8 * 60
"""What the part takes at most on two cores."""

_CONF = Path(__file__).with_name("spark_conf")


def pytest_configure(config: pytest.Config) -> None:
    os.environ["SPARK_CONF_DIR"] = str(_CONF)  # also for the processes that tests start
    config.pluginmanager.register(SparkTime(), "spark time")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


class SparkTime:
    """Adds up what the tests of the part take in each process, and tells it at the end of the run."""

    def __init__(self) -> None:
        self.tests: set[str] = set()
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "spark" not in report.keywords or report.skipped:
            return
        self.tests.add(report.nodeid)
        self.seconds[getattr(report, "worker_id", "")] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self.lines():
            terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        if not self.tests:
            return
        parts = sorted(self.seconds.values(), reverse=True)
        shared = f" ({' and '.join(f'{part:.0f} s' for part in parts)} side by side)" if len(parts) > 1 else ""
        yield f"Spark part: {len(self.tests)} tests, {parts[0]:.0f} s{shared}; promised are {PROMISED_S} s on 2 cores"
