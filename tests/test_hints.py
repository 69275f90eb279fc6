"""No hint is a complete command that destroys something: a person, or an agent, who pastes it must still decide."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "everlog"
DESTRUCTIVE = re.compile(
    r"""
      everlog\ (?:\S+\ )*?(?:purge|delete|forget)\b(?!\s--help).*--(?:confirm|force|yes|forget)
    | everlog\ consumers\ reset\b(?!\s--help).*--(?:forget|confirm|to)
    | everlog\ \S+.*--(?:yes|force)(?![\w-])
    | \brm\ (?!-r\ --cached)\S
    | \bgit\ (?:reset\ --hard|clean\ -|push\ --force|restore\ \S|stash\ (?:drop|clear)|branch\ -D)
    | \bgit\ checkout\ (?!--merge\))[^)\s,]
    | \b(?:DROP|TRUNCATE)\ (?:TABLE|SCHEMA|DATABASE)
    | \bmkfs|\bdd\ if=|\bunlink\ \S|\btruncate\ -s
    """,
    re.VERBOSE,
)
HINTS = {"hint", "fix"}


def text_of(node: ast.expr) -> str:
    """The text of a literal; what is put in when it runs is a word."""
    match node:
        case ast.Constant(value=str()):
            return str(node.value)
        case ast.JoinedStr():
            return "".join(text_of(part) for part in node.values)
        case ast.FormattedValue():
            return "WORD"
        case ast.BinOp(left=left, right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=one, orelse=other):
            return f"{text_of(one)} | {text_of(other)}"
    return " | ".join(text_of(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def hints() -> Iterator[tuple[str, str]]:
    """Every text of the source that may be shown as a hint: arguments and variables of that name, and findings."""
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.keyword(arg=str(name), value=value) if name in HINTS:
                    yield f"{place}:{value.lineno}", text_of(value)
                case ast.Call(func=ast.Attribute(attr=str(name)), args=[*given]) if name in HINTS:
                    yield from ((f"{place}:{node.lineno}", text_of(value)) for value in given)
                case ast.Call(func=ast.Name(id="Finding" | "Check"), args=[*given]):
                    yield from ((f"{place}:{node.lineno}", text_of(value)) for value in given)
                case ast.Assign(targets=[*targets], value=value) if any(
                    isinstance(target, ast.Name) and target.id in HINTS for target in targets
                ):
                    yield f"{place}:{node.lineno}", text_of(value)
                case ast.Assign(targets=[ast.Tuple(elts=[*targets])], value=value) if any(
                    isinstance(target, ast.Name) and target.id in HINTS for target in targets
                ):
                    yield f"{place}:{node.lineno}", text_of(value)
                case ast.FunctionDef(name=str(name)) if name in ("_hint", "hint"):
                    for inner in ast.walk(node):
                        if isinstance(inner, ast.Return) and inner.value is not None:
                            yield f"{place}:{inner.lineno}", text_of(inner.value)


@cache
def all_hints() -> list[tuple[str, str]]:
    return list(hints())


def test_no_hint_is_a_complete_destructive_command() -> None:
    found = [(place, text) for place, text in all_hints() if DESTRUCTIVE.search(text)]
    assert found == []


def test_enough_hints_are_looked_at() -> None:
    assert len(all_hints()) > 400


@pytest.mark.parametrize(
    "text",
    [
        "everlog purge note/1 --reason x --confirm 'purge note/1'",
        "everlog issue delete hrac --force --confirm 'delete hrac'",
        "use a new name, or everlog consumers reset mailer --forget",
        "everlog export all.jsonl --force",
        "rm .everlog/lock",
        "git checkout 2026-01-01.jsonl, or restore it",
        "git checkout --merge -- a && git add a",
        "git reset --hard origin/main",
    ],
)
def test_what_would_be_one_is_known(text: str) -> None:
    assert DESTRUCTIVE.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "repeat the command with --confirm 'purge note/1'",
        "name another file, or replace it with --force",
        "everlog log --purges",
        "restore it from version control (git checkout), or a backup",
        "everlog consumers reset --help shows how",
        "git rm -r --cached .everlog/local, and commit",
    ],
)
def test_what_is_none_is_left_alone(text: str) -> None:
    assert not DESTRUCTIVE.search(text)
