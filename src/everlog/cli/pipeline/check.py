"""`everlog pipeline check`: can Spark run here? Step by step, up to a first result."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from everlog.application.checks.doctor import FAIL, OK, SKIP, Check
from everlog.cli.doctor import answer_checks
from everlog.cli.pipeline.group import log_url, reporter, spark_options
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import EverlogError, NoLogHere

if TYPE_CHECKING:
    from everlog.pipeline.session.session import SparkSession

_STEPS = ("libraries", "java", "start", "job", "log")


@click.command("check")
@spark_options
@common_options
@pass_session
def check_command(session: Session, master: str, conf: dict[str, str]) -> None:
    """Check whether Spark can run here: its libraries, Java, the master, a first job, and the log if there is one.

    Each step shows what it found, and the first that fails shows how to fix it; the exit code is that of its error.
    Columns when piped: status, id, detail, fix.

    \b
    Examples:
      everlog pipeline check
      everlog pipeline check --master spark://127.0.0.1:7077
    """
    found: list[Check] = []
    code = 0
    try:
        found.extend(_steps(session, master, conf))
    except EverlogError as error:
        found.append(Check(_STEPS[len(found)], FAIL, str(error), error.hint))
        code = error.exit_code
    answer_checks(session.out, found)
    if code:
        raise click.exceptions.Exit(code)


def _steps(session: Session, master: str, conf: dict[str, str]) -> Iterator[Check]:
    from importlib.metadata import version

    from everlog.pipeline.session.session import LOCAL, opened_session, require_libraries

    require_libraries()
    libraries = ("pyspark", "pyarrow", "pandas", "deltalake")
    yield Check("libraries", OK, ", ".join(f"{name} {version(name)}" for name in libraries))

    from everlog.pipeline.session.failures import own_errors
    from everlog.pipeline.session.java import find_java

    if master.startswith("sc://"):
        yield Check("java", OK, "the server's own")
    else:
        java = find_java()
        yield Check("java", OK, f"{java.path}, version {java.major}, from {java.source}")

    started = time.monotonic()
    with opened_session(master=master, conf=conf, app="everlog pipeline check", report=reporter(session)) as spark:
        yield Check("start", OK, f"{master or LOCAL} after {time.monotonic() - started:.1f} s")
        started = time.monotonic()
        with own_errors("running a first job"):
            rows = spark.range(1000).count()
        yield Check("job", OK, f"counted {counted(rows, 'row')} in {time.monotonic() - started:.1f} s")
        yield _log(session, spark)


def _log(session: Session, spark: SparkSession) -> Check:
    from everlog.application.move_log import shown_url
    from everlog.pipeline.session.failures import own_errors
    from everlog.pipeline.source.ranges import look
    from everlog.pipeline.source.source import events

    try:
        url = log_url(session)
    except NoLogHere as error:
        return Check("log", SKIP, error.what, "name one with --log, or create one: everlog init")
    started = time.monotonic()
    head = look(url).head
    with own_errors("reading the log"):
        rows = events(spark, url, after=max(0, head - 1000), columns=("position",)).count()
    return Check(
        "log", OK, f"{shown_url(url)}: its last {counted(rows, 'event')} in {time.monotonic() - started:.1f} s"
    )
