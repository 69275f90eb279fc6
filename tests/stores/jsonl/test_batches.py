"""The lines of one write say which of how many they are: by that a torn write is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.stores.jsonl.own import day_files

from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.jsonl.lines import read_marked_line


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_line_of_a_write_has_its_number_and_their_count(
    tmp_path: Path, make_log: Callable[..., Log], count: int
) -> None:
    log, other = (make_log("jsonl", tmp_path / "log") for _ in range(2))
    for handle in (log, other):
        handle.append_batch([Draft("thing.said", f"thing/{number}") for number in range(count)])
    (file,) = day_files(tmp_path / "log")
    marks = [read_marked_line(line)[1] for line in file.read_bytes().splitlines()]
    expected = [(number, count) for number in range(1, count + 1)] if count > 1 else [None]
    assert marks == expected * 2
