"""All programs that can be used: the built-in ones and those that a setting names."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from everlog import programs
from everlog.errors import InvalidSettings
from everlog.programs.command import Command, Question
from everlog.programs.program import Program


def every_program(own: str = "") -> Iterator[Program]:
    """Yield the built-in programs, then those of the modules that the setting `programs` names."""
    for name in programs.TYPES:
        yield programs.load(name)
    yield from own_programs(own)


def own_programs(setting: str) -> Iterator[Program]:
    """Yield the programs of modules that have an attribute PROGRAM."""
    for module in filter(None, (part.strip() for part in setting.split(","))):
        try:
            found = getattr(import_module(module), "PROGRAM", None)
        except ImportError as error:
            raise InvalidSettings(
                f"the program {module!r} cannot be loaded",
                why=str(error),
                hint="name a module that is installed or in PYTHONPATH, or everlog config set programs ''",
            ) from error
        if not isinstance(found, Program):
            raise InvalidSettings(
                f"the module {module!r} has no program",
                why="it must have an attribute PROGRAM, an everlog.programs.program.Program",
                hint="correct the module, or everlog config set programs ''",
            )
        yield found


def every_value(own: str = "") -> Iterator[tuple[Program, type[Command[Any]] | type[Question[Any]]]]:
    """Yield every command and every question of every program."""
    for program in every_program(own):
        for command in program.commands:
            yield program, command
        for question in program.questions:
            yield program, question
