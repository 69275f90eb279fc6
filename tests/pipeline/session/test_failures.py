"""Errors that pass through Spark: everlog errors arrive unchanged, others with what was done and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from everlog.errors import BadFile, EverlogError
from everlog.pipeline.session.failures import own_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_error_of_everlog_survives_the_jvm_whole(spark: SparkSession) -> None:
    import pyarrow as pa

    from everlog.pipeline.session.failures import carried

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with carried():
            for batch in batches:
                if batch.num_rows:
                    raise BadFile("Ärger “hier”", why='"why"\nnot', hint="do $this", problems=["a"], at=datetime.min)
                yield batch

    with pytest.raises(BadFile) as caught, own_errors("failing"):
        spark.range(1).mapInArrow(fail, "id long").collect()
    error = caught.value
    assert (error.what, error.why, error.hint) == ("Ärger “hier”", '"why"\nnot', "do $this")
    assert error.details["problems"] == ["a"]


def test_another_error_of_a_job_says_what_was_done_and_why(spark: SparkSession) -> None:
    with pytest.raises(EverlogError) as caught, own_errors("dividing"):
        spark.conf.set("spark.sql.ansi.enabled", "true")
        spark.sql("SELECT 1 / 0").collect()
    assert caught.value.code == "spark_failed"
    assert "while dividing" in caught.value.what
    assert "DIVIDE_BY_ZERO" in caught.value.why


def test_what_is_not_sparks_passes() -> None:
    with pytest.raises(KeyError), own_errors("looking"):
        raise KeyError("x")
