"""How the suite is divided among processes, and what it prints of its time: tests/schedule.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.schedule import (
    OWN_SPARK,
    OWN_SPARK_UNIT,
    SLOW_S,
    TimeSpent,
    pytest_xdist_make_scheduler,
    seconds_of,
    unit_of,
)

ROOT = Path(__file__).parent.parent
SLOWEST = max(SLOW_S, key=SLOW_S.__getitem__)


def test_a_file_stays_in_one_process_and_the_tests_of_a_slow_one_go_anywhere() -> None:
    first, second = (unit_of(f"tests/pipeline/tables/test_gold.py::test_{name}") for name in "ab")
    assert first == second
    assert unit_of("tests/core/test_ids.py::test_a") == unit_of("tests/core/test_ids.py::test_b")
    assert unit_of(f"{SLOWEST}::test_a") != unit_of(f"{SLOWEST}::test_b")


def test_tests_that_start_a_spark_are_one_unit() -> None:
    assert {unit_of(f"{path}::test_a") for path in OWN_SPARK} == {OWN_SPARK_UNIT}
    assert (
        seconds_of(OWN_SPARK_UNIT) > seconds_of("tests/pipeline/tables/test_gold.py") > seconds_of("tests/core/x.py")
    )


def test_the_files_that_are_named_are_there() -> None:
    assert [path for path in (*OWN_SPARK, *SLOW_S) if not (ROOT / path).exists()] == []


class Node:
    """A process, as far as the scheduler talks to it."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.given: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.given += places

    def shutdown(self) -> None:
        self.shutting_down = True


def test_the_longest_units_begin_first() -> None:
    tests = ["tests/core/test_ids.py::test_a", f"{SLOWEST}::test_a", f"{SLOWEST}::test_b", f"{OWN_SPARK[0]}::test_a"]
    options = {"dist": "loadgroup", "tx": ["popen", "popen"]}
    config: Any = SimpleNamespace(
        getoption=options.get, getvalue=options.get, option=SimpleNamespace(loadscopereorder=True)
    )
    scheduler = pytest_xdist_make_scheduler(config, SimpleNamespace(loadscopesched=lambda *said: None))
    nodes: list[Any] = [Node("gw0"), Node("gw1")]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    longest = sorted(range(len(tests)), key=lambda place: -seconds_of(unit_of(tests[place])))
    assert [nodes[0].given[0], nodes[1].given[0]] == longest[:2]
    assert nodes[1].given[-1] == 0


def report(test: str, seconds: float, worker: str, end: float) -> Any:
    return SimpleNamespace(nodeid=test, duration=seconds, start=end - seconds, stop=end, worker_id=worker)


def test_a_run_shows_where_its_time_went() -> None:
    time = TimeSpent()
    time.began = 100.0
    time.pytest_runtest_logreport(report("tests/log/write/test_a.py::test_a", 4.0, "gw0", 109.0))
    time.pytest_runtest_logreport(report("tests/log/test_b.py::test_b", 1.0, "gw1", 108.5))
    time.pytest_runtest_logreport(report("tests/test_c.py::test_c", 6.0, "gw1", 116.0))
    assert list(time.lines()) == [
        "    5.0 s until the first test",
        "   11.0 s of tests in 2 processes, which ended 7.0 s apart; by folder:",
        "    6.0 s  tests",
        "    5.0 s  tests/log",
        "the 25 files that took most:",
        "    6.0 s  tests/test_c.py",
        "    4.0 s  tests/log/write/test_a.py",
        "    1.0 s  tests/log/test_b.py",
    ]
