"""`everlog pipeline audit`: the checks of `everlog verify`, by many processes."""

from __future__ import annotations

from collections.abc import Mapping

import click

from everlog.cli.output import safe
from everlog.cli.pipeline.group import log_url, spark_of, spark_options
from everlog.cli.pipeline.progress import spark_progress
from everlog.cli.session import Session, common_options, pass_session
from everlog.cli.verify import answer_report

ODDITIES_SHOWN = 20


@click.command("audit")
@spark_options
@common_options
@pass_session
def audit_command(session: Session, master: str, conf: Mapping[str, str]) -> None:
    """Verify the log from its bytes on Spark, for logs that take one process too long.

    The report is that of `everlog verify`. It checks positions, hashes, commitments, chains, sequences, ids and
    purged positions, and lists each problem with its position and reason. It also warns about clocks that cannot be
    right, which no rule forbids. Exits 8 if anything is wrong.

    \b
    Examples:
      everlog pipeline audit
      everlog pipeline audit --json --master spark://HOST:7077
    """
    import time

    from everlog.application.checks.problems import no_hint_to_verify

    session.log()  # a missing log is reported before Spark is started
    with spark_of(session, master, conf) as spark:
        from everlog.pipeline.audit.audit import audit

        started = time.monotonic()
        with no_hint_to_verify(), spark_progress(session.out, spark, "proving the log"):
            found = audit(spark, log_url(session))
        took_s = time.monotonic() - started
    for odd in found.oddities[:ODDITIES_SHOWN]:
        session.out.warn(safe(f"#{odd.position} {odd.code}: {odd.reason}"))
    more = {"signed": found.signed, "oddities": len(found.oddities)}
    answer_report(session.out, found.report, took_s=took_s, more=more)
