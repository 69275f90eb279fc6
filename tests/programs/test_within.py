"""What is outside of `within` does not exist: for every command and every question of every program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.programs.samples import SCOPE, sample, world

import everlog
from everlog.errors import EverlogError, NoSuchSubject
from everlog.log.log import Log
from everlog.programs.command import By, Command
from everlog.programs.perform import ask, perform
from everlog.programs.program import Program
from everlog.programs.registry import every_value

VALUES = [pytest.param(program, value, id=f"{program.name}.{value.__name__}") for program, value in every_value()]
COMMANDS = [one for one in VALUES if issubclass(one.values[1], Command)]  # type: ignore[arg-type]
QUESTIONS = [one for one in VALUES if one not in COMMANDS]


@pytest.fixture
def log() -> Any:
    with everlog.open("memory:", actor="user:ada") as opened:
        yield opened


@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_a_command_finds_nothing_outside_of_the_scope_of_its_caller(
    log: Log, program: Program, command: type[Any]
) -> None:
    made = sample(program, command, world(log, program.name), every_field=False)
    head = log.head()
    for key in ("", "k1"):
        with pytest.raises(NoSuchSubject):
            perform(log, made, By(actor="user:ada", within="elsewhere", key=key))
    assert log.head() == head
    inside = outcome(lambda: perform(log, made, By(actor="user:ada", within=SCOPE, dry_run=True)))
    assert inside != "no_such_subject", "the sample is about something that is there"


def outcome(attempt: Callable[[], Any]) -> Any:
    """Return the answer, or the code of the refusal."""
    try:
        return attempt()
    except EverlogError as error:
        return error.code


@pytest.mark.parametrize(("program", "question"), QUESTIONS)
def test_a_question_finds_nothing_outside_of_the_scope_and_everything_inside(
    log: Log, program: Program, question: type[Any]
) -> None:
    asked = sample(program, question, world(log, program.name), every_field=False)
    everything = ask(log, asked)
    assert ask(log, asked, within=SCOPE) == everything
    assert outcome(lambda: ask(log, asked, within="elsewhere")) in ([], {}, "no_such_subject")


def test_a_new_event_gets_a_label_inside_of_the_scope_of_its_caller(log: Log) -> None:
    from everlog.programs.agents.commands import Propose

    made = perform(log, Propose(agent_id="b", tool_name="t"), By(actor="agent:b", within="acme/shop"))
    assert made.events[0].scope == "acme/shop"


def test_keys_of_callers_with_different_scopes_are_different_keys(log: Log) -> None:
    from everlog.programs.agents.commands import Propose

    asked = Propose(agent_id="b", tool_name="t")
    first = perform(log, asked, By(actor="agent:b", within="acme", key="k"))
    other = perform(log, asked, By(actor="agent:b", within="umbra", key="k"))
    assert (other.replayed, log.head()) == (False, 2)
    assert perform(log, asked, By(actor="agent:b", within="acme", key="k")).records == first.records
