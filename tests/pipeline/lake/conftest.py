"""A lake with tables of numbers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG, EPOCH = "01TESTLOG", "01TESTEPOCH"


def at(position: int, knows: int = 0, epoch: str = EPOCH) -> Cursor:
    return Cursor(Position(position), Position(knows), epoch)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(tmp_path / "lake", log_id=LOG, create=True)


@pytest.fixture
def numbers(spark: SparkSession) -> Any:
    def make(first: int, last: int, parts: int = 1) -> DataFrame:
        return spark.range(first, last + 1, 1, parts).selectExpr(
            "id AS position", "concat('note/', id % 3) AS stream", "timestamp_seconds(id) AS occurred_at"
        )

    return make


def positions(rows: DataFrame) -> list[int]:
    return sorted(row[0] for row in rows.select("position").collect())
