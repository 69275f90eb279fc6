"""Commands and questions as values: what follows from their fields unless a command says otherwise."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from everlog.core.query import Query
from everlog.programs.command import NOBODY, By, Command, Decision, facts_of


class Note(Command[str], frozen=True, kw_only=True):
    """A command of one event."""

    verb = "note"
    text: str
    scope: str = ""

    def stream(self) -> str:
        return "note/1"

    def event(self) -> Any:
        return {"text": self.text}


def test_a_plan_follows_from_the_stream_and_the_event_of_a_command() -> None:
    by = By(actor="user:ada", key="k")
    plan = Note(text="hello", scope="acme").plan(log=None, by=by)  # type: ignore[arg-type]
    assert (plan.stream, plan.looks_at, plan.scope, plan.by) == ("note/1", Query(stream="note/1"), "acme", by)
    assert list(plan.decide(())) == [{"text": "hello"}]  # type: ignore[arg-type]


def test_two_requests_are_the_same_if_all_fields_are() -> None:
    assert Note(text="a").fingerprint() == Note(text="a", scope="").fingerprint()
    assert Note(text="a").fingerprint() != Note(text="b").fingerprint()
    assert Note(text="a").fingerprint() != Note(text="a", scope="acme").fingerprint()


def test_a_command_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Note(text="a").text = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        NOBODY.actor = "user:mallory"  # type: ignore[misc]


def test_what_a_command_must_define_is_not_guessed() -> None:
    with pytest.raises(NotImplementedError):
        Note(text="a").result(Decision(()))


def test_a_result_shows_its_facts_or_its_fields() -> None:
    class Plain(msgspec.Struct):
        id: str

    class Chosen(Plain):
        def facts(self) -> dict[str, Any]:
            return {"name": self.id}

    assert facts_of(Plain("a")) == {"id": "a"}
    assert facts_of(Chosen("a")) == {"name": "a"}
