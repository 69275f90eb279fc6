"""`everlog pipeline`: the log on Spark. Each command has a module of its own; what they share is here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import click

from everlog.cli.session import Session, common_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Command = TypeVar("_Command", bound=Callable[..., Any])

# name -> the module that has its command, as NAME_command
COMMANDS = {
    "check": "pipeline_check",
    "run": "pipeline_run",
    "stream": "pipeline_stream",
    "compact": "pipeline_run",
    "report": "pipeline_report",
    "audit": "pipeline_audit",
    "migrate": "pipeline_moving",
    "export": "pipeline_moving",
}


class _Commands(click.Group):
    """Loads a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(f"everlog.cli.{COMMANDS[cmd_name]}"), f"{name}_command")
        return found


@click.group("pipeline", cls=_Commands)
@common_options
def pipeline_command() -> None:
    """The log on Spark: check, run, stream, compact, report, audit, migrate, export.

    \b
    Example:
      everlog pipeline check
    """


def spark_options(command: _Command) -> _Command:
    """The options of every command that starts Spark; they arrive as `master` and `conf`."""
    command = click.option(
        "--conf", metavar="KEY=VALUE", multiple=True, callback=_pairs, help="A setting of Spark; may be repeated."
    )(command)
    return click.option(
        "--master", metavar="MASTER", default="", help="Where Spark runs, such as local[4] or spark://host:7077."
    )(command)


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in values:
        key, separator, value = text.partition("=")
        if not separator or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not like spark.driver.memory=2g", ctx=context, param=parameter)
        found[key] = value
    return found


@contextmanager
def spark_of(
    session: Session, master: str, conf: Mapping[str, str], *, app: str = "everlog"
) -> Iterator[SparkSession]:
    """A Spark session for the length of a command. That it starts, and how long it took, is told."""
    from everlog.pipeline.session import opened_session, require_libraries

    require_libraries()
    if session.out.progress_wanted:
        session.out.note("starting Spark …")
    started = time.monotonic()
    with opened_session(master=master, conf=conf, app=app, tell=teller(session)) as spark:
        if session.out.progress_wanted:
            session.out.note(f"Spark {spark.version} is there after {time.monotonic() - started:.1f} s")
        yield spark


def teller(session: Session) -> Callable[[str], None]:
    """Where a session says what takes long."""
    return session.out.note if session.out.progress_wanted else lambda text: None


def log_url(session: Session) -> str:
    """The URL of this run's log, such that a worker anywhere on this machine can open it."""
    from everlog.pipeline.places import absolute

    if session.url:
        return absolute(session.url_from_here())
    return absolute(session.settings().settings.store, base=session.folder())
