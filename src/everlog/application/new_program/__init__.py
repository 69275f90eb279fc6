"""A program of your own to begin with: a module, its tests, and what makes it a plugin."""

from __future__ import annotations

from importlib.resources import files
from keyword import iskeyword
from pathlib import Path

import msgspec

from everlog import programs
from everlog.errors import Conflict, InvalidField
from everlog.files import DiskFiles, replace_file


class NewProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files of a new program are."""

    name: str
    folder: Path
    files: tuple[str, ...]


def write_program(name: str, folder: Path) -> NewProgram:
    """Write the files of a new program to a folder. Files that are there are never overwritten."""
    if not (name.isascii() and name.isidentifier() and name.islower()) or iskeyword(name):
        raise InvalidField(
            f"{name!r} is not the name of a program",
            why="it is a Python module and a command: lower-case letters, digits and _",
            hint="everlog program new shed",
        )
    if name in programs.TYPES or name in programs.COMMANDS:
        raise InvalidField(
            f"a program cannot be named {name!r}",
            why=f"`everlog {name}` is a command"
            if name in programs.COMMANDS
            else "everlog has a program of that name",
            hint="choose another word",
        )
    disk = DiskFiles()
    parts = {f"{name}.py": "program", f"test_{name}.py": "test", "pyproject.toml": "pyproject"}
    for file in parts:
        if disk.exists(folder / file):
            raise Conflict(
                f"{folder / file} is there already",
                why="the files of a new program never replace others",
                hint=f"everlog program new {name} another-folder",
            )
    for parent in reversed([one for one in (folder, *folder.parents) if not disk.exists(one)]):
        disk.make_dir(parent)
    for file, part in parts.items():
        text = files(__name__).joinpath(f"{part}.txt").read_text(encoding="utf-8")
        replace_file(disk, folder / file, text.replace("NAME", name).encode())
    return NewProgram(name=name, folder=folder, files=tuple(parts))
