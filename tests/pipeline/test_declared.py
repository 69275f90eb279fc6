"""A declared view in SQL has the digest of its fold, or says why it is folded."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pytest
from tests.conftest import CATALOG
from tests.pipeline.test_random_histories import fill
from tests.views.test_declared import ByActor, Said

from everlog.log.log import Log
from everlog.pipeline.declared import fold_declared, why_not
from everlog.pipeline.fold import fold_view
from everlog.pipeline.rows import batch_of
from everlog.pipeline.sorted_fold import ROW
from everlog.views.declared import Count, DeclaredView, Distinct, First, Last, Reduction
from everlog.views.view import CAUSAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Everything(DeclaredView):
    name = "declared-everything"
    by = "type"
    order = CAUSAL
    types = ("thing.said",)
    fields: ClassVar[Mapping[str, Reduction]] = {
        "first": First("payload.value"),
        "last": Last("payload.value"),
        "last_at": Last("occurred_at"),
        "actors": Distinct("actor"),
        "scope": Last("scope"),
        "n": Count(),
    }


def frame_of(spark: SparkSession, log: Log, chance: random.Random) -> DataFrame:
    records = list(log.store.read())
    chance.shuffle(records)
    return spark.createDataFrame(pa.Table.from_batches([batch_of(records)])).repartition(3)


def rows_of(folded: DataFrame) -> dict[str, dict[str, Any]]:
    return {row["key"]: row.asDict() for row in folded.where(f"what = '{ROW}'").collect()}


@pytest.mark.parametrize("seed", [0, 3])
def test_the_rows_are_those_of_the_fold(spark: SparkSession, make_log: Callable[..., Log], seed: int) -> None:
    chance = random.Random(seed)
    with make_log("memory", catalog=CATALOG) as log:
        fill(log, chance)
        frame = frame_of(spark, log, chance)
        for view in (Said(), Everything()):
            assert why_not(frame, view, log.catalog) == ""
            found = rows_of(fold_declared(frame, view))
            assert found == rows_of(fold_view(frame, view, log.catalog, partitions=2)), view.name
            assert {key: row["state"] for key, row in found.items()} != {}


def test_what_sql_could_get_wrong_is_left_to_the_fold(spark: SparkSession, make_log: Callable[..., Log]) -> None:
    class Values(DeclaredView):
        name = "values"
        fields: ClassVar[Mapping[str, Reduction]] = {"values": Distinct("payload.value")}

    from everlog.testing.builders import event

    chance = random.Random(1)
    with make_log("memory", catalog=CATALOG) as log:
        log.append("thing.said", stream="thing/1", payload={"value": "5"})
        assert why_not(frame_of(spark, log, chance), Values(), log.catalog) == ""
        log.append("thing.said", stream="thing/1", payload={"value": 5})
        assert why_not(frame_of(spark, log, chance), Values(), log.catalog).startswith("event #2 has something else")
        assert why_not(frame_of(spark, log, chance), ByActor(), log.catalog) == ""
        log.admit([event("workpackage.moved", stream="workpackage/1", payload={"new_status": "doing"})])
        assert why_not(frame_of(spark, log, chance), ByActor(), log.catalog) == "event #3 is of an old version"
