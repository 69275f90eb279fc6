"""The lake's tables: one commit or nothing, once for each cursor, and readable by everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pytest

from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.errors import (
    Busy,
    Conflict,
    Damaged,
    InvalidField,
    NewerFormat,
    NotFound,
    ReadOnly,
    SchemaBroken,
    StorageFull,
)
from everlog.files import DiskFiles
from everlog.pipeline.lake import Lake
from everlog.pipeline.table import DataFile, Table

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


# ---- commits


def test_a_batch_is_in_the_table_once_however_often_it_is_given(
    lake: Lake, spark: SparkSession, numbers: Any
) -> None:
    assert lake.events.append(numbers(1, 10), cursor=at(10))
    assert not lake.events.append(numbers(1, 10), cursor=at(10))
    assert not lake.events.append(numbers(1, 5), cursor=at(5))
    assert lake.events.append(numbers(11, 12), cursor=at(12))

    assert positions(lake.events.read(spark)) == list(range(1, 13))
    assert lake.events.cursor(EPOCH) == at(12)
    assert lake.events.rows() == 12


def test_a_commit_carries_its_cursor_and_its_marks(lake: Lake, numbers: Any) -> None:
    table = lake.gold("streams")
    assert (table.cursor(EPOCH), table.mark("version"), table.version()) == (None, None, -1)

    table.append(numbers(1, 2), cursor=at(2, knows=9), marks={"version": 3, "code": 2**62})

    assert (table.cursor(EPOCH), table.mark("version"), table.mark("code")) == (at(2, knows=9), 3, 2**62)
    assert table.cursor("another") is None


def test_a_batch_that_knows_of_a_later_purge_is_not_in_the_table_yet(lake: Lake, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))

    assert lake.events.holds(at(3))
    assert not lake.events.holds(at(3, knows=4))
    assert not lake.events.holds(at(3, epoch="restored"))


def test_a_reader_of_a_version_does_not_see_the_next_one(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    before = lake.events.read(spark)
    lake.events.append(numbers(4, 6), cursor=at(6))

    assert positions(before) == [1, 2, 3]
    assert positions(lake.events.read(spark, version=0)) == [1, 2, 3]
    assert positions(lake.events.read(spark)) == [1, 2, 3, 4, 5, 6]


def test_files_are_replaced_in_one_commit(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 10, parts=2), cursor=at(10))
    (held,) = lake.events.files_with(spark, lambda rows: rows.where("position = 2"))
    rest = lake.events.read(spark, files=[held]).where("position <> 2")

    lake.events.replace([held], rest, cursor=at(10, knows=11))

    assert positions(lake.events.read(spark)) == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert lake.events.version() == 1
    assert lake.events.cursor(EPOCH) == at(10, knows=11)


def test_a_file_says_which_positions_it_holds(lake: Lake, numbers: Any) -> None:
    lake.events.append(numbers(1, 10, parts=2), cursor=at(10))

    assert [(file.first, file.last, file.rows) for file in lake.events.files()] == [(1, 5, 5), (6, 10, 5)]


def test_the_commit_repeats_no_words_of_the_rows(lake: Lake, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))

    log = b"".join(path.read_bytes() for path in (lake.events.path / "_delta_log").iterdir())
    assert b"note/" not in log
    assert b"position" in log


def test_an_overwrite_may_change_the_columns(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    table = lake.gold("streams")
    table.overwrite(numbers(1, 3), cursor=at(3))
    table.overwrite(numbers(1, 2).selectExpr("stream", "cast(position AS string) AS text"), cursor=at(4))

    assert table.read(spark).columns == ["stream", "text"]
    assert table.read(spark).count() == 2
    assert table.read(spark, version=0).columns == ["position", "stream", "occurred_at"]


def test_an_empty_batch_makes_a_table_that_can_be_read(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    assert lake.events.append(numbers(1, 0), cursor=at(7))

    assert lake.events.read(spark).count() == 0
    assert lake.events.cursor(EPOCH) == at(7)
    assert lake.events.files() == []


def test_rows_of_another_shape_are_refused_and_leave_nothing(lake: Lake, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))

    with pytest.raises(SchemaBroken, match="another shape"):
        lake.events.append(numbers(4, 5).drop("stream"), cursor=at(5))
    assert lake.events.cursor(EPOCH) == at(3)
    assert lake.events.unnamed() == []


def test_a_failed_job_leaves_no_files(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    broken = numbers(4, 9, parts=2).selectExpr(
        "if(position = 9, raise_error('boom'), position) AS position", "stream", "occurred_at"
    )

    with pytest.raises(Exception, match="boom"):
        lake.events.append(broken, cursor=at(9))
    assert positions(lake.events.read(spark)) == [1, 2, 3]
    assert lake.events.unnamed() == []


def test_of_two_writers_of_one_batch_one_wins(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    mine = lake.events.write(numbers(4, 5), cursor=at(5))
    slow = SlowTable(lake.events, meanwhile=lambda: lake.events.append(numbers(4, 5), cursor=at(5)))

    with pytest.raises(Busy, match="somebody else committed"):
        slow.commit(mine, cursor=at(5))
    assert positions(lake.events.read(spark)) == [1, 2, 3, 4, 5]
    assert lake.events.unnamed() == [], "the loser's files are gone"


class SlowTable(Table):
    """Somebody else commits between this writer's look at the table and its commit."""

    def __init__(self, table: Table, meanwhile: Any) -> None:
        super().__init__(table.path, table.name, log_id=LOG)
        self._meanwhile = meanwhile

    def _delta(self, version: int | None = None) -> Any:
        found = super()._delta(version)
        self._meanwhile()
        return found


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


