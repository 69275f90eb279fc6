"""What the suite says of its Spark part: tests/spark_part.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.spark_part import SparkTime, pytest_collection_modifyitems


def report(test: str, seconds: float, *, keywords: tuple[str, ...] = ("spark",), **more: Any) -> Any:
    return SimpleNamespace(nodeid=test, duration=seconds, keywords=keywords, skipped=False, **more)


def test_the_longer_of_two_processes_is_how_long_the_part_took() -> None:
    time = SparkTime()
    for one in (
        report("a", 1.0, worker_id="gw0"),
        report("a", 40.0, worker_id="gw0"),
        report("b", 60.0, worker_id="gw1"),
        report("other", 500.0, worker_id="gw0", keywords=()),
    ):
        time.pytest_runtest_logreport(one)
    assert list(time.lines()) == [
        "Spark part: 2 tests, 60 s (60 s and 41 s side by side); promised are 480 s on 2 cores"
    ]


def test_one_process_has_it_all_and_without_such_tests_nothing_is_printed() -> None:
    time = SparkTime()
    assert list(time.lines()) == []
    time.pytest_runtest_logreport(report("a", 3.2))
    assert list(time.lines()) == ["Spark part: 1 tests, 3 s; promised are 480 s on 2 cores"]


def test_a_test_that_uses_the_session_is_part_of_it() -> None:
    marked: list[Any] = []
    users = [SimpleNamespace(fixturenames=names, add_marker=marked.append) for names in (("tmp_path",), ("spark",))]
    pytest_collection_modifyitems(users)  # type: ignore[arg-type]
    assert [mark.name for mark in marked] == ["spark"]
