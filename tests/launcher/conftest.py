"""A checkout to set up, and what the set-up ran."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.launcher.script import FakeRunner, launcher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = tmp_path / "checkout"
    (tree / "src" / "everlog").mkdir(parents=True)
    (tree / "pyproject.toml").write_text("[project]\n")
    (tree / "constraints.txt").write_text("click==1\n")
    return tree


@pytest.fixture
def checkout(root: Path) -> Any:
    return launcher.Checkout(str(root), str(root / ".venv"))


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the set-up ran."""
    ran: list[list[str]] = []
    monkeypatch.setattr(FakeRunner, "commands", ran, raising=False)
    monkeypatch.setattr(FakeRunner, "failing", (), raising=False)
    monkeypatch.setattr(launcher, "Runner", FakeRunner)
    monkeypatch.delenv("EVERLOG_WHEELS", raising=False)
    return ran
