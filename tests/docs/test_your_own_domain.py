"""The program that `docs/your-own-domain.md` writes, as its reader would use it: from outside, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import clean_environment
from tests.docs.test_docs import file_of, write_file

from everlog.cli.main import main

if TYPE_CHECKING:
    from tests.docs.conftest import Page


@pytest.fixture
def shed(pages: dict[str, Page], place: Path) -> Path:
    """An empty folder with the files of the page."""
    for block in pages["docs/your-own-domain.md"].of("python"):
        if file_of(block, "py"):
            write_file(block, "py", place)
    assert sorted(path.name for path in (place / "shed").iterdir()) == [
        "__main__.py",
        "commands.py",
        "events.py",
        "rules.py",
        "views.py",
    ]
    return place


def test_the_tests_that_the_page_writes_pass_and_can_fail(shed: Path) -> None:
    assert run(shed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shed.py").returncode == 0
    views = shed / "shed" / "views.py"
    pure = views.read_text(encoding="utf-8")
    impure = pure.replace('{**state, "name": event.payload["name"]}', '{**state, "name": repr(object())}')
    assert impure != pure
    views.write_text(impure, encoding="utf-8")
    assert run(shed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shed.py").returncode == 1


def test_it_runs_as_a_program_on_the_nearest_log(shed: Path) -> None:
    assert main(["init"]) == 0
    assert main(["config", "set", "catalog", "shed.events:CATALOG"]) == 0
    assert run(shed, "-m", "shed", "buy", "saw").returncode == 0
    assert run(shed, "-m", "shed", "lend", "saw", "--to", "bob").returncode == 0
    refused = run(shed, "-m", "shed", "lend", "saw", "--to", "carla")
    assert (refused.returncode, "fix: python -m shed return saw" in refused.stdout) == (3, True)
    shown = run(shed, "-m", "shed", "return", "saw")
    assert json.loads(shown.stdout)["saw"]["times_lent"] == 1


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**clean_environment(folder), "EVERLOG_ACTOR": "user:ada"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
