"""Catalogs, views and programs that users write: found by the settings, imported, checked."""

from __future__ import annotations

import importlib
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlog import programs
from everlog.catalog.builtin import BUILT_IN, NODE
from everlog.catalog.catalog import Catalog
from everlog.catalog.declared import FILE_NAME as TYPES_FILE
from everlog.catalog.declared import read_types
from everlog.errors import EverlogError, InvalidSettings, SchemaBroken
from everlog.files import DiskFiles, Files
from everlog.log import records
from everlog.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from everlog.programs.program import Program
    from everlog.programs.registry import Own
    from everlog.views.view import View

_logger = logging.getLogger("everlog")


def catalog_of(settings: Settings, folder: Path | None, given: Catalog | None = None, own: Own = ()) -> Catalog:
    """Return every event type of a log: built in, declared, of the settings, of the programs, given by the caller."""
    return types_and_programs(settings, folder, given, own)[0]


def types_and_programs(
    settings: Settings, folder: Path | None, given: Catalog | None = None, own: Own = ()
) -> tuple[Catalog, list[Program]]:
    """Return every event type of a log, and the user's programs that it uses: those that the setting `programs`
    names, and `own`, those that a caller gives.

    One of the setting that cannot be used is reported and left out; the log is still read. One that a caller gives is
    refused.
    """
    catalog = Catalog()
    catalog.include(BUILT_IN)
    files = DiskFiles()
    if folder is not None and files.exists(folder / TYPES_FILE):
        catalog.include(read_types(_text(files, folder / TYPES_FILE), source=str(folder / TYPES_FILE)))
    if settings.catalog:
        catalog.include(_imported(settings.catalog))
    found = _include_programs(catalog, settings.programs, own) if settings.programs or own else []
    if given is not None:
        catalog.include(given)
    catalog.include_later([info.type for info in NODE.types()], lambda: NODE)
    catalog.include_later(records.TYPES, records.types_of_records)
    for name, types in programs.TYPES.items():
        catalog.include_later(types, partial(_program_catalog, name))
    return catalog, found


def _include_programs(catalog: Catalog, setting: str, own: Own) -> list[Program]:
    from everlog.programs.registry import own_programs, usable_programs, with_origin  # only when it is needed

    usable, wrong = usable_programs(setting)
    for word, error in wrong.items():
        catalog.left_out[word] = error
    kept = []
    for word, program in usable.items():
        try:
            if taken := catalog.declared_otherwise(program.types):
                raise SchemaBroken(f"{taken[0]} is declared in {TYPES_FILE}, or in the setting catalog, too")
            catalog.include(program.types)
            kept.append(program)
        except EverlogError as taken_by:
            clash = InvalidSettings(
                f"the program {program.name!r} cannot be used",
                why=taken_by.what,
                hint=f"take its types out of {TYPES_FILE} and of the setting catalog",
            )
            catalog.left_out[word] = with_origin(clash, word)
            catalog.withdraw(info.type for info in program.types.types())
    for error in catalog.left_out.values():
        _logger.warning(
            "%s, and is left out: %s; %s, or take it out of the setting programs", error.what, error.why, error.hint
        )
    found = own_programs(kept, own)
    for program in found[len(kept) :]:
        catalog.include(program.types)
    return found


def _program_catalog(name: str) -> Catalog:
    return programs.load(name).types


def program_view(name: str) -> type[View] | None:
    """Return the view of a program, by its name."""
    program = programs.of_view(name)
    return None if program is None else program.view(name)


def showing_view(own: Iterable[Program], kind: str) -> type[View] | None:
    """Return the view that shows streams of a kind, as a program declares it; the user's programs first."""
    for program in own:
        if kind in program.shows:
            return program.shows[kind]
    return programs.load(programs.SHOWN[kind]).shows[kind] if kind in programs.SHOWN else None


def _text(files: Files, path: Path) -> str:
    try:
        return files.read_all(path).decode()
    except UnicodeDecodeError as error:
        raise InvalidSettings(
            f"{path} cannot be read", why=f"byte {error.start} is not UTF-8", hint=f"correct {path}"
        ) from error


def require_code(setting: str, name: str) -> str:
    """Refuse a setting that cannot be a catalog, views or programs. If the module of a catalog or of views is not
    found here, return a warning: it may be found elsewhere. Without a program, nobody can record its types."""
    if setting == "programs":
        from everlog.programs.registry import own_programs

        own_programs(name)
        return ""
    try:
        if setting == "catalog":
            _imported(name)
        elif wrong := _own_views(name)[1]:
            raise wrong[0]
    except InvalidSettings as error:
        if not isinstance(error.__cause__, ModuleNotFoundError):
            raise
        return f"the {setting} {name!r} cannot be loaded from here: {error.why}; {error.hint}"
    return ""


def _attribute(setting: str, name: str) -> Any:
    module, colon, attribute = name.partition(":")
    hint = f"give module:attribute of what is installed or in PYTHONPATH, or everlog config set {setting} ''"
    if not (module and colon and attribute):
        raise InvalidSettings(
            f"the {setting} {name!r} cannot be loaded", why="it is not of the form module:attribute", hint=hint
        )
    try:
        return getattr(importlib.import_module(module), attribute)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # This runs user code, and any failure there is reported as such.
        from everlog.views.user_views import describe

        raise InvalidSettings(f"the {setting} {name!r} cannot be loaded", why=describe(error), hint=hint) from error


def _imported(name: str) -> Catalog:
    found = _attribute("catalog", name)
    if not isinstance(found, Catalog):
        raise InvalidSettings(
            f"{name!r} is a {type(found).__name__}",
            why="it must be an everlog.Catalog",
            hint="give module:attribute of one, or everlog config set catalog ''",
        )
    return found


def user_views(name: str) -> list[View]:
    """Return the user's views that can be loaded. A problem with one of them must not affect the rest."""
    if not name:
        return []
    try:
        found, wrong = _own_views(name)
    except InvalidSettings as error:
        _logger.warning("%s, and are left out: %s; %s", error.what, error.why, error.hint)
        return []
    except SystemExit as end:  # It may be meant for this program, so it is obeyed, with a warning.
        _logger.warning("the views %r end this program while they are loaded, with %r", name, end.code)
        raise
    for one in wrong:
        _logger.warning("%s, and is left out: %s; %s", one.what, one.why, one.hint)
    return found


def _own_views(name: str) -> tuple[list[View], list[InvalidSettings]]:
    from everlog.views.builtin import BUILT_IN as VIEWS
    from everlog.views.user_views import usable_views

    built_in = {view.name: view for view in VIEWS}
    return usable_views(_attribute("views", name), name, lambda other: built_in.get(other) or program_view(other))
