"""Files that this process reads and writes itself."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.pipeline.lake.conftest import EPOCH, at

from everlog.errors import Damaged
from everlog.pipeline.lake import arrow_files
from everlog.pipeline.lake.lake import Lake

SCHEMA = pa.schema([("position", pa.int64()), ("text", pa.string())])


def rows(*positions: int) -> pa.Table:
    return pa.table({"position": positions, "text": [f"text {position}" for position in positions]}, schema=SCHEMA)


def add(lake: Lake, *positions: int) -> None:
    files = arrow_files.write(lake.events, rows(*positions), cursor=at(max(positions)))
    schema = arrow_files.spark_schema(SCHEMA)
    lake.events.commit(files, cursor=at(max(positions)), schema=schema)


def test_rows_of_several_files_are_read_in_the_order_of_positions(lake: Lake) -> None:
    add(lake, 2, 1)
    add(lake, 4, 3)
    assert arrow_files.read(lake.events, SCHEMA).column("position").to_pylist() == [1, 2, 3, 4]
    assert arrow_files.read(lake.events, SCHEMA, after=1, upto=3) == rows(2, 3)


def test_nothing_is_written_for_no_rows_and_a_commit_of_nothing_can_be_read(lake: Lake) -> None:
    assert arrow_files.write(lake.events, rows(), cursor=at(1)) == []
    arrow_files.overwrite(lake.events, rows(), cursor=at(1))
    assert lake.events.cursor(EPOCH) == at(1)
    assert arrow_files.read(lake.events, SCHEMA).num_rows == 0


def test_an_overwrite_replaces_all_rows(lake: Lake) -> None:
    add(lake, 1, 2, 3)
    arrow_files.overwrite(lake.events, rows(7), cursor=at(7), marks={"code": 5})
    assert arrow_files.read(lake.events, SCHEMA) == rows(7)
    assert lake.events.mark("code") == 5


def test_memory_is_measured_and_not_the_size_on_the_disk(lake: Lake) -> None:
    add(lake, *range(1, 1000))
    assert arrow_files.takes_more_than(lake.events, 10_000)
    assert not arrow_files.takes_more_than(lake.events, 1_000_000)


def test_a_file_with_other_content_is_named_with_the_way_out(lake: Lake) -> None:
    add(lake, 1)
    (path,) = lake.events.paths()
    path.write_bytes(b"x" * path.stat().st_size)
    for read in (lambda: arrow_files.read(lake.events, SCHEMA), lambda: arrow_files.takes_more_than(lake.events, 1)):
        with pytest.raises(Damaged, match="not those that were committed") as found:
            read()
        assert found.value.hint == "everlog pipeline verify --heal"
