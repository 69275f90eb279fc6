"""The lines of one write say which of how many they are: by that a torn write is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.stores.jsonl.own import day_files

from everlog.files import DiskFiles, Handle
from everlog.log.log import Log
from everlog.log.write.draft import Draft
from everlog.stores.jsonl.folder import Folder
from everlog.stores.jsonl.lines import read_marked_line
from everlog.stores.jsonl.store import JsonlStore


@pytest.mark.parametrize("count", [1, 2, 5])
def test_each_line_of_a_write_has_its_number_and_their_count(
    tmp_path: Path, make_log: Callable[..., Log], count: int
) -> None:
    log, other = (make_log("jsonl", tmp_path / "log") for _ in range(2))
    for handle in (log, other):
        handle.append_batch([Draft("thing.said", f"thing/{number}") for number in range(count)])
        handle.close()
    (file,) = day_files(tmp_path / "log")
    marks = [read_marked_line(line)[1] for line in file.read_bytes().splitlines()]
    expected = [(number, count) for number in range(1, count + 1)] if count > 1 else [None]
    assert marks == expected * 2


class Counted(DiskFiles):
    flushes = 0

    def fsync(self, handle: Handle) -> None:
        self.flushes += 1
        super().fsync(handle)


def test_the_clock_is_flushed_if_it_must_last_and_otherwise_costs_no_flush(tmp_path: Path) -> None:
    JsonlStore(tmp_path / "log").close()
    for durable in (False, True):
        folder = Folder(tmp_path / "log", files := Counted())
        folder.write_clock(7 + durable, "2030-01-01T00:00:00Z", durable=durable)
        assert bool(files.flushes) == durable
        assert Folder(tmp_path / "log", DiskFiles()).clock() == 7 + durable
