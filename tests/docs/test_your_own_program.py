"""The program that `docs/tutorial/your-own-program.md` writes, as its reader uses it, in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import clean_environment
from tests.docs.test_docs import ROOT, file_of, write_file

if TYPE_CHECKING:
    from tests.docs.conftest import Page


@pytest.fixture
def shed(pages: dict[str, Page], place: Path) -> Path:
    """Return an empty folder with the file of the page."""
    for block in pages["docs/tutorial/your-own-program.md"].of("python"):
        if file_of(block, "py"):
            write_file(block, "py", place)
    assert (place / "shed.py").exists()
    return place


def test_it_is_short(shed: Path) -> None:
    lines = [line for line in (shed / "shed.py").read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 80, len(lines)


def test_it_runs_on_the_command_line_and_its_rule_holds_for_a_direct_append(shed: Path) -> None:
    assert run(shed, "init").returncode == 0
    assert run(shed, "config", "set", "programs", "shed").returncode == 0
    assert run(shed, "shed", "buy", "saw").returncode == 0
    lent = run(shed, "shed", "lend", "saw", "--to", "bob", "--key", "k1", "--json")
    assert run(shed, "shed", "lend", "saw", "--to", "bob", "--key", "k1", "--json").stdout == lent.stdout
    assert run(shed, "shed", "lend", "saw", "--to", "carla").returncode == 3
    refused = run(shed, "append", "shed.tool.lent", "-s", "tool/saw", "to=carla", "--json")
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (3, "rule_refused")
    assert json.loads(run(shed, "shed", "list", "--json").stdout)["data"] == [{"tool": "saw", "holder": "bob"}]
    assert "Let somebody take a tool home." in run(shed, "shed", "lend", "--help").stdout


def test_a_module_without_a_program_is_a_wrong_setting(shed: Path) -> None:
    assert run(shed, "init").returncode == 0
    for module in ("json", "no_such_module"):
        refused = run(shed, "config", "set", "programs", module, "--json")
        assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (2, "invalid_settings")
        assert run(shed, "log", "--json").returncode == 0
    left_out = run(shed, "log", "--json", EVERLOG_PROGRAMS="json")
    assert (left_out.returncode, json.loads(left_out.stdout)["data"]) == (0, [])
    assert "'json' has no program, and is left out" in json.loads(left_out.stdout)["warnings"][0]
    shown = " ".join(run(shed, "--help", EVERLOG_PROGRAMS="no_such_module").stdout.split())
    assert "cannot be loaded: it is no installed plugin" in shown


def test_help_lists_the_program_and_its_operations(shed: Path) -> None:
    assert run(shed, "init").returncode == 0
    assert "Programs:" not in run(shed, "--help").stdout
    run(shed, "config", "set", "programs", "shed")
    line = "Programs: shed"
    assert "shed  Tools that are lent." in run(shed, "help", "--all").stdout
    assert line in run(shed, "--help").stdout
    assert line in run(shed, "help").stdout
    assert line in run(shed.parent, "-C", str(shed), "--help", PYTHONPATH=f"{ROOT / 'src'}:{shed}").stdout
    listed = json.loads(run(shed, "help", "operations", "--json").stdout)["data"]
    assert [one["name"] for one in listed][-3:] == ["shed.buy", "shed.lend", "shed.list"]
    assert listed[-2]["schema"]["required"] == ["tool", "to"]


def run(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**clean_environment(folder), "EVERLOG_ACTOR": "user:ada"}
    environment["PYTHONPATH"] = f"{environment['PYTHONPATH']}:{folder}"
    del environment["EVERLOG_PROGRAMS"]
    environment |= more
    return subprocess.run(
        [sys.executable, "-m", "everlog", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
