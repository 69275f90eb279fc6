"""The files of stores: segments shown and compressed, an index rebuilt; other stores have none."""

from __future__ import annotations

from pathlib import Path

import pytest

import everlog
from everlog.application.folder.open import Location
from everlog.application.store_files import archive_segments, rebuild_index, segment_entries, segment_files
from everlog.errors import InvalidSettings


def written(url: str) -> None:
    with everlog.open(url) as log:
        log.append("note.added", stream="note/1", payload={"text": "x"})


def test_the_entries_of_segments_are_shown_also_where_they_are_damaged(tmp_path: Path) -> None:
    written(f"segments:{tmp_path / 'data'}")
    files = segment_files(Location(url=f"segments:{tmp_path / 'data'}"))
    found = list(segment_entries(files))
    assert found[0].kind == "head"
    assert [record.position for entry in found for record in entry.records] == [1]
    data = bytearray(files[0].read_bytes())
    data[-20] ^= 1
    files[0].write_bytes(data)
    assert any(entry.is_damaged for entry in segment_entries(files))


def test_only_a_segments_log_has_segments_and_only_text_files_have_an_index(tmp_path: Path) -> None:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}") as log:
        for call in (lambda: archive_segments(log, days=0), lambda: rebuild_index(log)):
            with pytest.raises(InvalidSettings):
                call()
    with pytest.raises(InvalidSettings, match="no segment files"):
        segment_files(Location(url=f"sqlite:{tmp_path / 'log.db'}"))


def test_old_segments_are_compressed_and_read_as_before(tmp_path: Path) -> None:
    url = f"segments:{tmp_path / 'data'}"
    for _ in range(2):
        written(url)
    with everlog.open(url) as log:
        before = [recorded.event for recorded in log.read()]
        for one in archive_segments(log, days=0):
            assert one.packed_bytes > 0
        assert [recorded.event for recorded in log.read()] == before


def test_a_rebuilt_index_has_every_event_and_resets_cursors(tmp_path: Path) -> None:
    written(f"jsonl:{tmp_path / 'log'}")
    with everlog.open(f"jsonl:{tmp_path / 'log'}") as log:
        before = log.identity.epoch
        done = rebuild_index(log)
        assert (done.events, done.epoch) == (1, log.identity.epoch)
        assert done.epoch != before
