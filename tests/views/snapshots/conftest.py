"""Logs with a folder for snapshots."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.views.snapshots.logs import with_snapshots

from everlog.log.log import Log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def slog(kind: str, make_log: Callable[..., Log], folder: Path) -> Log:
    return make_log(kind, **with_snapshots(folder))
