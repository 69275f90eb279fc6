"""Where the lake of a log is: the option --lake, else the setting, else beside the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from everlog.cli.session import Session
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.session.session import SparkSession

_Command = TypeVar("_Command", bound=Callable[..., Any])


def lake_option(command: _Command) -> _Command:
    return click.option(
        "--lake",
        metavar="DIR",
        type=click.Path(path_type=Path),
        help="The folder of the lake.",
    )(command)


@contextmanager
def spark_beside(
    session: Session, lake: Lake, master: str, conf: Mapping[str, str], *, app: str
) -> Iterator[SparkSession]:
    """Open a Spark session for the length of a command. Its temporary files are in the lake: they hold events too."""
    from everlog.cli.pipeline.group import spark_of

    with ExitStack() as stack:
        if not master or master.startswith("local"):
            conf = {"spark.local.dir": str(stack.enter_context(lake.scratch())), **conf}
        yield stack.enter_context(spark_of(session, master, conf, app=app))


def lake_of(session: Session, given: Path | None, *, log_id: str = "") -> Lake:
    """Return the lake of this command, which must exist."""
    from shlex import quote

    from everlog.errors import NotFound
    from everlog.pipeline.lake.lake import Lake

    try:
        return Lake.open(lake_path(session, given), log_id=log_id)
    except NotFound as error:
        if given is None:
            raise
        hint = f"everlog pipeline run --lake {quote(str(given))}"
        raise NotFound(error.what, why=error.why, hint=hint, **error.details) from error


def lake_path(session: Session, given: Path | None = None) -> Path:
    """Return the folder of the lake, whether it exists or not."""
    from everlog.errors import InvalidSettings
    from everlog.wiring import shown_url, store_path

    if given is not None:
        return session.directory / given
    named = session.settings().settings.lake
    if not session.url:
        return session.folder() / (named or "lake")
    if named:
        return session.directory / named
    path = store_path(session.location.absolute_url(), base=Path())
    if path is None:
        raise InvalidSettings(
            f"where is the lake of {shown_url(session.url)}?",
            why="this log has no folder to put it beside",
            hint="name one: --lake DIR, or EVERLOG_LAKE=DIR",
        )
    return path.with_name(path.name + ".lake").absolute()
