"""What is done to a disk, step by step, and what each step does to contents and names.

A file is known by its number (inode), because its names come and go.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Create:
    path: Path
    file: int


@dataclass(frozen=True, slots=True)
class Write:
    file: int
    at: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Rename:
    source: Path
    target: Path
    file: int


@dataclass(frozen=True, slots=True)
class RenameDir:
    """A directory with all that is in it; the target is not there before."""

    source: Path
    target: Path


@dataclass(frozen=True, slots=True)
class Unlink:
    path: Path
    file: int


@dataclass(frozen=True, slots=True)
class MakeDir:
    path: Path


@dataclass(frozen=True, slots=True)
class Sync:
    """A flush that worked; `data_only` for fdatasync."""

    file: int
    data_only: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """A flush that failed and marked the pages clean: what was pending never reaches the disk ("fsyncgate")."""

    file: int


@dataclass(frozen=True, slots=True)
class SyncDir:
    path: Path


@dataclass(frozen=True, slots=True)
class Tried:
    number: int


@dataclass(frozen=True, slots=True)
class Acked:
    number: int


Step = Create | Write | Truncate | Rename | RenameDir | Unlink | MakeDir | Sync | Dropped | SyncDir | Tried | Acked
DataStep = Write | Truncate
NameStep = Create | Rename | RenameDir | Unlink | MakeDir


def change_content(content: bytearray, step: DataStep) -> None:
    """Do to a file's content what the step says."""
    if isinstance(step, Write):
        write_into(content, step.at, step.data)
    else:
        _cut_or_extend(content, step.size)


def write_into(content: bytearray, at: int, data: bytes) -> None:
    """Positional write; a gap before it reads as zeros."""
    if data:
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data


def _cut_or_extend(content: bytearray, size: int) -> None:
    if size <= len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def change_names(names: dict[Path, int], dirs: set[Path], step: NameStep) -> None:
    """Do to the names of files and directories what the step says, as far as it still applies."""
    match step:
        case Create(path, file):
            names[path] = file
        case Rename(source, target, file):
            if names.get(source) == file:
                del names[source]
            names[target] = file
        case RenameDir(source, target):
            if source in dirs:
                _rename_dir(names, dirs, source, target)
        case Unlink(path, file):
            if names.get(path) == file:
                del names[path]
        case MakeDir(path):
            dirs.add(path)


def _rename_dir(names: dict[Path, int], dirs: set[Path], source: Path, target: Path) -> None:
    """Everything at or below the source is at or below the target from now on."""
    for path in [path for path in names if source in path.parents]:
        names[moved_path(path, source, target)] = names.pop(path)
    for path in [path for path in dirs if path == source or source in path.parents]:
        dirs.remove(path)
        dirs.add(moved_path(path, source, target))


def moved(step: NameStep, rename: RenameDir) -> NameStep:
    """A step that is still on its way when the directory that it is about has got another name for good."""
    source, target = rename.source, rename.target
    match step:
        case Create(path, file):
            return Create(moved_path(path, source, target), file)
        case Rename(old, new, file):
            return Rename(moved_path(old, source, target), moved_path(new, source, target), file)
        case RenameDir(old, new):
            return RenameDir(moved_path(old, source, target), moved_path(new, source, target))
        case Unlink(path, file):
            return Unlink(moved_path(path, source, target), file)
        case MakeDir(path):
            return MakeDir(moved_path(path, source, target))


def moved_path(path: Path, source: Path, target: Path) -> Path:
    """The name of a path after its directory, or one above that, was renamed."""
    return target / path.relative_to(source) if path == source or source in path.parents else path
