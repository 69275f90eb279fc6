"""What a refusal says to type can be typed: it names a command that there is, with all that the command needs."""

from __future__ import annotations

import random
import re
import shlex

import click
import pytest
from tests.programs.steps import step_of

import everlog
from everlog import programs
from everlog.cli.main import cli
from everlog.cli.session import Session
from everlog.errors import EverlogError

STEPS = 250
_END = re.compile(r", or |; | shows | for ")
"""What comes after a command in a hint."""


def require_typable(hint: str) -> None:
    """Take a command line apart as the program would, down to the last option, without running it."""
    _, *words = shlex.split(_END.split(hint)[0])
    command: click.Command = cli
    parent: click.Context | None = None
    while True:
        given = {} if parent is not None else {"obj": Session(argv=words)}
        context = command.make_context(command.name, words, parent=parent, **given)
        if not isinstance(command, click.Group):
            return
        _, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, parent = found, context


@pytest.mark.parametrize("name", sorted(programs.TYPES))
def test_what_a_refusal_says_to_type_can_be_typed(name: str) -> None:
    step, chance, typed = step_of(name), random.Random(5), set()
    with everlog.open("memory:", actor="user:ada") as log:
        for _ in range(STEPS):
            try:
                step(log, chance)
            except EverlogError as error:
                if error.hint.startswith("everlog "):
                    require_typable(error.hint)
                    typed.add(error.what)
    assert len(typed) > 5, "random work that is seldom refused shows little"


@pytest.mark.parametrize(
    "hint", ["everlog issue purge hrac --force", "everlog wp nothing", "everlog agent reject c1"]
)
def test_what_cannot_be_typed_would_be_found(hint: str) -> None:
    with pytest.raises(click.UsageError):
        require_typable(hint)
