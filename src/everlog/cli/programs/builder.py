"""Builds the command line of a program from its commands and questions.

The fields make the arguments and options, the docstring is the help text. What is written by hand for a program is in
`cli/programs/<name>.py`: how some fields are spelled, and what a person sees in a terminal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from everlog.cli.output import Answer, safe
from everlog.cli.programs.spelling import Field, Flag, Option, Spelling, fields_of, parameter
from everlog.cli.session import Session, common_options, past_damage_option, write_options
from everlog.programs.command import By, Command, Outcome, Question, facts_of

if TYPE_CHECKING:
    from everlog.programs.program import Program

Values = dict[str, Any]
Value = Command[Any] | Question[Any]


@dataclass(frozen=True)
class Several:
    """Several values under one name: the first whose fields (or flag) were given, else the last one."""

    verb: str
    about: str
    examples: tuple[str, ...]
    choices: tuple[tuple[type[Any], tuple[str, ...]], ...]
    flags: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Values], None] = lambda given: None

    def chosen(self, given: Values) -> type[Any]:
        for value, names in self.choices[:-1]:
            if any(given[name] not in (None, "", False, ()) for name in names):
                return value
        return self.choices[-1][0]


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What is written by hand for a program's command line."""

    program: Program
    title: str
    example: str
    spelling: Mapping[str, Spelling] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # of commands: what they are, an example
    several: Sequence[Several] = ()
    line: Callable[[Any, Any], str] | None = None  # what a person sees of a command: command, result
    lines: Mapping[type[Any], Callable[[Session, Any, Any], list[str]]] = field(default_factory=dict)
    answers: Mapping[type[Any], Callable[[Session, Any, Any], Answer]] = field(default_factory=dict)
    empty: Mapping[type[Any], Callable[[Session, Any], str]] = field(default_factory=dict)
    hints: Mapping[type[Any], Callable[[Session, Any, Any], str]] = field(default_factory=dict)
    columns: Mapping[type[Any], str] = field(default_factory=dict)  # named in the help, if not the question's own
    complete: Callable[[Session, type[Any], Values], None] = lambda session, value, given: None
    within: str = ""  # the help of --scope, where that limits what a caller sees and touches
    new_request_ids: bool = False  # a request without an id gets one
    options: Mapping[type[Any], Sequence[Callable[[Any], Any]]] = field(default_factory=dict)  # beside the fields
    left_out: Sequence[type[Any]] = ()  # values without a separate command
    more: Sequence[click.Command] = ()  # commands that are written by hand


def build(surface: Surface) -> click.Group:
    """Return the group of a program's commands."""
    program = surface.program
    about = program.about if surface.title != program.about else ""
    top = _group(program.group, _help(surface.title, about, [surface.example], program.group))
    groups = {"": top}
    for name, (about, example) in surface.groups.items():
        groups[name] = _group(name, _help(about, "", [example], program.group))
        top.add_command(groups[name])
    merged = {value for one in surface.several for value, _ in one.choices}
    values: list[Any] = [*program.commands, *program.questions]
    for value in values:
        if value not in merged and value not in surface.left_out:
            _add(groups, value.verb, _single(surface, value))
    for one in surface.several:
        _add(groups, one.verb, _merged(surface, one))
    for command in surface.more:
        top.add_command(command)
    return top


def of_settings(session: Session, name: str) -> click.Group | None:
    """Return the commands of a program that the setting `programs` names; None if there is none of this name."""
    for program in session.location.own_programs():
        if program.group == name:
            examples = [example for value in program.commands for example in value.examples]
            return build(
                Surface(
                    program=program,
                    title=program.about or name,
                    example=examples[0] if examples else "",
                    spelling={"*.scope": SCOPE},
                    complete=label_from_settings("scope"),
                )
            )
    return None


def _group(name: str, help: str) -> click.Group:
    return click.Group(name, help=help, params=_params([common_options]))


