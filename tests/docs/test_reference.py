"""The reference pages say what the program has and nothing else: commands, errors, settings, types, formats."""

from __future__ import annotations

import json
import re
import sqlite3
import tomllib
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files as package_files
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import everlog
from everlog import settings
from everlog._version import __version__
from everlog.catalog.builtin import BUILT_IN
from everlog.cli.help import TOPICS
from everlog.cli.main import cli
from everlog.core.canonical import canonical
from everlog.core.codec import (
    HEADER_FIELDS,
    assemble,
    event_from_object,
    event_object,
    from_msgpack,
    header_bytes,
    to_msgpack,
)
from everlog.core.ids import id_uuid
from everlog.errors import EXIT_CODES, EverlogError

if TYPE_CHECKING:
    from tests.docs.conftest import Page

ROOT = Path(__file__).parents[2]
LAUNCHER_EXIT = 69
PROGRAMS = {
    "agent": "agents",
    "community": "community",
    "control": "controlplane",
    "issue": "issues",
    "wp": "workpackages",
}


# ---- commands


def every_command() -> Iterator[tuple[str, click.Command]]:
    waiting: list[tuple[str, click.Command]] = [("everlog", cli)]
    while waiting:
        path, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                waiting.append((f"{path} {name}", found))
        if command is not cli:
            yield path, command


@pytest.mark.parametrize(("path", "command"), [pytest.param(p, c, id=p) for p, c in every_command()])
def test_every_command_has_an_example_and_all_its_options(
    path: str, command: click.Command, pages: dict[str, Page]
) -> None:
    page = pages[page_of(path)]
    section = next(filter(None, (page.section(f"{level} {path}") for level in ("###", "####"))), "")
    assert section, f"{page_of(path)} has no heading {path!r}"
    if isinstance(command, click.Group):
        return
    assert re.search(rf"^(\$ )?{re.escape(path)}\b", section, re.MULTILINE), f"{path} has no example"
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            name = max(parameter.opts, key=len)
            documented = section + pages["docs/commands.md"].section("## Every command")
            if path.split()[1] in PROGRAMS:
                documented += pages["docs/programs/README.md"].section("## What every command that records takes")
            assert f"`{name}" in documented, f"{path} {name} is not documented"


def test_no_command_is_documented_that_does_not_exist(pages: dict[str, Page]) -> None:
    described = ["docs/commands.md", *(page_of(f"everlog {program}") for program in PROGRAMS)]
    documented = [
        (page, path)
        for page in described
        for path in re.findall(r"^####? (everlog .*)$", pages[page].text, re.MULTILINE)
    ]
    assert sorted(documented) == sorted((page_of(path), path) for path, _ in every_command())


def page_of(path: str) -> str:
    """The page that describes a command: a program has one of its own."""
    program = PROGRAMS.get(path.split()[1])
    return f"docs/programs/{program}.md" if program else "docs/commands.md"


def test_every_topic_of_help_is_named(pages: dict[str, Page]) -> None:
    section = pages["docs/commands.md"].section("### everlog help")
    assert [topic for topic in TOPICS if f"`{topic}`" not in section] == []


# ---- errors, settings, types, names


def test_every_error_code_is_documented_with_its_exit_code(pages: dict[str, Page]) -> None:
    documented = {row[0]: (int(row[1]), row[2] == "yes") for row in pages["docs/errors.md"].rows("## The codes")}
    assert documented == {kind.code: (kind.exit_code, kind.retryable) for kind in every_error(EverlogError)}


def every_error(kind: type[EverlogError]) -> Iterator[type[EverlogError]]:
    """The tree of errors.py; what other modules add for themselves is documented in their own words."""
    if kind.__module__ == "everlog.errors":
        yield kind
        for below in kind.__subclasses__():
            yield from every_error(below)


def test_every_exit_code_is_documented(pages: dict[str, Page]) -> None:
    documented = [int(row[0]) for row in pages["docs/errors.md"].rows("## Exit codes")]
    assert sorted(documented) == sorted([*EXIT_CODES, LAUNCHER_EXIT])


def test_every_problem_that_verify_can_name_is_documented(pages: dict[str, Page]) -> None:
    told = set()
    for name in (
        "src/everlog/application/trust/checkpoints.py",
        "src/everlog/log/verify/audit.py",
        "src/everlog/log/verify/signatures.py",
        "src/everlog/log/verify/stored_groups.py",
        "src/everlog/log/verify/verify.py",
        "src/everlog/stores/sqlite/check.py",
        "src/everlog/stores/jsonl/check.py",
        "src/everlog/stores/segments/state.py",
        "src/everlog/stores/segments/loading.py",
        "src/everlog/stores/segments/closed_end.py",
        "src/everlog/stores/segments/check.py",
    ):
        told |= set(
            re.findall(
                r"(?:Problem|_report)\([^,\"]+, \"(\w+)\"|yield \"(\w+)\"", (ROOT / name).read_text(encoding="utf-8")
            )
        )
    codes = {one or other for one, other in told}
    assert {row[0] for row in pages["docs/operations.md"].rows("## Damage")} == codes


