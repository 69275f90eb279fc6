"""Where a log is looked for, and what an error suggests if it is missing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from everlog.application.folder.create import create_log
from everlog.application.folder.open import Location, show_warnings
from everlog.errors import NoLogHere, NotFound


def test_a_directory_without_a_log_hints_at_the_command_that_creates_one(tmp_path: Path) -> None:
    with pytest.raises(NoLogHere) as refused:
        Location(work_in=tmp_path).open()
    assert refused.value.hint == f"everlog init {tmp_path}"


def test_a_log_is_found_from_a_directory_below_it(tmp_path: Path) -> None:
    created = create_log(tmp_path, warn=pytest.fail)
    (tmp_path / "below").mkdir()
    location = Location(work_in=tmp_path / "below", actor="user:ada")
    assert location.folder() == created.folder
    with location.open() as log:
        assert (log.identity.log_id, log.actor) == (created.log_id, "user:ada")


def test_a_url_is_never_created(tmp_path: Path) -> None:
    location = Location(work_in=tmp_path, url="sqlite:log.db")
    assert location.absolute_url() == f"sqlite:{tmp_path}/log.db"
    with pytest.raises(NotFound, match=r"log\.db"):
        location.open()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NoLogHere, match=r"no \.everlog folder"):
        location.folder()


def test_a_lost_store_is_reported_as_lost(tmp_path: Path) -> None:
    (create_log(tmp_path, warn=pytest.fail).folder / "log.db").unlink()
    with pytest.raises(NotFound, match="it is gone") as refused:
        Location(work_in=tmp_path).open()
    assert "everlog init --new" in refused.value.hint


def test_warnings_of_the_library_are_shown_until_it_is_ended() -> None:
    shown: list[str] = []
    end = show_warnings(shown.append)
    logging.getLogger("everlog.log").warning("one")
    end()
    logging.getLogger("everlog.log").warning("two")
    assert shown == ["one"]
