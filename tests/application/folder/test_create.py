"""Creating a folder with a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.application.folder.create import create_folder, create_log
from everlog.application.folder.open import Location
from everlog.errors import EverlogError, InvalidSettings, NotFound


def test_a_new_log_can_be_opened_where_it_was_created(tmp_path: Path) -> None:
    warnings: list[str] = []
    created = create_log(tmp_path / "a" / "b", warn=warnings.append)
    assert (created.is_new, created.files, warnings) == (True, ["everlog.toml", "types.toml", ".gitignore"], [])
    with Location(work_in=tmp_path / "a" / "b").open() as log:
        assert log.identity.log_id == created.log_id


def test_creating_it_again_changes_nothing_and_keeps_the_store(tmp_path: Path) -> None:
    first, warnings = create_log(tmp_path, warn=pytest.fail), list[str]()
    again = create_log(tmp_path, store="jsonl:.", warn=warnings.append)
    assert (again.is_new, again.files, again.log_id) == (False, [], first.log_id)
    assert "keeps its store sqlite:log.db" in warnings[0]


@pytest.mark.parametrize("store", ["memory:", "nonsense:x"])
def test_a_store_that_cannot_be_created_leaves_nothing(tmp_path: Path, store: str) -> None:
    with pytest.raises(EverlogError):
        create_log(tmp_path / "new", store=store, warn=pytest.fail)
    assert list(tmp_path.iterdir()) == []


def test_a_lost_log_is_only_replaced_on_request(tmp_path: Path) -> None:
    create_folder(tmp_path)
    (tmp_path / "log.db").unlink()
    with pytest.raises(NotFound, match="it is gone"):
        create_folder(tmp_path)
    assert create_folder(tmp_path, new=True) == []


def test_a_file_with_the_name_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".everlog").write_text("")
    with pytest.raises(InvalidSettings, match="is a file"):
        create_log(tmp_path, warn=pytest.fail)
