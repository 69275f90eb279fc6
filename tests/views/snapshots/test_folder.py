"""The folder of snapshots: without one there are none; a patch needs its base there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.conftest import Said
from tests.views.snapshots.logs import (
    say,
)

from everlog.errors import Damaged, InvalidSettings
from everlog.log.log import Log


def test_a_log_without_a_folder_has_no_snapshots(make_log: Callable[..., Log]) -> None:
    log = make_log("memory")
    say(log, 1)
    with pytest.raises(InvalidSettings):
        log.view(Said).snapshot()
    assert log.views.snapshots.folder.entries() == []
    assert log.views.snapshots.prune() == []
    assert log.views.snapshots.sweep() == []


def test_a_patch_without_its_base_is_not_used(slog: Log, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(50):
        say(slog, number, stream=f"thing/{number}")
    base = slog.view(Said).snapshot()
    say(slog, "new")
    patch = slog.view(Said).snapshot()
    base.path.unlink()
    with pytest.raises(Damaged):
        slog.views.snapshots.folder.load(patch)
    with caplog.at_level(logging.WARNING, "everlog"):
        assert slog.views.snapshots.newest(Said()) is None
    assert patch.id in caplog.text
