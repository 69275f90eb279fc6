"""What a program hands to a log and to the surfaces: event types, views, commands, questions, and its guard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from everlog.catalog.catalog import Catalog
from everlog.core.event import Event
from everlog.core.query import Looks, Query
from everlog.errors import RuleRefused
from everlog.programs.command import By, Command, Question
from everlog.views.view import View

if TYPE_CHECKING:
    from everlog.programs.perform import History

S = TypeVar("S")


class Guard(NamedTuple):
    """The rules of a program, as they are applied to every local writer of its types.

    looks_at    the history that the judge needs for one event
    judge       history (with the earlier events of the same batch), the event, its payload as a struct, who acts;
                it raises a refusal, or returns None
    """

    looks_at: Callable[[Event], Looks | Sequence[Looks]]
    judge: Callable[[History, Event, Any, By], None]


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program on the log. `group` is the word for it on the command line."""

    name: str
    group: str = ""
    about: str = ""
    types: Catalog
    views: tuple[type[View], ...] = ()
    commands: tuple[type[Command[Any]], ...] = ()
    questions: tuple[type[Question[Any]], ...] = ()
    rules: Guard | None = None
    shows: Mapping[str, type[View]] = {}
    """The view that shows streams of a kind: `everlog state KIND/ID` is its row. Its keys are the streams."""

    def __post_init__(self) -> None:
        for value in (*self.commands, *self.questions):
            _PROGRAM_OF[value] = self
        for kind, view in self.shows.items():
            if not view().by_stream:
                raise TypeError(f"{view.__name__} cannot show {kind}: its keys are not streams")

    def type_of(self, payload: Any) -> str:
        """Return the event type that a payload belongs to: the type of its class, which is of the latest version."""
        return self.types.type_of_model(type(payload))

    def view(self, name: str) -> type[View] | None:
        return next((view for view in self.views if view.name == name), None)

    def operation(self, command: type[Command[Any]]) -> str:
        """Return the name of a command in keys and refusals."""
        return command.operation or f"{self.group} {command.verb}"


_PROGRAM_OF: dict[type[Any], Program] = {}


def known_values() -> Mapping[type[Any], Program]:
    """Return every command and question of the programs that were loaded, with its program."""
    return _PROGRAM_OF


def program_of(value: type[Any]) -> Program:
    """Return the program that lists a command or a question."""
    if value not in _PROGRAM_OF:
        raise TypeError(f"{value.__name__} is in no program: list it in Program(commands=..., questions=...)")
    return _PROGRAM_OF[value]


def guard_of_stream(
    kind: str, fold: Callable[[str, Iterable[Event]], S], judge: Callable[[S, Any, str], None]
) -> Guard:
    """Return the guard of a program whose rules look at one stream at a time.

    `fold` makes a state of the name and the events of a stream `KIND/NAME`; `judge(state, payload, actor)` refuses or
    returns None.
    """

    def judge_event(history: History, event: Event, payload: Any, by: By) -> None:
        require_kind(event, kind)
        state = fold(event.stream.partition("/")[2], (recorded.event for recorded in history))
        judge(state, payload, by.actor)

    return Guard(looks_at=lambda event: Query(stream=event.stream), judge=judge_event)


def require_kind(event: Event, *kinds: str) -> None:
    """Refuse an event on a stream where its program never records one."""
    if event.kind not in kinds:
        streams = " or ".join(f"{kind}/ID" for kind in kinds)
        raise RuleRefused(
            f"{event.type} cannot be recorded on {event.stream}",
            rule="an event is recorded on the stream of its subject",
            tried=f"append {event.type} to {event.stream}",
            allowed=[streams],
            why=f"the program reads it from {streams}",
            hint=f"everlog append {event.type} -s {kinds[0]}/ID",
        )
