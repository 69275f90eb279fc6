"""What is outside of `within` does not exist: for every command and every question of every program."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.programs.random_commands import random_caller, random_value
from tests.programs.samples import SCOPE, sample, world

import everlog
from everlog import programs
from everlog.core.query import Query
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


OUTSIDE = pytest.mark.parametrize("outside", ["elsewhere", SCOPE[:-1], f"{SCOPE}/below"])


@OUTSIDE
@pytest.mark.parametrize(("program", "command"), COMMANDS)
def test_a_command_finds_nothing_outside_of_the_scope_of_its_caller(
    log: Log, program: Program, command: type[Any], outside: str
) -> None:
    made = sample(program, command, world(log, program.name), every_field=False)
    head = log.head()
    for key in ("", "k1"):
        with pytest.raises(NoSuchSubject):
            perform(log, made, By(actor="user:ada", within=outside, key=key))
    assert log.head() == head
    inside = outcome(lambda: perform(log, made, By(actor="user:ada", within=SCOPE, dry_run=True)))
    assert inside != "no_such_subject", "the sample is about something that is there"


def outcome(attempt: Callable[[], Any]) -> Any:
    """Return the answer, or the code of the refusal."""
    try:
        return attempt()
    except EverlogError as error:
        return error.code


@OUTSIDE
@pytest.mark.parametrize(("program", "question"), QUESTIONS)
def test_a_question_finds_nothing_outside_of_the_scope_and_everything_inside(
    log: Log, program: Program, question: type[Any], outside: str
) -> None:
    asked = sample(program, question, world(log, program.name), every_field=False)
    everything = ask(log, asked)
    assert ask(log, asked, within=SCOPE) == everything
    assert outcome(lambda: ask(log, asked, within=outside)) in ([], {}, "no_such_subject")


@pytest.mark.parametrize("name", ["agents", "workpackages"])
@pytest.mark.parametrize("seed", range(5))
def test_a_question_is_answered_as_if_the_log_held_only_the_events_in_the_scope(name: str, seed: int) -> None:
    program, chance = programs.load(name), random.Random(seed)
    with everlog.open("memory:", actor="user:ada") as log:
        for _ in range(120):
            made = random_value(program, chance.choice(program.commands), log, chance)
            outcome(lambda made=made: perform(log, made, linked(log, program, chance)))  # type: ignore[misc]
        assert log.head() > 10
        for scope in ("acme", "acme/shop", "elsewhere"):
            with everlog.open("memory:") as only:
                only.admit([one.event for one in log.read(Query(scope=scope))])
                for question in program.questions * 6:
                    asked = random_value(program, question, log, chance)
                    found = outcome(lambda asked=asked, scope=scope: ask(log, asked, within=scope))  # type: ignore[misc]
                    wanted = outcome(lambda asked=asked, only=only: ask(only, asked))  # type: ignore[misc]
                    assert comparable(found) == comparable(wanted), (asked, scope)


def linked(log: Log, program: Program, chance: random.Random) -> By:
    """Return a caller whose events have a session, and often a cause: any event, also one in another scope."""
    before = [one.event.id for one in log.read()]
    cause = chance.choice(before) if before and chance.random() < 0.7 else ""
    by = random_caller(program, chance)
    return replace(by, within="", causation_id=cause, correlation_id=f"session-{chance.choice([1, 2])}")


def comparable(answer: Any) -> Any:
    """Return an answer without what was refused lately: the error log is not a part of the events.

    A name that nothing can have is refused as such where it is looked up as a stream; nothing exists under it.
    """
    if answer == "invalid_field":
        return "no_such_subject"
    return (
        {name: value for name, value in answer.items() if name != "refused"} if isinstance(answer, dict) else answer
    )


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
