"""The words of messages, docstrings, comments and docs, as far as a search can check them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
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


# ---- plain English

PROJECT = SOURCE.parent.parent
DIALECT = re.compile(
    r"\b(?:anew|whoever|whomever|told|said|his|him|himself|is had|puts? (?:down|aside))\b"
    r"|\btells? (?:of|that|what|how|which|whether|who)\b"
    r"|\bof (?:his|her|one's|its|their) own\b"
    r"|\b(?:is|are|be|was|were) made again\b"
    r"|(?:\bby|;) who\b"  # "revoked by who ranks above": write "by anyone who", or name them
    # "one row an event": write "one row per event"
    r"|\b(?:a|an|one) (?:row|line|file|frame|page|table|column|state|key|event|bit|byte)s? an? "
    r"(?:key|event|row|line|write|stream|day|view|type|issue|package|position|second)\b",
    re.IGNORECASE,
)
SPEAKING = re.compile(r"(?:^|_)(?:tells?|told|said|says?|saying|hears?|heard)(?:_|$)")

STORED = "a name in stored rows, in a lake or in JSON output"
SOURCE_IS_STORED = "an upcaster: its source is part of the fingerprint that stored views carry"
ALLOWED = {
    ("src/everlog/programs/community/reading.py", "said"): STORED,
    ("src/everlog/programs/issues/questions.py", "said"): STORED,
    ("src/everlog/cli/programs/issues.py", "said"): STORED,
    ("src/everlog/pipeline/tables/log_facts.py", "said"): STORED,
    ("src/everlog/pipeline/tables/gold.py", "anew"): STORED,
    ("src/everlog/log/write/guard.py", "is made again"): "a decision is made",
    ("src/everlog/log/write/writer.py", "is made again"): "a decision is made",
    ("src/everlog/demo/programs/community.py", "his"): "the reason that a person in the demo gives",
    ("src/everlog/programs/agents/events.py", "say_nothing_of_why_and_risk"): SOURCE_IS_STORED,
    ("src/everlog/programs/workpackages/events.py", "say_the_feature_and_the_subtasks"): SOURCE_IS_STORED,
}
FROZEN = "src/everlog/transfer/upgrade/"  # readers of an earlier format, which are not edited any more


def dialect(text: str) -> Iterator[tuple[int, str]]:
    """Return (line, words) of every expression of the old dialect."""
    for number, line in enumerate(text.splitlines(), 1):
        for found in DIALECT.finditer(line):
            yield number, found.group().lower().removeprefix("; ")


def speaking_functions(source: str) -> Iterator[tuple[int, str]]:
    """Return (line, name) of every function that is named by speaking and not by what it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and SPEAKING.search(node.name):
            yield node.lineno, node.name


@cache
def _texts() -> list[tuple[str, str]]:
    pages = [*(PROJECT / "docs").rglob("*.md"), PROJECT / "README.md", PROJECT / "CONTRIBUTING.md"]
    named = {path.relative_to(PROJECT).as_posix(): path for path in sorted([*SOURCE.rglob("*.py"), *pages])}
    return [(name, path.read_text()) for name, path in named.items() if not name.startswith(FROZEN)]


@cache
def _dialect() -> list[tuple[str, int, str]]:
    return [(name, line, words) for name, text in _texts() for line, words in dialect(text)]


@cache
def _speaking() -> list[tuple[str, int, str]]:
    sources = [(name, text) for name, text in _texts() if name.endswith(".py")]
    return [(name, line, function) for name, text in sources for line, function in speaking_functions(text)]


def test_texts_are_in_plain_english() -> None:
    found = [
        f"{name}:{line}: {words!r} (see docs/reference/glossary.md)"
        for name, line, words in _dialect()
        if (name, words) not in ALLOWED
    ]
    assert found == []


def test_functions_are_named_by_what_they_do() -> None:
    found = [
        f"{name}:{line}: {function} (show_…, describe_…, notify_…)"
        for name, line, function in _speaking()
        if (name, function) not in ALLOWED
    ]
    assert found == []


def test_every_exception_is_still_needed() -> None:
    used = {(name, words) for name, _, words in [*_dialect(), *_speaking()]}
    assert {one for one in ALLOWED if one not in used} == set()


@pytest.mark.parametrize(
    "text",
    [
        "# the index is made again",
        "derived anew",
        "Whoever appends first",
        '"""One row an event."""',
        "a row a key",
        "in a log of its own",
        "they are unpinned by who keeps them",
        "a refusal; who repeats it is warned",
        "it tells of a change",
        "the writer is told",
    ],
)
def test_planted_dialect_is_caught(text: str) -> None:
    assert len(list(dialect(text))) == 1


@pytest.mark.parametrize("name", ["tell", "told_once", "said", "_say_it", "hear"])
def test_a_planted_function_is_caught(name: str) -> None:
    assert len(list(speaking_functions(f"def {name}():\n    return 1\n"))) == 1


@pytest.mark.parametrize(
    "text", ["one row per event", "anyone who may read it", "its own log", "essays", "a position that a user knows"]
)
def test_plain_english_passes(text: str) -> None:
    assert list(dialect(text)) == []
