"""Hints over HTTP name routes and fields. A command of everlog is for the operator of the server, and says so."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.server.calling import Calls

import everlog
from everlog.application.operations.registry import operations
from everlog.server.routes.hints import OPERATOR, hint_for_api
from everlog.server.routes.routing import Table
from everlog.server.routes.table import routes

SOURCE = Path(everlog.__file__).parent
TABLE = Table(routes(operations()))


def hints_of(path: Path) -> set[str]:
    """Return the hints in a file, with NAME for what is filled in."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "hint":
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found.add(part.value)
                elif isinstance(part, ast.JoinedStr):
                    found.add(
                        "".join(str(one.value) if isinstance(one, ast.Constant) else "NAME" for one in part.values)
                    )
    return found


@pytest.fixture(scope="module")
def translated() -> list[str]:
    """Every hint that may name a command or an option, as an answer over HTTP has it."""
    hints = {
        hint
        for path in SOURCE.rglob("*.py")
        if not {"cli", "demo", "testing", "remote"} & set(path.relative_to(SOURCE).parts)
        for hint in hints_of(path)
        if "everlog" in hint or "--" in hint
    }
    assert len(hints) > 100
    return [hint_for_api(hint) for hint in sorted(hints)]


def test_a_hint_names_no_command_and_no_option_unless_it_is_for_the_operator(translated: list[str]) -> None:
    found = [hint for hint in translated if not hint.startswith(OPERATOR)]
    assert [hint for hint in found if re.search(r"\beverlog [a-z]|(^|\s)--[a-z]", hint)] == []


def test_a_route_that_a_hint_names_exists(translated: list[str]) -> None:
    named = [one for hint in translated for one in re.findall(r"\b(GET|POST) (/[^\s?;,()]+)", hint)]
    assert named
    for method, path in named:
        route, _ = TABLE.find(method, path)
        assert route.method == method, path


@pytest.mark.parametrize(
    ("hint", "wanted"),
    [
        ("everlog log --stream note/1", "GET /v1/streams/note/1/history"),
        ("everlog wp move WP03 doing", "POST /v1/do/workpackages.move (WP03 doing)"),
        ("everlog wp gate WP03 ci --result passed", "POST /v1/do/workpackages.gate (WP03 ci result=passed)"),
        ("everlog community join --actor user:bob", "POST /v1/do/community.join"),
        ("everlog show 7", "GET /v1/at/7"),
        ("everlog keys list", f"{OPERATOR}everlog keys list"),
        (
            'if that is what you want, repeat the command with --confirm "purge note/1"',
            'if that is what you want, repeat the request with the field confirm: "purge note/1"',
        ),
        ("send it as a string, or leave it out", "send it as a string, or leave it out"),
    ],
)
def test_commands_become_routes(hint: str, wanted: str) -> None:
    operations()  # loads the programs, whose commands are named
    assert hint_for_api(hint) == wanted


def test_a_caller_gets_routes_and_the_client_of_everlog_gets_commands(calls: Calls) -> None:
    wrong = {"type": "note.added", "stream": "note/1", "payload": {"text": 1}}
    assert calls.post("/v1/events", wrong).json()["hint"] == "GET /v1/schema?type=note.added"
    own = calls.post("/v1/events", wrong, headers={"everlog-hints": "commands"})
    assert own.json()["hint"] == "everlog schema show note.added"
