"""The commands that derive and prove on Spark, as a user types them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Run, everlog, place
from tests.log.verify.test_verify import at, edit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["everlog", "place"]


@pytest.fixture
def log(everlog: Run) -> None:
    everlog("init")
    for number in range(5):
        everlog("append", "note.added", "-s", f"note/{number % 2}", f"text=note {number}")


@pytest.mark.usefixtures("log")
def test_a_view_is_rebuilt_on_spark_and_says_which_engine_it_would_take(spark: SparkSession, everlog: Run) -> None:
    here = everlog("views", "rebuild", "streams", "--json").data
    assert (here["engine"], here["advice"], here["handed_over"]) == ("process", "process", 0)
    assert "5 events take one process about 1 s or less" in here["why"]
    there = everlog("views", "rebuild", "streams", "--engine", "spark", "--json").data
    assert (there["engine"], there["handed_over"], there["position"]) == ("spark", 5, 5)
    assert (there["same"], there["checked"], there["digest"]) == (True, 2, here["digest"])
    reported = everlog("views", "rebuild", "streams", "--engine", "spark")
    assert "this would probably be faster: everlog views rebuild streams --engine process" in reported.err
    assert everlog("views", "rebuild", "streams", "--engine", "auto", "--json").data["engine"] == "process"


@pytest.mark.usefixtures("log")
def test_the_audit_says_what_verify_says(spark: SparkSession, everlog: Run, place: Path) -> None:
    sound, proved = everlog("verify", "--json").data, everlog("pipeline", "audit", "--json").data
    assert (proved.pop("signed"), proved.pop("oddities")) == (0, 0)
    assert {**proved, "took_s": 0} == {**sound, "took_s": 0}
    edit(place / ".everlog" / "log.db", at(2, "payload = replace(payload, '1', '7')"))
    verified, audited = everlog("verify"), everlog("pipeline", "audit")
    assert (verified.code, audited.code) == (8, 8)
    assert [row for row in audited.rows if row[0] not in ("signed", "oddities")] == verified.rows
    assert any(row[0] == "problem" and row[1].startswith("#2 group_changed in log.db: ") for row in audited.rows)
