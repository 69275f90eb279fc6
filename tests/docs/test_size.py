"""How long the documentation is, and that the comparison names its sources."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tests.docs.reference import GENERATED

if TYPE_CHECKING:
    from tests.docs.conftest import Page

WORDS_MAX = 26_800
FILES_MAX = 14


def test_the_hand_written_pages_stay_short(pages: dict[str, Page]) -> None:
    """Decisions and the reference apart: what a reader has to read, not to look up."""
    read = [page for name, page in pages.items() if re.match(r"docs/(README\.md|tutorial/|how-to/|why/)", name)]
    assert len(read) > 30
    assert sum(len(page.text.split()) for page in read) <= WORDS_MAX


def test_only_formats_and_the_glossary_are_written_by_hand_in_the_reference(pages: dict[str, Page]) -> None:
    written = {name for name, page in pages.items() if "/reference/" in name and not page.text.startswith(GENERATED)}
    assert written == {"docs/reference/formats.md", "docs/reference/glossary.md"}


def test_no_folder_of_pages_is_large(pages: dict[str, Page]) -> None:
    folders = [name.rpartition("/")[0] for name in pages if "/decisions/" not in name]
    assert max(folders.count(folder) for folder in folders) <= FILES_MAX


def test_each_cell_of_the_comparison_has_a_source(pages: dict[str, Page]) -> None:
    rows = [
        line.split("|")[2:-1] for line in pages["docs/why/comparison.md"].text.splitlines() if line.startswith("|")
    ]
    cells = [cell for row in rows if "---" not in row[0] for cell in row]
    heads = 4  # two tables with two further columns each
    assert len(cells) > 20
    assert sum("](" not in cell for cell in cells) == heads
