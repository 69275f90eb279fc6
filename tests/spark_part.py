"""The Spark part of the suite: which tests it is, what JVM they get, who runs them, and how long they took.

A test is of it when it uses the fixture `spark`, the session of its process, or when it is marked `spark` because it
starts a Spark of its own. Two processes share the part, each with one session, and whichever is free takes the next
file of tests as a whole: what a file does first costs the most, and what its tests share is made once.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROMISED_S = 8 * 60
"""What the part takes at most on two cores."""

_CONF = Path(__file__).with_name("spark_conf")
_FILES = "tests/pipeline/"
LONG = ("kills", "cluster", "lake_commands", "demo")
"""Files of few tests that take long: together they are a unit, large enough not to be begun last."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ["SPARK_CONF_DIR"] = str(_CONF)  # also for the processes that tests start
    config.pluginmanager.register(SparkTime(), "spark time")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`: files of the part as units, any other test by itself.

    The groups of xdist itself are void: it writes them into the ids of tests, which pytest 9.2 does not read there
    (pytest-xdist issue 1386).
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    scheduler = LoadScopeScheduling(config, log)
    scheduler._split_scope = unit_of
    return scheduler


def unit_of(nodeid: str) -> str:
    """What is run in one process and in order: a file of the part, or a test."""
    path = nodeid.partition("::")[0]
    if not path.startswith(_FILES):
        return nodeid
    return "long" if path.removeprefix(f"{_FILES}test_").removesuffix(".py") in LONG else path


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
