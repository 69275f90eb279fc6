"""Where the lake of a log is: what --lake says, else the setting, else beside the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from everlog.cli.session import Session

_Command = TypeVar("_Command", bound=Callable[..., Any])


def lake_option(command: _Command) -> _Command:
    return click.option(
        "--lake",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="The folder of the lake.",
    )(command)


def lake_path(session: Session, given: Path | None = None) -> Path:
    """The folder of this run's lake, there or not."""
    from everlog.errors import InvalidSettings
    from everlog.wiring import shown_url, store_path

    if given is not None:
        return session.place / given
    named = session.settings().settings.lake
    if not session.url:
        return session.folder() / (named or "lake")
    if named:
        return session.place / named
    path = store_path(session.url_from_here(), base=Path())
    if path is None:
        raise InvalidSettings(
            f"where is the lake of {shown_url(session.url)}?",
            why="this log has no folder that it could lie beside",
            hint="name one: --lake DIR, or EVERLOG_LAKE=DIR",
        )
    return path.with_name(path.name + ".lake").absolute()
