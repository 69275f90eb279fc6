"""Folders that somebody else changes while they are listed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from everlog.files import DiskFiles
from everlog.pipeline.lake.folders import remove_empty_folders, walk


def test_a_folder_that_is_removed_meanwhile_has_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("gone", "here"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    scandir = os.scandir

    def remove_first(path: Any) -> Any:
        if Path(path) == tmp_path / "gone" and Path(path).exists():
            (tmp_path / "gone" / "file").unlink()
            (tmp_path / "gone").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", remove_first)
    assert walk(DiskFiles(), tmp_path) == [tmp_path / "here" / "file"]


def test_empty_folders_are_removed_when_they_are_old_enough(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "inner").mkdir(parents=True)
    os.utime(tmp_path / "old" / "inner", (0, 0))
    remove_empty_folders(DiskFiles(), tmp_path, unchanged_s=3600)
    assert sorted(walked(tmp_path)) == ["new", "new/inner", "old"], "a removal is a change, too"
    remove_empty_folders(DiskFiles(), tmp_path)
    assert walked(tmp_path) == []


def walked(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
