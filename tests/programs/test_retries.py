"""A request that is sent again under its key, through any surface, gives the same events and records nothing new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import Run, everlog, place
from tests.programs.story import lines, typed

import everlog as library
from everlog.log.log import Log
from everlog.programs import perform as performing
from everlog.programs.command import By, Outcome
from everlog.programs.community.governing import NameBranch
from everlog.programs.operations import Operation, operations
from everlog.programs.registry import every_program

__all__ = ["everlog", "place"]

OPERATIONS = {one.value: one for one in operations()}


@contextmanager
def caught(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, By, Outcome[Any]]]]:
    """Keep what the command line performs: the value, its caller and the outcome."""
    found: list[tuple[Any, By, Outcome[Any]]] = []
    perform = performing.perform

    def keeping(log: Log, command: Any, by: By) -> Outcome[Any]:
        outcome = perform(log, command, by)
        found.append((command, by, outcome))
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(performing, "perform", keeping)
        yield found


def body_of(command: Any) -> dict[str, Any]:
    """Return what a client would send: only what differs from the defaults."""
    infos = {one.name: one for one in msgspec.structs.fields(command)}
    given = msgspec.to_builtins(command)
    found = {name: value for name, value in given.items() if infos[name].required or value != infos[name].default}
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def test_every_command_typed_with_a_key_and_sent_again_as_json_or_by_the_library_is_recorded_once(
    everlog: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert everlog("init").code == 0
    kept: dict[str, str] = {}
    seen = set()
    for number, (name, words) in enumerate(lines()):
        with caught(monkeypatch) as found:
            answer = everlog(*typed(words, kept), "--key", f"k{number}", "--json")
        assert answer.code == 0, answer.err
        ((command, by, outcome),) = found
        seen.add(type(command))
        if name:
            kept[name] = str(next(iter(answer.data.values())))
        with library.open() as log:
            head = log.head()
            who = By(actor=by.actor, key=by.key, within=by.within)
            again = OPERATIONS[type(command)].call(log, body_of(command), who)
            assert [one["id"] for one in again["events"]] == [one.id for one in outcome.events], words
            assert performing.perform(log, command, who).records == outcome.records, words
            assert log.head() == head, words
    commands = {command for program in every_program() for command in program.commands}
    needs_a_fork = {NameBranch}  # the log of a story has one key, which signs every number once
    assert commands - seen == needs_a_fork, "a command that the story does not have"


def test_a_request_that_was_sent_as_json_and_is_typed_again_is_recorded_once(everlog: Run, place: Path) -> None:
    words = ("agent", "propose", "pytest", "--agent-id", "builder", "--key", "k1", "--actor", "agent:b", "--json")
    assert everlog("init").code == 0
    (propose,) = [one for one in operations() if one.name == "agents.propose"]
    first = sent(propose)
    assert (everlog(*words).data["id"], everlog(*words).data["events"]) == (first["id"], first["events"])
    with library.open() as log:
        assert log.head() == 1


def sent(operation: Operation) -> Any:
    with library.open() as log:
        return operation.call(log, {"tool_name": "pytest", "agent_id": "builder"}, By(actor="agent:b", key="k1"))