def test_every_setting_is_documented(pages: dict[str, Page]) -> None:
    documented = {row[0]: tuple(row[1:]) for row in pages["docs/settings.md"].rows("## The settings")}
    defaults = settings.Settings()
    assert documented == {
        name: (
            f"[{settings.section_of(name)}]",
            str(getattr(defaults, name)).lower() or "empty",
            f"EVERLOG_{name.upper()}",
            text,
        )
        for name, text in settings.DOCS.items()
    }


def test_every_built_in_event_type_is_documented(pages: dict[str, Page]) -> None:
    rows = pages["docs/schema-evolution.md"].rows("## The built-in types")
    assert {row[0]: int(row[1]) for row in rows} == {info.type: info.version for info in BUILT_IN.types()}


def test_every_public_name_is_in_the_docs(pages: dict[str, Page]) -> None:
    text = "\n".join(page.text for page in pages.values())
    assert [name for name in everlog.__all__ if not re.search(rf"\beverlog\.{name}\b|`{name}\b", text)] == []


def test_the_changelog_has_this_version(pages: dict[str, Page]) -> None:
    assert f"\n## {__version__}\n" in pages["CHANGELOG.md"].text


def test_the_documented_layers_are_those_that_are_checked(pages: dict[str, Page]) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"] == "Imports point down only"]
    shown = next(block for block in pages["CONTRIBUTING.md"].of("text") if block.text.startswith("cli\n"))
    assert [line.split("  ")[0] for line in shown.text.splitlines()] == layers


# ---- formats


def test_the_documented_header_is_the_one_that_is_hashed(pages: dict[str, Page]) -> None:
    rows = pages["docs/formats.md"].rows("## The header")
    assert [(int(row[0]), row[1]) for row in rows] == list(enumerate(HEADER_FIELDS))


def test_the_documented_tables_and_triggers_are_those_of_a_new_log(pages: dict[str, Page]) -> None:
    page = pages["docs/formats.md"]
    database = sqlite3.connect(":memory:")
    database.executescript((package_files("everlog.stores.sqlite") / "schema.sql").read_text(encoding="utf-8"))
    named = database.execute("SELECT type, name FROM sqlite_schema").fetchall()
    tables = sorted(name for kind, name in named if kind == "table")
    triggers = {name for kind, name in named if kind == "trigger"}

    assert sorted(re.findall(r"^#### (\w+)$", page.text, re.MULTILINE)) == tables
    for table in tables:
        columns = [(row[1], row[2]) for row in database.execute(f"PRAGMA table_info({table})")]
        assert [(row[0], row[1]) for row in page.rows(f"#### {table}")] == columns
    assert {row[0] for row in page.rows("### The triggers")} == triggers
    database.close()


def test_the_worked_example_holds_by_its_own_text(pages: dict[str, Page]) -> None:
    """Every hash computed again from what the page shows, and the whole read by the program."""
    (block,) = [block for block in pages["docs/formats.md"].of("text") if block.text.startswith("event 1\n")]
    previous = b""
    for part in block.text.split("\n\n"):
        shown = dict(line.split(None, 1) for line in part.strip().splitlines()[1:])
        header, payload, salt = shown["header"].encode(), shown["payload"].encode(), bytes.fromhex(shown["salt"])
        event = assemble(header, payload, salt)

        assert sha256(salt + payload).hexdigest() == shown["commitment"] == event.commitment.hex()
        assert sha256(b"\0" + header).hexdigest() == shown["hash"]
        assert (event.previous, event.id, str(id_uuid(event.id))) == (previous, shown["id"], shown["uuid"])
        assert (header_bytes(event), canonical(event.payload)) == (header, payload)
        assert canonical(json.loads(header)) == header, "a header is RFC 8785 too"
        assert event_from_object(event_object(event)) == event == from_msgpack(to_msgpack(event))
        previous = bytes.fromhex(shown["hash"])


def test_the_shown_object_is_the_second_event_of_the_example(pages: dict[str, Page]) -> None:
    page = pages["docs/formats.md"]
    (shown,) = page.of("json")
    (block,) = [block for block in page.of("text") if block.text.startswith("event 1\n")]
    event = event_from_object(json.loads(shown.text))
    assert header_bytes(event).decode() in block.text
    assert canonical(event.payload).decode() in block.text
