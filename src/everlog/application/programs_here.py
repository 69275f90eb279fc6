"""Which programs there are here: those of everlog, plugins that are installed, and modules that a setting names."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from everlog import programs
from everlog.application.folder.open import Location
from everlog.programs.here import words_of
from everlog.programs.plugins import distribution, plugins


class ProgramHere(msgspec.Struct, frozen=True, kw_only=True):
    """A program, whether the setting `programs` switches it on, and what it came with."""

    columns: ClassVar[tuple[str, ...]] = ("name", "on", "origin")

    name: str
    on: bool
    origin: str


def programs_here(location: Location) -> list[ProgramHere]:
    """Return every program that can be used here. Nothing of them is imported."""
    setting = location.programs_setting()
    found = [
        ProgramHere(name=word, on=programs.names(setting, name), origin="everlog")
        for word, name in programs.GROUPS.items()
    ]
    named, installed = words_of(setting), plugins()
    others = {word: point for word, point in installed.items() if word not in programs.GROUPS}
    found += [ProgramHere(name=word, on=word in named, origin=distribution(point)) for word, point in others.items()]
    return found + [ProgramHere(name=word, on=True, origin="a module") for word in named if word not in others]
