"""The folder of a demo: it replaces an earlier demo and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.application.folder.create import create_folder
from everlog.demo.tour import create_demo, demo_folder, open_demo
from everlog.errors import Conflict


def test_a_demo_replaces_an_earlier_one_and_leaves_other_files(tmp_path: Path) -> None:
    folder = demo_folder(tmp_path / "new" / "tour")
    assert create_demo(folder) == "a new log in .everlog/"
    with open_demo(folder) as log:
        log.append("note.added", stream="note/1", payload={"text": "x"})
        first = log.identity.log_id
    (folder / "mine.txt").write_text("keep me")
    (folder / "lake").mkdir()
    assert create_demo(folder) == "an earlier demo was replaced in .everlog/"
    with open_demo(folder) as log:
        assert (log.head(), log.identity.log_id != first) == (0, True)
    assert (folder / "mine.txt").read_text() == "keep me"
    assert not (folder / "lake").exists()


def test_a_log_that_is_not_a_demo_is_left_alone(tmp_path: Path) -> None:
    folder = demo_folder(tmp_path)
    create_folder(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".toml"}
    with pytest.raises(Conflict, match="not a demo"):
        create_demo(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix == ".toml"} == before
    assert (folder / "log.db").exists()
