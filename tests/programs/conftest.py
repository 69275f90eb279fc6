"""Logs for the tests of the domains, opened as a user opens them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import everlog
from everlog.log.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with everlog.open(f"sqlite:{tmp_path / 'log.db'}", actor="user:ada") as opened:
        yield opened