def test_what_no_version_names_is_swept(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    lake.events.overwrite(numbers(1, 2), cursor=at(4))
    lake.events.write(numbers(7, 9), cursor=at(9))
    half = lake.events.path / "data" / "000-killed" / "_temporary" / "0"
    half.mkdir(parents=True)
    (half / "part-0.parquet").write_bytes(b"half")

    assert lake.events.sweep(keep_versions=[0]) == 2
    assert positions(lake.events.read(spark, version=0)) == [1, 2, 3]
    assert lake.events.sweep() == 1
    assert not half.parent.parent.exists()
    assert positions(lake.events.read(spark)) == [1, 2]
    with pytest.raises(Damaged, match="is not there"):
        lake.events.read(spark, version=0)


# ---- readers that are not Spark


@pytest.fixture
def filled(lake: Lake, numbers: Any) -> Lake:
    lake.events.append(numbers(1, 10, parts=2), cursor=at(10))
    lake.events.append(numbers(11, 12), cursor=at(12))
    lake.events.write(numbers(100, 200), cursor=at(200))  # what a killed run left must not show
    return lake


def test_polars_reads_it(filled: Lake) -> None:
    found = pl.read_delta(str(filled.events.path)).sort("position")

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
    with pytest.raises(NotFound, match="no lake") as told:
        Lake.open(tmp_path / "none")
    assert told.value.hint == "everlog pipeline run"


def test_a_lake_of_a_newer_program_is_not_touched(lake: Lake) -> None:
    path = lake.path / "lake.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 2}))

    with pytest.raises(NewerFormat, match="newer program"):
        Lake.open(lake.path)


def test_a_table_of_a_newer_protocol_is_not_touched(lake: Lake, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    log = lake.events.path / "_delta_log"
    later = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}
    (log / "00000000000000000001.json").write_text(json.dumps(later))

    with pytest.raises(NewerFormat, match="newer program"):
        lake.events.append(numbers(4, 5), cursor=at(5))
    assert sorted(path.name for path in log.iterdir() if path.suffix == ".json") == [
        "00000000000000000000.json",
        "00000000000000000001.json",
    ]


def test_a_lost_file_is_named_with_the_way_out(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    lake.events.paths()[0].unlink()

    with pytest.raises(Damaged, match="is not there") as told:
        lake.events.read(spark)
    assert told.value.hint == "everlog pipeline run --rebuild events"


def test_a_cut_file_is_named(lake: Lake, spark: SparkSession, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    path = lake.events.paths()[0]
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(Damaged, match=r"bytes, .* were committed"):
        lake.events.read(spark)


def test_a_damaged_commit_is_named(lake: Lake, numbers: Any) -> None:
    lake.events.append(numbers(1, 3), cursor=at(3))
    (lake.events.path / "_delta_log" / "00000000000000000000.json").write_text('{"add":{"pa')

    with pytest.raises(Damaged, match="the table events"):
        lake.events.append(numbers(4, 5), cursor=at(5))


def test_a_damaged_lake_file_is_named(lake: Lake) -> None:
    (lake.path / "lake.json").write_text("{")

    with pytest.raises(Damaged, match=r"lake\.json is damaged"):
        Lake.open(lake.path)


def test_a_full_disk_at_the_commit_leaves_the_last_version(
    small_disk: Path, spark: SparkSession, numbers: Any
) -> None:
    lake = Lake.open(small_disk / "lake", log_id=LOG, create=True)
    lake.events.append(numbers(1, 3), cursor=at(3))
    written = lake.events.write(numbers(4, 5), cursor=at(5))
    fill(small_disk)

    with pytest.raises((StorageFull, ReadOnly)):
        lake.events.commit(written, cursor=at(5))
    assert positions(lake.events.read(spark)) == [1, 2, 3]
    assert lake.events.unnamed() == []


def fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def test_a_discarded_write_that_cannot_be_removed_is_told_of(lake: Lake) -> None:
    class Stuck(DiskFiles):
        def unlink(self, path: Path) -> None:
            raise ReadOnly(f"cannot remove {path}")

    table = Table(lake.events.path, "events", log_id=LOG, files=Stuck())
    folder = table.path / "data" / "x"
    folder.mkdir(parents=True)
    (folder / "a.parquet").write_bytes(b"")
    error = ValueError("first")

    table.discard("data/x", error)
    assert "could not be removed" in error.__notes__[0]
    assert DataFile("a", 1, 1).last == 0
