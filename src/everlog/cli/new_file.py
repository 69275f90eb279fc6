"""A file or folder that a command is to make: what stands in its way is told before the work is done."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from everlog.cli.session import Session
from everlog.errors import Conflict, NotFound
from everlog.files import DiskFiles


def new_file(session: Session, name: str, *, force: bool) -> Path:
    """Where the file goes; refused if it is there and not to be replaced, or if its folder is not there."""
    files, path = DiskFiles(), session.place / name
    if path.is_dir():
        raise Conflict(f"{path} is a folder", why="a file is written", hint="name a file in it", path=str(path))
    if files.exists(path) and not force:
        raise Conflict(
            f"{path} is there already", hint="name another file, or replace it with --force", path=str(path)
        )
    if not path.parent.is_dir():
        raise NotFound(
            f"{path} cannot be written",
            why=f"there is no folder {path.parent}",
            hint=f"mkdir -p {quote(str(path.parent))}",
            path=str(path),
        )
    return path
