"""One suite for all programs: every field of every value reaches it equally from the command line, as JSON and as the
input of a tool, and every example runs."""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Iterator
from datetime import datetime
from importlib import import_module
from typing import Any

import click
import msgspec
import pytest
from tests.cli.conftest import Run, everlog, place
from tests.programs.samples import sample, world

import everlog as library
from everlog.cli.main import cli
from everlog.cli.programs.builder import ValueCommand
from everlog.cli.programs.spelling import fields_of
from everlog.errors import EverlogError
from everlog.programs import perform as performing
from everlog.programs.command import By
from everlog.programs.controlplane.commands import CreateApp, CreateOrg
from everlog.programs.operations import operations, tools
from everlog.programs.program import Program
from everlog.programs.registry import every_program, every_value

__all__ = ["everlog", "place"]

NOT_ON_THE_COMMAND_LINE = {"Specs", "Communities", "OnePost"}
SELECTS = {"ExpireDue": ["--due"], "Days": ["--by-day"]}
VALUES = [pytest.param(program, value, id=f"{program.name}.{value.__name__}") for program, value in every_value()]


def every_command() -> Iterator[tuple[list[str], click.Command]]:
    """Yield the groups of all programs and the commands in them, with the words to type."""
    waiting: list[tuple[list[str], click.Command]] = [([], cli)]
    while waiting:
        words, command = waiting.pop()
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                if words or name in {program.group for program in every_program()}:
                    waiting.append(([*words, name], below))
        if words:
            yield words, command


COMMANDS = {
    value: (words, command)
    for words, command in every_command()
    if isinstance(command, ValueCommand)
    for value in command.values
}