def _add(groups: Mapping[str, click.Group], verb: str, command: click.Command) -> None:
    group, _, name = verb.rpartition(" ")
    command.name = name
    groups[group].add_command(command)


def _single(surface: Surface, value: type[Any]) -> click.Command:
    def call(**given: Any) -> None:
        _run(surface, value, given)

    return _command(surface, [value], call, help=inspect.getdoc(value) or "", examples=value.examples)


def _merged(surface: Surface, several: Several) -> click.Command:
    def call(**given: Any) -> None:
        several.check(given)
        _run(surface, several.chosen(given), given)

    values = [value for value, _ in several.choices]
    made = _command(surface, values, call, help=several.about, examples=several.examples)
    own = len([one for one in made.params if isinstance(one, click.Argument)])
    flags = [click.Option([f"--{name}"], is_flag=True, help=text) for name, text in several.flags.items()]
    made.params[own:own] = flags
    return made


def _command(
    surface: Surface, values: Sequence[type[Any]], call: Callable[..., None], *, help: str, examples: Sequence[str]
) -> ValueCommand:
    records = any(issubclass(value, Command) for value in values)
    columns = [_columns(surface, value) for value in values]
    text = " ".join(filter(None, columns))
    about = help + (f"\n\nColumns when piped: {text}." if text else "")
    made = ValueCommand("", callback=call, help=_help(about, "", examples, surface.program.group))
    made.values = tuple(values)
    made.params = _parameters(surface, values)
    more: list[Callable[[Any], Any]] = [write_options] if records else [past_damage_option]
    more += [option for value in values for option in surface.options.get(value, ())]
    if surface.within:
        scope = click.option("--scope", "within_scope", metavar="PATH", default="", help=surface.within)
        more.insert(0, scope)
    made.params += _params([*more, common_options])
    return made


class ValueCommand(click.Command):
    """A command that makes a value from its options; it knows of which classes."""

    values: tuple[type[Any], ...] = ()


def _params(options: Sequence[Callable[[Any], Any]]) -> list[click.Parameter]:
    """Return what click's decorators would add to a function."""

    def holder() -> None: ...

    for option in reversed(options):
        option(holder)
    return list(reversed(holder.__click_params__))  # type: ignore[attr-defined]


def _parameters(surface: Surface, values: Sequence[type[Any]]) -> list[click.Parameter]:
    found: dict[str, click.Parameter] = {}
    shared = set.intersection(*({one.name for one in fields_of(value)} for value in values))
    for value in values:
        for index, one in enumerate(fields_of(value)):
            if one.name not in shared:  # it is not needed for the other values
                one = msgspec.structs.replace(one, required=False)
            if one.name not in found:
                found[one.name] = parameter(one, _spelling(surface, value, one), first=index == 0)
    arguments = [one for one in found.values() if isinstance(one, click.Argument)]
    return [*arguments, *(one for one in found.values() if not isinstance(one, click.Argument))]


def _spelling(surface: Surface, value: type[Any], one: Field) -> Spelling | None:
    return surface.spelling.get(f"{value.__name__}.{one.name}", surface.spelling.get(f"*.{one.name}"))


def _columns(surface: Surface, value: type[Any]) -> str:
    if value in surface.columns:
        return surface.columns[value]
    return ", ".join(value.columns) if issubclass(value, Question) else ""


def _help(text: str, more: str, examples: Sequence[str], group: str) -> str:
    label = "Example:" if len(examples) == 1 else "Examples:"
    typed = "\n".join(f"  everlog {group} {example}" for example in examples)
    return "\n\n".join(filter(None, (text, more, f"\b\n{label}\n{typed}")))


# ---- running


