"""The pages of the documentation, taken apart: prose, tables and blocks of code.

A block's language says what the tests do with it:

    python     it runs, in order within a page, in an empty folder; an `output` block after it is what it prints. If
               its first line names a file, it is written there instead, and the blocks after it may import it
    toml       it is written to the file that its first line names, for the blocks after it
    console    a session: every `$ everlog ...` runs, as on a terminal, and must print what is shown
    sh         it is parsed: commands and options must exist
    text       it is for the eye, as are json and sql
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def prose(self) -> str:
        return FENCE.sub("", self.text)

    @property
    def blocks(self) -> list[Block]:
        return [
            Block(found[1], found[2], self.text.count("\n", 0, found.start()) + 2)
            for found in FENCE.finditer(self.text)
        ]

    def of(self, language: str) -> list[Block]:
        return [block for block in self.blocks if block.language == language]

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next one of any level; empty if there is no such heading."""
        found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#+ |\Z)", self.text, re.MULTILINE | re.DOTALL)
        return found[1] if found else ""

    def rows(self, heading: str) -> list[list[str]]:
        """The rows of the table below a heading, without their header; backquotes are left out."""
        lines = [line for line in self.section(heading).splitlines() if line.startswith("|")]
        cells = [re.split(r"(?<!\\)\|", line.strip("| ")) for line in lines[2:]]
        return [[cell.strip().replace("`", "").replace("\\|", "|") for cell in row] for row in cells]


def every_page() -> list[Page]:
    paths = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md", "SECURITY.md")]
    return [Page(path, path.read_text(encoding="utf-8")) for path in [*paths, *sorted((ROOT / "docs").rglob("*.md"))]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", [pytest.param(page, id=page.name, marks=_marks(page)) for page in every_page()])


def _marks(page: Page) -> list[pytest.MarkDecorator]:
    """A page whose code starts Spark runs with the tests that do."""
    if any("open_session" in block.text for block in page.of("python")):
        return [pytest.mark.spark]
    return []


@pytest.fixture(scope="session")
def pages() -> dict[str, Page]:
    return {page.name: page for page in every_page()}


@pytest.fixture
def written() -> Callable[[str], Page]:
    """A page with this text, to see what the tests say to it."""
    return lambda text: Page(ROOT / "docs" / "planted.md", text)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in, somebody to be, and a terminal of a known width."""
    home = tmp_path / "shop"
    home.mkdir()
    monkeypatch.chdir(home)
    for name, value in {"EVERLOG_ACTOR": "user:ada", "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    logger = logging.getLogger("everlog")
    before = (logger.handlers, logger.propagate)
    yield home
    logger.handlers, logger.propagate = before
