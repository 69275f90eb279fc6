"""All programs that can be used: the built-in ones, those that the setting `programs` names, and those that a caller
gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from everlog import programs
from everlog.errors import InvalidSettings, NotFound
from everlog.programs.command import Command, Question
from everlog.programs.program import Program
from everlog.settings import find_folder, load

Own = str | Iterable[Program]
"""Programs of a user: the programs themselves, or the names of their modules, separated by commas."""

_HINT = "name a module that is installed or in PYTHONPATH, or everlog config set programs ''"


def every_program(own: Own = "") -> Iterator[Program]:
    """Yield the built-in programs, then those of the user."""
    for name in programs.TYPES:
        yield programs.load(name)
    yield from own_programs(own)


def own_programs(*sources: Own) -> list[Program]:
    """Return the programs of a user, each once. A name or a group that is already taken is refused."""
    found: list[Program] = []
    for source in sources:
        for program in _of_modules(source) if isinstance(source, str) else source:
            _require_program(program)
            if not any(program is other for other in found):
                _require_free_names(program, found)
                found.append(program)
    return found


def own_groups(directory: Path, url: str = "") -> list[tuple[str, str]]:
    """Return the command group and the description of each program of the user, for the log that is used in a
    directory, or at a URL.

    The code of a user is imported only if the setting `programs` is not empty. Without a log there are no settings.
    """
    try:
        setting = load(None if url else find_folder(directory)).settings.programs
    except NotFound:
        return []
    return [(program.group, program.about) for program in own_programs(setting) if program.group]


def _of_modules(names: str) -> Iterator[Program]:
    return map(_of_module, filter(None, (name.strip() for name in names.split(","))))


def _of_module(name: str) -> Program:
    try:
        found = getattr(import_module(name), "PROGRAM", None)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # This runs user code, and any failure there is reported as such.
        from everlog.views.user_views import describe

        raise InvalidSettings(f"the program {name!r} cannot be loaded", why=describe(error), hint=_HINT) from error
    if not isinstance(found, Program):
        raise InvalidSettings(
            f"the module {name!r} has no program",
            why="it must have an attribute PROGRAM, an everlog.programs.Program",
            hint="correct the module, or everlog config set programs ''",
        )
    return found


def _require_program(found: object) -> None:
    if not isinstance(found, Program):
        raise InvalidSettings(
            f"{found!r} is not a program",
            why=f"it is a {type(found).__name__}, and it must be an everlog.programs.Program",
            hint="programs=[module.PROGRAM]",
        )


def _require_free_names(program: Program, others: Iterable[Program]) -> None:
    """Refuse a program whose name or group has another meaning: its commands could not be reached."""
    named = _named(program)
    if program.name in programs.TYPES:
        raise _taken(named, "name", program.name, f"everlog has a built-in program {program.name!r}")
    if program.group in programs.COMMANDS:
        raise _taken(named, "group", program.group, f"`everlog {program.group}` is a command of everlog")
    for other in others:
        for field, value in (("name", program.name), ("group", program.group)):
            if value and value == getattr(other, field):
                raise _taken(named, field, value, f"{_named(other)} has it")


def _named(program: Program) -> str:
    """Return a program with the module of its commands: two programs may have the same name."""
    values: list[type] = [*program.commands, *program.questions]
    return f"the program {program.name!r}" + (f" of {values[0].__module__}" if values else "")


def _taken(named: str, field: str, value: str, why: str) -> InvalidSettings:
    return InvalidSettings(
        f"{named} cannot have the {field} {value!r}",
        why=why,
        hint=f'choose another word: Program({field}="…")',
    )


def every_value(own: Own = "") -> Iterator[tuple[Program, type[Command[Any]] | type[Question[Any]]]]:
    """Yield every command and every question of every program."""
    for program in every_program(own):
        for command in program.commands:
            yield program, command
        for question in program.questions:
            yield program, question
