"""A declared view has the rows of its fold, or says why it is folded."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conftest import CATALOG
from tests.pipeline.test_random_histories import fill
from tests.views.test_declared import ByActor, Said

from everlog.log.log import Log
from everlog.pipeline.fold import declared
from everlog.pipeline.fold.declared import _united, fold_declared, why_not
from everlog.pipeline.fold.fold import fold_view
from everlog.pipeline.fold.reduced import reduced
from everlog.pipeline.fold.sorted_fold import ROW
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.table import Table
from everlog.pipeline.source.rows import ARROW_SCHEMA, batch_of
from everlog.testing.builders import event
from everlog.views.builds.rows import SOURCES_MAX
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
    records = list(log._store.read())
    chance.shuffle(records)
    return spark.createDataFrame(pa.Table.from_batches([batch_of(records)])).repartition(3)


class Odd(DeclaredView):
    """What is rarely there, what is asked of the payload as a set, and names that Python keeps for itself."""

    name = "declared-odd"
    by = "actor"
    types = ("odd.said",)
    fields: ClassVar[Mapping[str, Reduction]] = {
        "first": First("payload.rare"),
        "last": Last("payload.rare"),
        "never": Last("payload.nobody"),
        "class": Last("payload.class"),
        "words": Distinct("payload.word"),
        "id": First("id"),
    }


def files_of(table: Table, log: Log, chance: random.Random) -> list[DataFile]:
    """The events of a log as files, dealt out and shuffled; one file is empty."""
    records = list(log._store.read())
    chance.shuffle(records)
    cuts = sorted(chance.randrange(len(records) + 1) for _ in range(2))
    found = []
    for number, some in enumerate((records[: cuts[0]], records[cuts[0] : cuts[1]], records[cuts[1] :], [])):
        name = f"part-{number}.parquet"
        table.path.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_batches([batch_of(some)], ARROW_SCHEMA), table.path / name)
        found.append(DataFile(name, 0, len(some)))
    return found


def rows_of(folded: DataFrame) -> dict[str, dict[str, Any]]:
    rows = folded.where(f"what = '{ROW}'").collect()
    found = {row["key"]: row.asDict() for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("seed", [0, 3])
def test_the_rows_are_those_of_the_fold(
    spark: SparkSession, make_log: Callable[..., Log], tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    if seed:  # as if there were a great many: a key is reported by several tasks, and several times by one
        for name in ("EVENTS_PER_TASK", "EVENTS_PER_BIN", "EVENTS_PER_PARTITION", "BATCH_ROWS"):
            monkeypatch.setattr(declared, name, 10)
    with make_log("memory", catalog=CATALOG) as log:
        fill(log, chance)
        for number in range(40):
            payload: dict[str, Any] = {
                "class": "x" * (number % 4),
                "word": chance.choice("äbz"),
                "deep": {"rare": number},
            }
            payload |= {"rare": None} if number % 5 else {"rare": [number, 1e-300, "\u2028"]}
            actor = f"user:{number % 3}"
            log.admit([event("odd.said", stream=f"odd/{number}", payload=payload, actor=actor, lamport=number + 1)])
        frame, table = frame_of(spark, log, chance), Table(tmp_path, "events", log_id="x")
        files = files_of(table, log, chance)
        for view in (Said(), Everything(), Odd()):
            assert why_not(frame, view, log.catalog) == ""
            for upto in (log.head(), log.head() - 7):
                found = rows_of(fold_declared(spark, table, view, files=files, upto=upto))
                there = frame.where(f"position <= {upto}")
                assert found == rows_of(fold_view(there, view, log.catalog, partitions=2)), view.name
                assert {key: row["state"] for key, row in found.items()} != {}


def test_a_key_of_many_streams_remembers_some(
    spark: SparkSession, make_log: Callable[..., Log], tmp_path: Path
) -> None:
    class Types(DeclaredView):
        name = "types"
        by = "type"
        fields: ClassVar[Mapping[str, Reduction]] = {"n": Count()}

    chance = random.Random(5)
    for streams in (SOURCES_MAX, SOURCES_MAX + 1):
        with make_log("memory", catalog=CATALOG) as log:
            for number in range(2 * streams):
                log.append("thing.said", stream=f"thing/{number % streams}", payload={})
            table = Table(tmp_path / str(streams), "events", log_id="x")
            files = files_of(table, log, chance)
            (found,) = rows_of(fold_declared(spark, table, Types(), files=files, upto=log.head())).values()
            expected = rows_of(fold_view(frame_of(spark, log, chance), Types(), log.catalog))
            assert {found["key"]: found} == expected
            assert (found["sources"] is None) == (streams > SOURCES_MAX)


def test_keys_are_passed_on_before_memory_grows_with_them(make_log: Callable[..., Log]) -> None:
    with make_log("memory", catalog=CATALOG) as log:
        for number in range(30):
            log.append("thing.said", stream=f"thing/{number % 6}", payload={"value": number})
        events = pa.Table.from_batches([batch_of(log._store.read())])
    parts = [reduced(Said(), events.slice(start, 10)) for start in range(0, 30, 10)]
    assert [part.num_rows for part in _united(Said(), parts)] == [6]
    some = list(_united(Said(), parts, at_most=8))
    assert [part.num_rows for part in some] == [6, 6]
    assert sum(sum(part["count"].to_pylist()) for part in some) == 30


def test_what_could_come_out_wrong_is_left_to_the_fold(spark: SparkSession, make_log: Callable[..., Log]) -> None:
    class Values(DeclaredView):
        name = "values"
        fields: ClassVar[Mapping[str, Reduction]] = {"values": Distinct("payload.value")}

    chance = random.Random(1)
    with make_log("memory", catalog=CATALOG) as log:
        log.append("thing.said", stream="thing/1", payload={"value": "5"})
        assert why_not(frame_of(spark, log, chance), Values(), log.catalog) == ""
        log.append("thing.said", stream="thing/1", payload={"value": 5})
        assert why_not(frame_of(spark, log, chance), Values(), log.catalog).startswith(
            "event #2 has a value that is not text"
        )
        assert why_not(frame_of(spark, log, chance), ByActor(), log.catalog) == ""
        log.admit([event("workpackage.moved", stream="workpackage/1", payload={"new_status": "doing"})])
        assert why_not(frame_of(spark, log, chance), ByActor(), log.catalog) == "event #3 is of an old version"
