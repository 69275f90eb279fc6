"""How the suite is divided among processes, and what it prints of its time: tests/schedule.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.schedule import SLOW_S, SPARK_FILES, TimeSpent, pytest_xdist_make_scheduler, seconds_of, unit_of

ROOT = Path(__file__).parent.parent
PIPELINE = SPARK_FILES[0]
SPARK = f"{PIPELINE}tables/test_gold.py"
SLOWEST = max(SLOW_S, key=SLOW_S.__getitem__)


def test_a_file_stays_in_one_process_and_the_tests_of_a_slow_one_go_anywhere() -> None:
    first, second = (unit_of(f"tests/pipeline/tables/test_gold.py::test_{name}") for name in "ab")
    assert first == second
    assert unit_of("tests/core/test_ids.py::test_a") == unit_of("tests/core/test_ids.py::test_b")
    assert unit_of(f"{SLOWEST}::test_a") != unit_of(f"{SLOWEST}::test_b")


def test_the_files_that_are_named_are_there() -> None:
    assert [path for path in (*SPARK_FILES, *SLOW_S) if not (ROOT / path).exists()] == []


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


def scheduled(tests: list[str], processes: int) -> tuple[Any, list[Any]]:
    options = {"dist": "loadgroup", "tx": ["popen"] * processes}
    config: Any = SimpleNamespace(
        getoption=options.get, getvalue=options.get, option=SimpleNamespace(loadscopereorder=True)
    )
    scheduler = pytest_xdist_make_scheduler(config, SimpleNamespace(loadscopesched=lambda *said: None))
    nodes: list[Any] = [Node(f"gw{number}") for number in range(processes)]
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    return scheduler, nodes


def test_the_longest_units_begin_first() -> None:
    tests = ["tests/core/test_ids.py::test_a", f"{SLOWEST}::test_a", f"{SLOWEST}::test_b", f"{SPARK}::test_a"]
    _, nodes = scheduled(tests, 2)
    longest = sorted(range(len(tests)), key=lambda place: -seconds_of(unit_of(tests[place])))
    assert [nodes[0].given[0], nodes[1].given[0]] == longest[:2]
    assert nodes[1].given[-1] == 0


def test_all_tests_that_use_spark_go_to_one_process_and_the_others_end_without_them() -> None:
    files = [f"{PIPELINE}test_{name}.py" for name in "abc"]
    spark = [f"{file}::test_{number}" for file in files for number in range(3)]
    tests = [*spark, "tests/core/test_ids.py::test_a", "tests/core/test_kinds.py::test_a"]
    scheduler, (first, *others) = scheduled(tests, 3)
    assert sorted(place for other in others for place in other.given) == [9, 10]
    assert [other.shutting_down for other in others] == [True, True]
    for place in range(9):
        assert place in first.given, "it is given the next file before it ends with the last one"
        scheduler.mark_test_complete(first, place)
    assert first.shutting_down


def test_another_process_takes_over_the_tests_that_use_spark_from_one_that_crashed() -> None:
    tests = [f"{PIPELINE}test_{name}.py::test_{number}" for name in "ab" for number in range(3)]
    scheduler, (first, other) = scheduled([*tests, *(f"tests/core/test_ids.py::test_{number}" for number in "ab")], 2)
    assert (first.given, other.given) == ([0, 1, 2], [6, 7])
    assert other.shutting_down
    assert scheduler.remove_node(first) == tests[0]
    new: Any = Node("gw2")
    scheduler.add_node(new)
    scheduler.add_node_collection(new, scheduler.collection)
    scheduler.schedule()
    assert new.given[:3] in ([0, 1, 2], [3, 4, 5])


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
