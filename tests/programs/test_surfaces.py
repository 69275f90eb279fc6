"""One suite for all programs: every field of every value reaches it equally from the command line, as JSON and as the
input of a tool; every example runs; a retry under one key through any surface gives one event."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from tests.cli.conftest import Run, everlog, place
from tests.programs.samples import sample, world

import everlog as library
from everlog.cli.main import cli
from everlog.cli.programs.builder import ValueCommand
from everlog.errors import EverlogError
from everlog.programs import perform as performing
from everlog.programs.command import By
from everlog.programs.operations import operations, tools
from everlog.programs.program import Program
from everlog.programs.registry import every_program, every_value

__all__ = ["everlog", "place"]

NOT_ON_THE_COMMAND_LINE = {"Specs", "Communities", "OnePost"}
SELECTS = {"ExpireDue": ["--due"], "Days": ["--by-day"]}
TIMES = {"as_of", "since", "until"}  # typed in a form of their own
VALUES = [
    pytest.param(program, value, id=f"{program.name}.{value.__name__}")
    for program, value in every_value()
    if value.__name__ not in NOT_ON_THE_COMMAND_LINE
]


def commands() -> dict[type[Any], tuple[list[str], click.Command]]:
    """Return the words and the click command for every value."""
    found: dict[type[Any], tuple[list[str], click.Command]] = {}
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
        elif isinstance(command, ValueCommand):
            found.update(dict.fromkeys(command.values, (words, command)))
    return found


COMMANDS = commands()


def typed(value: Any) -> list[str]:
    """Return the command line for a value."""
    words, command = COMMANDS[type(value)]
    arguments: list[str] = []
    options: list[str] = list(SELECTS.get(type(value).__name__, []))
    for parameter in command.params:
        if parameter.name not in value.__struct_fields__ or parameter.name in TIMES:
            continue
        given = getattr(value, parameter.name)
        if isinstance(parameter, click.Argument):
            arguments += given if isinstance(given, list) else [_text(given)]
        elif parameter.is_flag:  # type: ignore[attr-defined]
            negative = parameter.name == "valid"
            options += [parameter.opts[0]] if given != negative else []
        elif given is not None:
            for one in given if isinstance(given, list) else [given]:
                options += [max(parameter.opts, key=len), _text(one)]
    return [*words, *options, "--", *arguments]


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("program", "value"), VALUES)
def test_every_field_reaches_the_value_equally_from_every_surface(
    program: Program, value: type[Any], everlog: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with library.open("memory:", actor="user:ada") as log:
        known = {name: given for name, given in world(log, program.name).items() if name not in TIMES}
    wanted = sample(program, value, {**known, **dict.fromkeys(TIMES)}, every_field=True)
    seen: list[Any] = []

    def caught(log: Any, value: Any, *rest: Any, **more: Any) -> Any:
        seen.append(value)
        raise EverlogError("caught")

    monkeypatch.setattr(performing, "perform", caught)
    monkeypatch.setattr(performing, "ask", caught)
    assert everlog("init").code == 0
    answer = everlog(*typed(wanted))
    assert seen == [wanted], answer.err
    body = {name: given for name, given in msgspec.to_builtins(wanted).items() if given is not None}
    (operation,) = [one for one in operations() if one.value is value]
    assert operation._read(json.loads(json.dumps(body))) == wanted
    (tool,) = [one for one in tools() if one["name"] == operation.name.replace(".", "_")]
    assert set(body) <= set(tool["inputSchema"]["properties"])


def test_a_retry_under_one_key_through_any_surface_gives_one_event(everlog: Run, place: Path) -> None:
    words = ("agent", "propose", "pytest", "--agent-id", "builder", "--key", "k1", "--actor", "agent:b", "--json")
    assert everlog("init").code == 0
    first = everlog(*words).data
    assert everlog(*words).data == first
    with library.open() as log:
        (operation,) = [one for one in operations() if one.name == "agents.propose"]
        body = {"tool_name": "pytest", "agent_id": "builder"}
        again = operation.call(log, body, By(actor="agent:b", key="k1"))
        assert (again["id"], again["events"]) == (first["id"], first["events"])
        assert log.head() == 1


# ---- examples

EXAMPLES = [
    pytest.param(program.group, example, id=f"{program.group} {example}")
    for program, value in every_value()
    if value.__name__ not in NOT_ON_THE_COMMAND_LINE
    for example in value.examples
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
    "issue restore": [],
    "issue reopen": ["close hrac"],
}
MADE_BEFORE = {"control org create", "control app create", "control environment create", "wp create"}


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
    words = [_replaced(word, names) for word in shlex.split(example)]
    answer = everlog(group, *words)
    assert answer.code == 0, answer.err


def _replaced(word: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        word = word.replace(old, new)
    return word


def _without(group: str, whole: str) -> list[str]:
    """Return the setup up to the line that makes what the example makes."""
    name = shlex.split(whole)[-1 if group == "wp" else 3]
    name = "WP03" if group == "wp" else name
    lines = SETUP[group]
    stop = next((index for index, line in enumerate(lines) if f"create {name}" in line), len(lines))
    return [line for line in lines[:stop] if "spec" not in line]
