"""`everlog pipeline`: the log on Spark. Each command has its module; what they share is here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

import click

from everlog.cli.session import LazyGroup, Session, common_options, together

if TYPE_CHECKING:
    from everlog.pipeline.session.session import SparkSession


class _Commands(LazyGroup):
    modules: ClassVar[Mapping[str, str]] = {
        "check": "pipeline.check",
        "run": "pipeline.run",
        "stream": "pipeline.stream",
        "compact": "pipeline.run",
        "report": "pipeline.report",
        "sql": "pipeline.sql",
        "audit": "pipeline.audit",
        "verify": "pipeline.verify",
        "migrate": "pipeline.migrate",
        "export": "pipeline.migrate",
    }


@click.group("pipeline", cls=_Commands)
@common_options
def pipeline_command() -> None:
    """The log on Spark: check, run, stream, sql, verify, compact, report, audit, migrate, export.

    \b
    Example:
      everlog pipeline check
    """


def _pairs(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in values:
        key, separator, value = text.partition("=")
        if not separator or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not like spark.driver.memory=2g", ctx=context, param=parameter)
        found[key] = value
    return found


spark_options = together(
    click.option(
        "--master", metavar="MASTER", default="", help="Where Spark runs, such as local[4] or spark://host:7077."
    ),
    click.option(
        "--conf", metavar="KEY=VALUE", multiple=True, callback=_pairs, help="A setting of Spark; may be repeated."
    ),
)
"""The options of every command that starts Spark: `master` and `conf`."""


@contextmanager
def spark_of(
    session: Session, master: str, conf: Mapping[str, str], *, app: str = "everlog"
) -> Iterator[SparkSession]:
    """Open a Spark session for the length of a command; report that it starts, and how long that took."""
    from everlog.pipeline.session.session import opened_session, require_libraries

    require_libraries()
    if session.out.progress_wanted:
        session.out.note("starting Spark …")
    started = time.monotonic()
    with opened_session(master=master, conf=conf, app=app, report=reporter(session)) as spark:
        if session.out.progress_wanted:
            session.out.note(f"Spark {spark.version} started in {time.monotonic() - started:.1f} s")
        yield spark


def reporter(session: Session) -> Callable[[str], None]:
    """Return a function that shows what takes long."""
    return session.out.note if session.out.progress_wanted else lambda text: None


def log_url(session: Session) -> str:
    """Return the URL of the log in a form that any process on this machine can open."""
    from everlog.pipeline.source.ranges import absolute

    if session.url:
        return absolute(session.location.absolute_url())
    return absolute(session.settings().settings.store, base=session.folder())
