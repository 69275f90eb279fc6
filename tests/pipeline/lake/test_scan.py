"""A search for words and rows: in compressed columns, across pieces of a file, in every file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.world import World

from everlog.pipeline.lake.scan import found_in, scan

if TYPE_CHECKING:
    pass


def test_a_word_is_found_in_compressed_columns_nested_or_not(tmp_path: Path) -> None:
    for name, column in {
        "text": pa.array(["a", "hidden-word"] * 50),
        "list": pa.array([["a", "hidden-word"]] * 50),
        "struct": pa.array([{"deep": {"er": "hidden-word"}}] * 50),
        "dictionary": pa.array(["hidden-word"] * 50).dictionary_encode(),
        "binary": pa.array([b"hidden-word"] * 50),
    }.items():
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"x": column}), path, compression="zstd", write_statistics=False)
        assert found_in(path, ["hidden-word", "absent-word"], {})[1] == ["hidden-word"], name


def test_a_row_of_a_stream_is_found_below_its_position_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"stream": ["a/1", "a/1", "b/1"], "position": [1, 5, 2]}), path)

    assert found_in(path, [], {"a/1": 5})[1] == ["a/1 at 1"]
    assert found_in(path, [], {"c/1": 9})[1] == []


def test_a_word_across_two_pieces_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("everlog.pipeline.lake.scan._PIECE", 8)
    path = tmp_path / "log.json"
    path.write_bytes(b"0123456word890")
    assert found_in(path, ["word"], {})[1] == ["word"]


def test_a_file_that_cannot_be_read_is_not_called_clean(tmp_path: Path) -> None:
    path = tmp_path / "half.parquet"
    path.write_bytes(b"PAR1half")
    assert "cannot be read" in found_in(path, ["word"], {})[1][0]


def test_all_files_are_looked_at(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text("needle" if number == 33 else "hay")

    found = scan(world.spark, folder, ["needle"])
    assert (found.files, found.bytes) == (40, 39 * 3 + 6)
    assert found.found == [(str(folder / "33.txt"), "needle")]
