"""A file that a command writes: what prevents it is reported before the work starts."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from everlog.cli.session import Session
from everlog.errors import Conflict, NotFound
from everlog.files import DiskFiles


def new_file(session: Session, name: str, *, force: bool) -> Path:
    """Return the path of the file. Refused if it exists and must not be replaced, or if its folder is missing."""
    files, path = DiskFiles(), session.directory / name
    if path.is_dir():
        raise Conflict(f"{path} is a folder", why="the output is a file", hint="name a file in it", path=str(path))
    if files.exists(path) and not force:
        raise Conflict(f"{path} exists already", hint="name another file, or replace it with --force", path=str(path))
    if not path.parent.is_dir():
        raise NotFound(
            f"{path} cannot be written",
            why=f"there is no folder {path.parent}",
            hint=f"mkdir -p {quote(str(path.parent))}",
            path=str(path),
        )
    return path
