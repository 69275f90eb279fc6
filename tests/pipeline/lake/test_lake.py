"""The lake's tables: one commit or nothing, once for each cursor, and readable by everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pytest
from tests.pipeline.lake.conftest import EPOCH, LOG, at, positions

from everlog.errors import (
    Busy,
    Conflict,
    Damaged,
    InvalidField,
    NewerFormat,
    NotFound,
)
from everlog.pipeline.lake.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ---- the lake as a whole


def test_readers_of_the_lake_see_whole_runs_only(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    for last in (3, 6):
        lake.events.append(numbers(last - 2, last), cursor=at(last))
        if last == 3:
            lake.gold("count").overwrite(spark.range(1), cursor=at(last))
            lake.publish(at(last))

    assert positions(lake.read(spark, "events")) == [1, 2, 3], "the second run is not over"
    assert lake.published().cursor == f"3@{EPOCH}"
    lake.publish(at(6))
    assert positions(lake.read(spark, "events")) == [1, 2, 3, 4, 5, 6]


def test_a_table_that_was_never_published_is_not_there_for_readers(
    lake: Lake, spark: SparkSession, numbers: Any
) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))

    with pytest.raises(NotFound, match="no table events"):
        lake.read(spark, "events")


def test_two_pipelines_do_not_write_at_once(lake: Lake) -> None:
    with lake.writing(), pytest.raises(Busy), Lake.open(lake.path).writing():
        pass
    with lake.writing():
        pass


def test_a_lake_belongs_to_one_log(lake: Lake) -> None:
    with pytest.raises(Conflict, match="another log"):
        Lake.open(lake.path, log_id="01ANOTHER")
    assert Lake.open(lake.path).log_id == LOG


def test_tables_are_found_by_their_folder(lake: Lake, numbers: Any) -> None:
    for name in ("events", "silver/note.added", "gold/streams"):
        lake.table(name).append(numbers(1, 1), cursor=at(1))

    assert [table.name for table in lake.tables()] == ["events", "gold/streams", "silver/note.added"]
    assert [table.name for table in lake.tables("silver")] == ["silver/note.added"]
    lake.drop(lake.gold("streams"))
    assert [table.name for table in lake.tables()] == ["events", "silver/note.added"]
    assert not lake.gold("streams").path.exists()


@pytest.mark.parametrize("folder", ["a lake", "lake [1]{2},ü*?"])
def test_a_lake_may_have_any_path(tmp_path: Path, spark: SparkSession, numbers: Any, folder: str) -> None:
    lake = Lake.open(tmp_path / folder, log_id=LOG, create=True)
    lake.events.append(numbers(1, 3), cursor=at(3))

    assert positions(lake.events.read(spark)) == [1, 2, 3]
    assert len(lake.events.files_with(spark, lambda rows: rows.where("position = 2"))) == 1
    lake.events.sweep()
    assert len(lake.events.paths()) == 1


@pytest.mark.parametrize("folder", ["50%20", "a\\b"])
def test_but_not_one_that_the_committing_library_misreads(tmp_path: Path, folder: str) -> None:
    with pytest.raises(InvalidField, match="%"):
        Lake.open(tmp_path / folder, log_id=LOG, create=True)
    assert not (tmp_path / folder).exists()


# ---- readers that are not Spark


@pytest.fixture(params=["lake", "my läke"])
def filled(request: pytest.FixtureRequest, tmp_path: Path, numbers: Any) -> Lake:
    lake = Lake.open(tmp_path / request.param, log_id=LOG, create=True)
    lake.events.append(numbers(1, 10, parts=2), cursor=at(10))
    lake.events.append(numbers(11, 12), cursor=at(12))
    lake.events.write(numbers(100, 200), cursor=at(200))  # what a killed run left must not show
    return lake


def test_polars_reads_it(filled: Lake) -> None:
    """Polars does not decode the names of files: a path with a space or an umlaut is read by its list of files."""
    path = str(filled.events.path)
    plain = path.isascii() and " " not in path
    found = (pl.read_delta(path) if plain else pl.read_parquet(filled.events.paths())).sort("position")

    assert found["position"].to_list() == list(range(1, 13))
    assert found.schema["occurred_at"] == pl.Datetime("us", "UTC")


def test_duckdb_reads_it_by_its_list_of_files(filled: Lake) -> None:
    paths = [str(path) for path in filled.events.paths()]
    found = duckdb.execute("SELECT count(*), sum(position), max(occurred_at) FROM read_parquet(?)", [paths])

    assert found.fetchone()[:2] == (12, 78)  # type: ignore[index]


def test_pandas_reads_it(filled: Lake) -> None:
    found = pd.concat([pd.read_parquet(path) for path in filled.events.paths()])

    assert sorted(found.position) == list(range(1, 13))
    assert str(found.occurred_at.dtype) == "datetime64[us, UTC]"


def test_delta_itself_reads_it(filled: Lake) -> None:
    from deltalake import DeltaTable

    assert sorted(DeltaTable(str(filled.events.path)).to_pandas()["position"]) == list(range(1, 13))


# ---- bad input


def test_a_lake_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no lake") as raised:
        Lake.open(tmp_path / "none")
    assert raised.value.hint == "everlog pipeline run"


def test_a_lake_of_a_newer_program_is_not_touched(lake: Lake) -> None:
    path = lake.path / "lake.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))

    with pytest.raises(NewerFormat, match="newer program"):
        Lake.open(lake.path)


def test_a_damaged_lake_file_is_named(lake: Lake) -> None:
    (lake.path / "lake.json").write_text("{")

    with pytest.raises(Damaged, match=r"lake\.json is damaged"):
        Lake.open(lake.path)
