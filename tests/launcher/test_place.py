"""Where the launcher's virtual environment lives, and which directories it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.launcher.script import installs, launcher, make_environment, refuse_writes_to

# Where the environment lives


def test_it_lives_beside_the_script(root: Path) -> None:
    assert launcher.locate(str(root), {}, ()).venv == str(root / ".venv")


def test_a_named_place_wins(root: Path, tmp_path: Path) -> None:
    assert launcher.locate(str(root), {"EVERLOG_VENV": str(tmp_path / "v")}, ()).venv == str(tmp_path / "v")


def test_a_read_only_checkout_uses_the_cache_directory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes_to(root, monkeypatch)

    found = launcher.locate(str(root), {"XDG_CACHE_HOME": str(tmp_path / "cache")}, ())

    assert Path(found.venv).parent == tmp_path / "cache" / "everlog"
    other = launcher.locate(str(root) + "2", {"XDG_CACHE_HOME": str(tmp_path / "cache")}, ())
    assert other.venv != found.venv


def test_a_read_only_checkout_with_a_finished_environment_uses_that(
    root: Path, checkout: Any, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.set_up(checkout, ())
    refuse_writes_to(root, monkeypatch)

    assert launcher.locate(str(root), {"XDG_CACHE_HOME": "/c"}, ()).venv == str(root / ".venv")
    assert launcher.locate(str(root), {"XDG_CACHE_HOME": "/c"}, ("test",)).venv.startswith("/c/everlog/")


def test_without_a_home_the_cache_is_a_directory_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    place = Path(launcher.cache_directory({"HOME": ""}))

    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o777)
    with pytest.raises(launcher.SetupError, match="no place"):
        launcher.cache_directory({"HOME": ""})


def test_a_read_only_tree_is_installed_through_links(
    root: Path, tmp_path: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_writes_to(root, monkeypatch)
    checkout = launcher.Checkout(str(root), str(tmp_path / "v"))

    launcher.set_up(checkout, ())

    source = Path(installs(commands)[0][-1])
    assert source == tmp_path / "v" / "source"
    assert (source / "src" / "everlog").resolve() == root / "src" / "everlog"


# Directories of others


def test_a_directory_with_other_files_is_left_alone(root: Path, checkout: Any, commands: list[list[str]]) -> None:
    (root / ".venv").mkdir()
    (root / ".venv" / "diary.txt").write_text("dear diary")

    with pytest.raises(launcher.SetupError, match="is not a virtual environment"):
        launcher.set_up(checkout, ())

    assert list((root / ".venv").iterdir()) == [root / ".venv" / "diary.txt"]
    assert commands == []


def test_a_virtual_environment_of_the_users_own_is_installed_into_and_never_emptied(
    root: Path, checkout: Any, commands: list[list[str]]
) -> None:
    make_environment(root / ".venv")
    (root / ".venv" / "theirs").touch()

    launcher.set_up(checkout, ())

    assert (root / ".venv" / "theirs").exists()
    assert not any("venv" in command for command in commands)
    assert len(installs(commands)) == 1


def test_a_broken_virtual_environment_of_the_users_own_is_reported(
    root: Path, checkout: Any, commands: list[list[str]]
) -> None:
    (root / ".venv").mkdir()
    (root / ".venv" / "pyvenv.cfg").touch()

    with pytest.raises(launcher.SetupError, match="does not run"):
        launcher.set_up(checkout, ())

    assert (root / ".venv" / "pyvenv.cfg").exists()
