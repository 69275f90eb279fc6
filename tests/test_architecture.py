"""The import rules of pyproject.toml hold, and they bite: a broken rule is a red test with the offending line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A line, the module that it is planted in, and the contract that must notice.
PLANTED = {
    "upwards": ("core/ids.py", "from everlog.log.log import Log", "Imports point down only"),
    "upwards inside a function": (
        "stores/memory.py",
        "def planted():\n    import everlog.wiring",
        "Imports point down only",
    ),
    "the program into its tests": (
        "log/log.py",
        "from everlog.testing.builders import event",
        "Imports point down only",
    ),
    "upwards in the log": (
        "log/read/pages.py",
        "from everlog.log.write.draft import Draft",
        "Parts of the log point down only",
    ),
    "side by side": ("wiring.py", "import everlog.aio", "Imports point down only"),
    "a package without a place": ("newcomer.py", "", "Imports point down only"),
    "a concrete store": (
        "log/log.py",
        "from everlog.stores.memory import MemoryStore",
        "Only the wiring names a concrete store",
    ),
    "one store in another": (
        "stores/sqlite/store.py",
        "from everlog.stores.memory import MemoryStore",
        "Stores do not know each other",
    ),
    "postgres in another": (
        "stores/postgres/store.py",
        "from everlog.stores.memory import MemoryStore",
        "Stores do not know each other",
    ),
    "sqlite3": ("log/verify/verify.py", "import sqlite3", "SQLite has one home"),
    "psycopg": ("log/log.py", "import psycopg", "psycopg has one home"),
    "click": ("settings.py", "import click", "The libraries of the command line have one home"),
    "rich": (
        "log/write/refusals.py",
        "from rich.console import Console",
        "The libraries of the command line have one home",
    ),
    "the command line into a store": (
        "cli/verify.py",
        "def planted():\n    from everlog.stores.contract import InGit",
        "The command line parses and renders",
    ),
    "the command line into the settings, for a type": (
        "cli/config.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from everlog.settings import Settings",
        "The command line parses and renders",
    ),
    "the command line into the pipeline, outside of its group": (
        "cli/views/rebuild.py",
        "from everlog.pipeline.engines.choose import choose",
        "The command line parses and renders",
    ),
    "pydantic": ("catalog/catalog.py", "import pydantic", "pydantic has one home"),
    "pyspark": ("views/live.py", "import pyspark.sql", "Spark and its tables have one home"),
    "pyarrow": ("transfer/exporting.py", "import pyarrow", "Spark and its tables have one home"),
    "an HTTP client": ("sync/exchange.py", "import httpx2", "HTTP has one home"),
    "asyncio": ("log/read/follow.py", "import asyncio", "asyncio has one home"),
}


def lint(source: Path) -> subprocess.CompletedProcess[str]:
    """Run the linter on a source tree with the rules of this repository."""
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--config",
            str(ROOT / "pyproject.toml"),
            "--no-cache",
        ],
        cwd=source,  # the linter puts its working directory first, so that the tree under test is the one found
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_import_rules_hold() -> None:
    done = lint(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert f"{len(rules)} kept, 0 broken" in done.stdout


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the linter prints of the broken contracts, with all that is planted in one tree: it takes a second."""
    tree = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src" / "everlog", tree / "everlog", ignore=shutil.ignore_patterns("__pycache__"))
    for module, line, _ in PLANTED.values():
        with (tree / "everlog" / module).open("a", encoding="utf-8") as place:
            place.write(f"\n{line}\n")
    done = lint(tree)
    assert done.returncode != 0
    return done.stdout


@pytest.mark.parametrize("plant", PLANTED)
def test_an_import_against_the_rules_is_caught(plant: str, broken: str) -> None:
    module, line, contract = PLANTED[plant]
    assert f"{contract} BROKEN" in broken
    section = re.search(rf"^{contract}\n-+\n(.*?)(?:^\S[^\n]*\n-+\n|\Z)", broken, re.MULTILINE | re.DOTALL)
    assert section is not None, broken
    importer = "everlog." + module.removesuffix(".py").replace("/", ".")
    found = re.search(r"^ *(?:from|import) (\S+)", line.splitlines()[-1]) if line else None
    if found is None:
        assert f"- {importer}\n" in section[1]  # it has no place
    else:
        imported = found[1] if found[1].startswith("everlog.") else found[1].partition(".")[0]
        assert re.search(rf"^- +{importer} -> {imported} \(", section[1], re.MULTILINE), section[1]
