"""The site: every page of docs/ builds without a warning, its links hold, and it loads nothing from another host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\"' >]+")


def test_the_site_builds_and_asks_no_other_host(tmp_path: Path) -> None:
    settings = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    (tmp_path / "zensical.toml").write_text(settings.replace("build/site", "site"), encoding="utf-8")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stdout + built.stderr

    pages = [path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")]
    assert len(pages) > 70
    assert [found for page in pages for found in ELSEWHERE.findall(page)] == []
    assert "wrong_sequence" in (tmp_path / "site" / "search.json").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation() -> None:
    """Decisions are reached from their index."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    shown = set(re.findall(r"'([\w/-]+\.md)'", str(project["nav"])))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if not page.startswith("decisions/")} == shown - {"decisions/README.md"}
