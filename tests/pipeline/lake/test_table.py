"""One table: batches are in it once, commits are all or nothing, damage is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.lake.conftest import EPOCH, LOG, at, positions

from everlog.errors import (
    Busy,
    Damaged,
    NewerFormat,
    ReadOnly,
    SchemaBroken,
    StorageFull,
)
from everlog.files import DiskFiles
from everlog.pipeline.lake.data_file import DataFile
from everlog.pipeline.lake.lake import Lake
from everlog.pipeline.lake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SlowTable(Table):
    """Another writer commits between this writer's look at the table and its commit."""

    def __init__(self, table: Table, meanwhile: Any) -> None:
        super().__init__(table.path, table.name, log_id=LOG)
        self._meanwhile = meanwhile

    def _delta(self, version: int | None = None) -> Any:
        found = super()._delta(version)
        self._meanwhile()
        return found


def fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


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

    with pytest.raises(SchemaBroken, match="do not fit"):
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

    with pytest.raises(Busy, match="another process committed"):
        slow.commit(mine, cursor=at(5))
    assert positions(lake.events.read(spark)) == [1, 2, 3, 4, 5]
    assert lake.events.unnamed() == [], "the loser's files are gone"


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
    with pytest.raises(Damaged, match="is missing"):
        lake.events.read(spark, version=0)


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

    with pytest.raises(Damaged, match="is missing") as raised:
        lake.events.read(spark)
    assert raised.value.hint == "everlog pipeline verify --heal"


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


def test_a_discarded_write_that_cannot_be_removed_is_reported(lake: Lake) -> None:
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
