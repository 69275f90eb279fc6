"""Where a segments log may be created, and from which file its identity is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.errors import Damaged, NotALog, NotFound
from everlog.stores.segments.store import SegmentsStore
from everlog.testing.builders import stamped


def test_a_log_is_not_created_over_a_file_or_among_other_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotALog, match="is a file"):
        SegmentsStore(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.txt").write_text("mine")
    with pytest.raises(NotALog, match="not the folder of a log") as caught:
        SegmentsStore(tmp_path / "folder")
    assert "such as thesis.txt" in caught.value.why
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["thesis.txt"]


def test_one_missing_folder_is_created_and_two_are_not(tmp_path: Path) -> None:
    SegmentsStore(tmp_path / "a" / "log").close()
    with pytest.raises(NotFound, match="cannot be created") as caught:
        SegmentsStore(tmp_path / "b" / "c" / "log")
    assert str(tmp_path / "b" / "c") in caught.value.hint
    assert not (tmp_path / "b").exists()


def test_without_its_manifest_a_log_is_known_by_the_head_of_any_segment(tmp_path: Path) -> None:
    path = tmp_path / "log"
    store = SegmentsStore(path, segment_bytes_max=1200)
    for _ in range(12):
        with store.open_write() as writer:
            writer.append([stamped(writer, store.identity.origin)])
    store.close()
    (path / "log.json").unlink()
    segments = sorted((path / "segments").glob("*.seg"))
    assert len(segments) > 2
    heads = [(file, file.read_bytes()) for file in segments]
    for file, data in reversed(heads[1:]):
        file.write_bytes(bytes(200) + data[200:])
        again = SegmentsStore(path)
        assert again.identity.log_id == store.identity.log_id
        again.close()
        (path / "log.json").unlink(missing_ok=True)
    segments[0].write_bytes(bytes(200) + heads[0][1][200:])
    with pytest.raises(Damaged, match="cannot be opened"):
        SegmentsStore(path)
