"""`everlog pipeline`: what can be told without Spark. What starts it is tested in tests/pipeline."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from everlog.cli.spark_progress import _Shown
from everlog.pipeline.progress import Status

if TYPE_CHECKING:
    from tests.cli.conftest import Result


def test_without_the_libraries_it_says_what_to_install(
    everlog: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = everlog("pipeline", "check")
    assert found.code == 7
    assert "fail\tlibraries\tthe pipeline needs Spark" in found.out
    assert "everlog[spark,jre]" in found.out


def test_a_setting_that_is_none_of_sparks_is_refused(everlog: Callable[..., Result]) -> None:
    found = everlog("pipeline", "check", "--conf", "driver.memory=2g")
    assert found.code == 2
    assert "is not like spark.driver.memory=2g" in found.err


def test_a_wrong_master_is_refused_before_anything_starts(everlog: Callable[..., Result]) -> None:
    found = everlog("pipeline", "check", "--master", "mars://rover")
    assert found.code == 2
    assert "fail\tstart\t'mars://rover' is not a master of Spark" in found.out


def test_progress_in_words() -> None:
    now = [0.0]
    shown = _Shown("reading", 1000, now=lambda: now[0])
    now[0] = 2.0
    status = Status(stages_done=1, stages=3, tasks_done=4, tasks=8, tasks_failed=1, rows=500)
    assert shown.text(status) == (
        "stage 2 of 3, 4 of 8 tasks, 1 failed and tried again, 500 rows, 250 a second, 2 s left"
    )
    assert shown.part(Status(rows=2000)) == 1.0
    assert _Shown("x", 0).part(status) == 0.5
    assert _Shown("x", 0).text(Status()) == "0 of 0 tasks"
