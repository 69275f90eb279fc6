"""Where the lake of a log is."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.application.folder.create import create_folder
from everlog.application.folder.open import Location
from everlog.application.folder.settings import change_setting
from everlog.application.lake import lake_path, open_lake, stale_lake
from everlog.errors import InvalidSettings, NotFound


def test_the_lake_is_the_given_one_else_the_setting_else_beside_the_log(tmp_path: Path) -> None:
    create_folder(tmp_path / ".everlog")
    here = Location(work_in=tmp_path)
    assert lake_path(here) == tmp_path / ".everlog" / "lake"
    change_setting(here.folder(), "lake", "../elsewhere", warn=print)
    assert lake_path(here) == tmp_path / ".everlog" / "../elsewhere"
    assert lake_path(here, "mine") == tmp_path / "mine"


def test_a_log_without_a_folder_has_its_lake_beside_its_file(tmp_path: Path) -> None:
    assert lake_path(Location(url=f"sqlite:{tmp_path / 'log.db'}")) == tmp_path / "log.db.lake"
    with pytest.raises(InvalidSettings, match="where is the lake"):
        lake_path(Location(url="postgresql://db/logs"))


def test_a_lake_that_is_missing_names_the_run_that_creates_it(tmp_path: Path) -> None:
    create_folder(tmp_path / ".everlog")
    pytest.importorskip("deltalake", reason="a lake needs deltalake")
    with pytest.raises(NotFound) as refused:
        open_lake(Location(work_in=tmp_path), "my lake")
    assert refused.value.hint == "everlog pipeline run --lake 'my lake'"


def test_only_a_lake_that_exists_still_contains_purged_events(tmp_path: Path) -> None:
    create_folder(tmp_path / ".everlog")
    here = Location(work_in=tmp_path)
    assert stale_lake(here) == ""
    assert stale_lake(Location(url="postgresql://db/logs")) == ""
    (tmp_path / ".everlog" / "lake").mkdir()
    (tmp_path / ".everlog" / "lake" / "lake.json").write_text("{}")
    assert stale_lake(here) == str(tmp_path / ".everlog" / "lake")
