"""Settings: where each value comes from, what is written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlog.application.folder.create import create_folder
from everlog.application.folder.settings import all_settings, change_setting, one_setting, settings_files
from everlog.errors import InvalidField, InvalidSettings
from everlog.settings import load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    create_folder(tmp_path / ".everlog")
    return tmp_path / ".everlog"


def never(text: str) -> None:
    raise AssertionError(text)


def test_a_change_is_in_the_file_and_has_its_type(folder: Path) -> None:
    done = change_setting(folder, "payload_bytes_max", "4096", warn=never)
    assert (done.value, done.file, done.overridden_by) == (4096, folder / "everlog.toml", "")
    found = one_setting(load(folder), "log.payload_bytes_max")
    assert (found.value, found.origin) == (4096, str(folder / "everlog.toml"))


def test_a_source_that_overrides_the_file_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERLOG_ACTOR", "user:bob")
    assert change_setting(folder, "actor", "user:ada", warn=never).overridden_by == "EVERLOG_ACTOR"
    assert change_setting(folder, "actor", "user:bob", warn=never).overridden_by == ""


def test_a_password_is_written_with_a_warning_and_shown_to_nobody(folder: Path) -> None:
    warnings: list[str] = []
    done = change_setting(folder, "store", "postgresql://ada:pw@db/logs", warn=warnings.append)
    assert ("pw" in str(done.value), len(warnings)) == (False, 1)
    assert "ada:pw@" in (folder / "everlog.toml").read_text()
    shown = {one.setting: one.value for one in all_settings(load(folder))}
    assert shown["store"] == "postgresql://ada@db/logs"


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("actr", "user:ada", InvalidSettings),
        ("payload_bytes_max", "-1", InvalidSettings),
        ("demo", "perhaps", InvalidSettings),
        ("actor", "no actor", InvalidField),
        ("store", "nowhere", InvalidSettings),
    ],
)
def test_a_value_that_can_never_be_used_changes_nothing(
    folder: Path, name: str, text: str, error: type[Exception]
) -> None:
    before = (folder / "everlog.toml").read_bytes()
    with pytest.raises(error):
        change_setting(folder, name, text, warn=never)
    assert (folder / "everlog.toml").read_bytes() == before


def test_the_files_are_those_of_the_project_and_of_the_user(folder: Path, tmp_path: Path) -> None:
    project, user = settings_files(folder)
    assert (project.path, project.exists) == (folder / "everlog.toml", True)
    assert (user.path, user.exists) == (tmp_path / "home" / "everlog" / "everlog.toml", False)