def typed(value: Any) -> list[str]:
    """Return the command line for a value."""
    words, command = COMMANDS[type(value)]
    arguments: list[str] = []
    options: list[str] = list(SELECTS.get(type(value).__name__, []))
    for parameter in command.params:
        if parameter.name not in value.__struct_fields__:
            continue
        given = getattr(value, parameter.name)
        if isinstance(parameter, click.Argument):
            arguments += given if isinstance(given, list) else [_text(given)]
        elif parameter.is_flag:  # type: ignore[attr-defined]
            negative = parameter.name == "valid"
            options += [parameter.opts[0]] if given != negative else []
        elif given is not None:
            for one in given if isinstance(given, list) else [given]:
                options += [max(parameter.opts, key=len), f"#{one}" if parameter.name == "as_of" else _text(one)]
    return [*words, *options, "--", *arguments]


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return json.dumps(value) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("program", "value"), VALUES)
def test_every_field_reaches_the_value_equally_from_every_surface(
    program: Program, value: type[Any], everlog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library.open("memory:", actor="user:ada") as log:
        wanted = sample(program, value, world(log, program.name), every_field=True)
    lost = [one.name for one in fields_of(value) if getattr(wanted, one.name) == one.default]
    assert lost == [], "a field that has its default would not be missed"
    seen: list[Any] = []

    def caught(log: Any, value: Any, *rest: Any, **more: Any) -> Any:
        seen.append(value)
        raise EverlogError("caught")

    monkeypatch.setattr(performing, "perform", caught)
    monkeypatch.setattr(performing, "ask", caught)
    if value.__name__ not in NOT_ON_THE_COMMAND_LINE:
        assert everlog("init").code == 0
        answer = everlog(*typed(wanted))
        assert seen == [wanted], answer.err
    body = {name: given for name, given in msgspec.to_builtins(wanted).items() if given is not None}
    (operation,) = [one for one in operations() if one.value is value]
    assert operation.read(json.loads(json.dumps(body))) == wanted
    (tool,) = [one for one in tools() if one["name"] == operation.name.replace(".", "_")]
    assert set(tool["inputSchema"].get("required", ())) <= set(body) == set(tool["inputSchema"]["properties"])


# ---- examples


def shown() -> Iterator[str]:
    """Yield the examples of every value and of every help page of a program."""
    for program, value in every_value():
        assert bool(value.examples) != (value.__name__ in NOT_ON_THE_COMMAND_LINE), value
        yield from (f"{program.group} {example}" for example in value.examples)
    for _, command in every_command():
        lines = (command.help or "").splitlines()
        yield from (line.strip().removeprefix("everlog ") for line in lines if line.startswith("  everlog "))


NEEDS_A_FORK = "community branch "
"""Its examples need a key that signed two events with one number: see tests/programs/community/test_branches.py."""

EXAMPLES = [
    pytest.param(*example.split(" ", 1), id=example)
    for example in dict.fromkeys(shown())
    if not example.startswith(NEEDS_A_FORK)
]


def prepared(run: Run, group: str) -> Iterator[tuple[str, str]]:
    """Record what the examples are about; yield what must be replaced in them."""
    if group == "issue":
        one = run("issue", "create", "The gate rattles", "--json").data["id"]
        two = run("issue", "create", "Buy grease", "--json").data["id"]
        run("issue", "link", two, "blocks", one)
        yield from (("hrac", one), ("8qz1", two))


SETUP = {
    "agent": ["propose pytest --agent-id b --id c1 --actor agent:b --correlation session-7"],
    "wp": [
        'create WP01 "One"',
        'create WP02 "Two"',
        'create WP03 "Three" --gate ci --subtask x',
        'spec 025-other "x"',
    ],
    "control": [
        *("org create umbra", "org create acme", "app create acme/shop", "app create acme/old"),
        *("environment create acme/shop/test", "environment create acme/shop/prod"),
        "deploy request acme/shop/prod shop:1 --id d1",
        "secret set acme/shop/prod DATABASE_URL --version 1",
        "route set shop.example.org acme/shop/prod",
        "volume attach acme/shop/prod data --process db --mount /data --size-gb 1",
    ],
    "community": [
        "create hearth --actor user:ada",
        *(f"invite user:{name} --actor user:ada" for name in ("bob", "cyd", "mia")),
        *(f"join --actor user:{name}" for name in ("bob", "mia")),
        "promote user:mia --to moderator --actor user:ada",
        'post lamp "A lamp" --actor user:bob',
        'say general "hi" --actor user:bob',
        "advertise bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi --actor user:ada",
    ],
    "issue": [],
}
FIRST = {
    "agent execute": ["approve c1 --actor user:ada"],
    "agent fail": ["approve c1 --actor user:ada"],
    "wp move WP03 planned": ["move WP03 doing"],
    "control org create": [],
    "control deploy succeed": ["deploy start d1 --actor service:x"],
    "control deploy fail d2": ["deploy fail d1 --error x", "deploy request acme/shop/prod shop:2 --id d2"],
    "control deploy rollback": ["deploy start d1 --actor service:x", "deploy succeed d1 --actor service:x"],
    "control deploy request": ["deploy fail d1 --error x"],
    "control volume attach acme/shop/prod data --mount": ["volume detach acme/shop/prod data"],
    "issue restore": [],
    "issue reopen": ["close hrac"],
    "wp renew": ["claim WP03 --actor agent:builder"],
    "wp release": ["claim WP03 --actor agent:builder"],
    "issue renew": ["claim hrac --actor agent:builder"],
    "issue release": ["claim hrac --actor agent:builder"],
}
MADE_BEFORE = (
    *("control org create", "control app create", "control environment create"),
    *("wp create", "community create hearth"),
)


@pytest.mark.parametrize(("group", "example"), EXAMPLES)
def test_every_example_runs(group: str, example: str, everlog: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert everlog("init").code == 0
    monkeypatch.setenv("EVERLOG_ACTOR", "user:ada")
    whole = f"{group} {example}"
    setup = SETUP[group] if not any(whole.startswith(made) for made in MADE_BEFORE) else _without(group, whole)
    for line in setup:
        assert everlog(group, *shlex.split(line)).code == 0, line
    names = dict(prepared(everlog, group))
    for start, lines in FIRST.items():
        for line in lines if whole.startswith(start) else ():
            done = everlog(group, *[names.get(word, word) for word in shlex.split(line)])
            assert done.code == 0, (line, done.err)
    for line in whole.split(" && everlog "):
        answer = everlog(*[_replaced(word, names) for word in shlex.split(line)])
        assert answer.code == 0, answer.err


def _replaced(word: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        word = word.replace(old, new)
    return word


def _without(group: str, whole: str) -> list[str]:
    """Return the setup up to the line that makes what the example makes."""
    words = shlex.split(whole)
    name = words[words.index("create") + 1]
    lines = SETUP[group]
    stop = next((index for index, line in enumerate(lines) if f"create {name}" in line), len(lines))
    return [line for line in lines[:stop] if "spec" not in line]


@pytest.mark.parametrize("program", list(every_program()), ids=lambda program: program.name)
def test_the_python_in_the_docstring_of_the_commands_runs(program: Program) -> None:
    module = import_module(f"everlog.programs.{program.name}.commands")
    doc = inspect.cleandoc(module.__doc__ or "")
    lines = [line.strip() for line in doc.splitlines() if "perform(log, " in line]
    assert lines
    with library.open("memory:", actor="user:ada") as log:
        if program.name == "controlplane":
            performing.perform(log, CreateOrg(org="acme"))
            performing.perform(log, CreateApp(app="acme/shop"))
        exec("\n".join(lines), {**vars(module), "log": log, "perform": performing.perform, "By": By})
        assert log.head() >= len(lines)
