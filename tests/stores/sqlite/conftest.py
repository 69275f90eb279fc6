"""Where the tests of the SQLite store keep their log: on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.places import on_disk as tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"
