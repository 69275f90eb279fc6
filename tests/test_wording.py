"""Wishes about the words of messages that are cheap to check in the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "everlog"

FOLDERS = ("catalog", "cli", "consumers", "core", "log", "programs", "transfer", "views")
ALWAYS_MANY = ("demo_stages.py", "demo_spark.py")  # they count a week of thousands
MANY = re.compile(
    r" (?:[a-z]+ )?(?:events|keys|views|lines|files|positions|snapshots|problems|streams|segments|types|entries"
    r"|commits|changes|additions|times)\b"
)


def uncounted(source: str) -> Iterator[tuple[int, str]]:
    """(line, words) of every text that says a number of things and would say "1 events".

    A number is what is spelled `{n:,}`, `{len(…)}` or by a name that counts; what is quoted from elsewhere is none.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        for value, text in zip(node.values, node.values[1:], strict=False):
            if isinstance(value, ast.FormattedValue) and isinstance(text, ast.Constant) and _is_a_number(value):
                found = MANY.match(str(text.value))
                if found:
                    yield node.lineno, f"{{{ast.unparse(value.value)}}}{found.group()}"


def _is_a_number(value: ast.FormattedValue) -> bool:
    spelled = ast.unparse(value.value)
    if spelled.isupper():
        return False  # a constant, and known
    if value.format_spec is not None and ast.unparse(value.format_spec).strip("f'\"") == ",":
        return True
    return spelled.startswith("len(") or spelled.rpartition(".")[2] in ("count", "events", "keys", "checked", "lag")


def test_a_count_of_one_is_never_written_with_a_plural() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {words} (see core/text.py)"
        for folder in FOLDERS
        for path in sorted((SOURCE / folder).rglob("*.py"))
        if path.name not in ALWAYS_MANY
        for line, words in uncounted(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "source", ['f"{len(found)} events"', 'f"{done.keys:,} keys from it"', 'f"after {row.count} new events"']
)
def test_a_planted_one_is_caught(source: str) -> None:
    assert len(list(uncounted(source))) == 1


@pytest.mark.parametrize(
    "source", ["f\"{counted(n, 'event')} recorded\"", 'f"{LINES_MAX:,} lines"', 'f"{name} keys"', 'f"{n:,} eventful"']
)
def test_other_texts_pass(source: str) -> None:
    assert list(uncounted(source)) == []