def _run(surface: Surface, value: type[Any], given: Values) -> None:
    session = click.get_current_context().ensure_object(Session)
    within = given.pop("within_scope", "")
    if surface.within and not session.server:  # there, the token limits what is seen
        within = within or session.settings().settings.scope
    fields = [one for one in fields_of(value) if one.name in given]
    values = {one.name: _as_field(one, _spelling(surface, value, one), given[one.name]) for one in fields}
    surface.complete(session, value, values)
    made = value(**values)
    if isinstance(made, Question):
        from everlog.programs.perform import ask

        show_answer(surface, session, made, ask(session.any_log(), made, within=within))
    else:
        from everlog.programs.perform import perform

        by = by_of(session, given, within=within, new_request_id=surface.new_request_ids)
        show_outcome(surface, session, made, perform(session.any_log(), made, by))


def _as_field(one: Field, spelling: Spelling | None, value: Any) -> Any:
    if isinstance(spelling, Flag) and spelling.opposite:
        return not value
    if one.many:
        return list(value)
    return one.default if value is None else value


def by_of(session: Session, given: Values, *, within: str = "", new_request_id: bool = False) -> By:
    """Return who runs a command, from the options that all commands have."""
    from everlog.core.ids import new_id

    at: datetime | None = given["at"]
    request_id = given["request_id"] or (new_id().lower() if new_request_id else "")
    session.request_id = request_id
    return By(
        actor=session.acting,
        within=within,
        key=given["key"],
        at=at,
        request_id=request_id,
        causation_id=given["causation"],
        correlation_id=given["correlation"],
        dry_run=given["dry_run"],
    )


def label_from_settings(name: str) -> Callable[[Session, type[Any], Values], None]:
    """Return what fills a field with the setting `scope`, if the field was left out."""

    def complete(session: Session, value: type[Any], given: Values) -> None:
        if not given.get(name, "given"):
            given[name] = session.settings().settings.scope

    return complete


def show_outcome(surface: Surface, session: Session, command: Any, outcome: Outcome[Any]) -> None:
    """Print what was done: a line for people, the facts and the ids of the events for programs.

    A retry under the same key gets the same answer to the last byte; that it is a retry is written to stderr.
    """
    if type(command) in surface.answers:
        session.out.answer(surface.answers[type(command)](session, command, outcome))
        return
    facts = facts_of(outcome.result)
    ends = {"dry_run": "  dry run: nothing was recorded", "unchanged": "  as it was"}
    if surface.line is not None:
        line = surface.line(command, outcome.result)
    else:
        first, second, *_ = facts.values()
        line = f"{second}  {safe(first)}"
    events = [
        {"position": one.position, "id": one.event.id, "type": one.event.type, "stream": one.event.stream}
        for one in outcome.records
    ]
    session.out.answer(
        Answer(
            data={**facts, "status": outcome.status, "events": events},
            ids=[str(next(iter(facts.values())))],
            columns=(*facts, "status"),
            rows=[(*facts.values(), outcome.status)],
            lines=[line + ends.get(outcome.status, "")],
            facts={**facts, "status": outcome.status},
        )
    )
    if outcome.replayed:
        session.out.hint("already done under this key; nothing new was recorded")
    for text in outcome.next:
        session.out.hint(safe(text))


def show_answer(surface: Surface, session: Session, question: Any, found: Any) -> None:
    """Print the answer to a question: rows as a table, one thing as its fields."""
    kind = type(question)
    if kind in surface.answers:
        answer = surface.answers[kind](session, question, found)
    elif kind.columns:
        answer = Answer.of_many(found, kind.columns)
    else:
        answer = Answer.of_one(str(next(iter(found.values()))), found)
    if kind in surface.lines:
        answer = replace(answer, lines=surface.lines[kind](session, question, found))
    session.out.answer(answer)
    hint = ""
    if not found and kind in surface.empty:
        hint = surface.empty[kind](session, question)
    elif found and kind in surface.hints:
        hint = surface.hints[kind](session, question, found)
    if hint:
        session.out.hint(hint)


SCOPE = Option("--scope", metavar="PATH")
