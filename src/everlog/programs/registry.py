"""All programs that can be used: the built-in ones, those that the setting `programs` names, and those that a caller
gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from reprlib import repr as short  # never fails
from typing import Any

from everlog import programs
from everlog.catalog.builtin import BUILT_IN
from everlog.catalog.catalog import Catalog
from everlog.errors import InvalidSettings
from everlog.programs.command import Command, Question
from everlog.programs.here import words_of
from everlog.programs.program import Guard, Program
from everlog.views.view import view_of

Own = str | Iterable[Program]
"""Programs of a user: the programs themselves, or the names of their modules, separated by commas."""

_HINT = "install it or add its module to PYTHONPATH"


def every_program(own: Own = "") -> Iterator[Program]:
    """Yield the built-in programs, then those of the user."""
    for name in programs.TYPES:
        yield programs.load(name)
    yield from own_programs(own)


def own_programs(*sources: Own) -> list[Program]:
    """Return the programs of a user, each once. One that cannot be loaded, or whose names are taken, is refused."""
    found: list[Program] = []
    for source in sources:
        for program in map(_loaded, words_of(source)) if isinstance(source, str) else source:
            _add(program, found)
    return found


def usable_programs(setting: str) -> tuple[dict[str, Program], dict[str, InvalidSettings]]:
    """Return the programs of a setting that can be used, and why the others cannot, by their words.

    A log needs no program to be read. The types of one that is missing are unknown, so nobody can record them without
    its rules.
    """
    found: dict[str, Program] = {}
    wrong: dict[str, InvalidSettings] = {}
    for word in words_of(setting):
        try:
            program = _loaded(word)
            _add(program, known := list(found.values()))
        except InvalidSettings as error:
            wrong[word] = with_origin(error, word)
        else:
            if len(known) > len(found):
                found[word] = program
    return found, wrong


def with_origin(error: InvalidSettings, word: str) -> InvalidSettings:
    """Return a defect of a program with the distribution that it came with, which is what can be removed."""
    from everlog.programs.plugins import distribution, plugins

    point = plugins().get(word)
    origin = repr(word) if point is None else distribution(point)
    if origin in error.what:
        return error
    return InvalidSettings(f"{error.what} (from {origin})", why=error.why, hint=error.hint)


def _add(program: Program, found: list[Program]) -> None:
    _require_program(program)
    if any(program is other for other in found):
        return
    try:
        _require_sound(program)
        _require_free_names(program, found)
    except InvalidSettings:
        raise
    except Exception as error:  # This is user code, too: a part of the program is not what it must be.
        from everlog.views.user_views import describe

        what = f"the program {short(program.name)} cannot be used"
        raise InvalidSettings(what, why=describe(error), hint="correct its code") from error
    found.append(program)


def _loaded(word: str) -> Program:
    """Return the program of an installed plugin, else of a module."""
    from everlog.programs.plugins import distribution, plugins

    point = plugins().get(word)
    named = f"the program {word!r}" + (f" of {distribution(point)}" if point else "")
    try:
        found = getattr(import_module(word), "PROGRAM", None) if point is None else point.load()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # This runs user code, and any failure there is reported as such.
        from everlog.views.user_views import describe

        missing = isinstance(error, ModuleNotFoundError) and error.name == word.partition(".")[0]
        why = "it is no installed plugin, and no module" if missing else describe(error)
        raise InvalidSettings(f"{named} cannot be loaded", why=why, hint=_HINT) from error
    if not isinstance(found, Program):
        raise InvalidSettings(
            f"{named} has no program" if point else f"the module {word!r} has no program",
            why="it must have an attribute PROGRAM, an everlog.programs.Program",
            hint="correct the module",
        )
    return found


def _require_program(found: object) -> None:
    if not isinstance(found, Program):
        raise InvalidSettings(
            f"{found!r} is not a program",
            why=f"it is a {type(found).__name__}, and it must be an everlog.programs.Program",
            hint="programs=[module.PROGRAM]",
        )


def _require_sound(program: Program) -> None:
    """Refuse a program with a part of another type: what uses that part would fail, in every command."""
    parts = (("name", str), ("group", str), ("about", str), ("types", Catalog), ("rules", (Guard, type(None))))
    for field, kind in parts:
        if not isinstance(found := getattr(program, field), kind):
            raise TypeError(f"its {field} is {short(found)}")
    values: list[tuple[Any, type]] = [(one, Command) for one in program.commands]
    values += [(one, Question) for one in program.questions]
    for value, base in values:
        if not (isinstance(value, type) and issubclass(value, base)):
            raise TypeError(f"{short(value)} is not a {base.__name__}")
    for view in (*program.views, *program.shows.values()):
        view_of(view)


def _require_free_names(program: Program, others: Iterable[Program]) -> None:
    """Refuse a program whose name or group has another meaning: its commands could not be reached."""
    named = _named(program)
    if program.name in programs.TYPES:
        raise _taken(named, "name", program.name, f"everlog has a built-in program {program.name!r}")
    if program.group in programs.COMMANDS:
        raise _taken(named, "group", program.group, f"`everlog {program.group}` is a command of everlog")
    types = {info.type for info in program.types.types()}
    for others_types, owner in _types_of(others):
        if taken := sorted(types & others_types):
            raise _taken(named, "event type", taken[0], f"{owner} has it")
    for other in others:
        for field, value in (("name", program.name), ("group", program.group)):
            if value and value == getattr(other, field):
                raise _taken(named, field, value, f"{_named(other)} has it")


def _types_of(others: Iterable[Program]) -> Iterator[tuple[set[str], str]]:
    """Yield the event types that are taken, and who has them."""
    yield {info.type for info in BUILT_IN.types()}, "everlog itself"
    for name, types in programs.TYPES.items():
        yield set(types), f"the built-in program {name!r}"
    for other in others:
        yield {info.type for info in other.types.types()}, _named(other)


def _named(program: Program) -> str:
    """Return a program with the module of its commands: two programs may have the same name."""
    values: list[type] = [*program.commands, *program.questions]
    return f"the program {program.name!r}" + (f" of {values[0].__module__}" if values else "")


def _taken(named: str, field: str, value: str, why: str) -> InvalidSettings:
    return InvalidSettings(
        f"{named} cannot have the {field} {value!r}",
        why=why,
        hint=f'choose another word: Program({field}="…")' if field != "event type" else "rename the type",
    )


def every_value(own: Own = "") -> Iterator[tuple[Program, type[Command[Any]] | type[Question[Any]]]]:
    """Yield every command and every question of every program."""
    for program in every_program(own):
        for command in program.commands:
            yield program, command
        for question in program.questions:
            yield program, question
