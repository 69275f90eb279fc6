"""`everlog doctor`: check everything around a log, and print how to fix what is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, Output, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.errors import CHECK_FAILED

if TYPE_CHECKING:
    from everlog.application.checks.doctor import Check

COLORS = {"ok": "green", "warn": "yellow", "fail": "red", "skip": "white"}


@click.command("doctor")
@common_options
@pass_session
def doctor_command(session: Session) -> None:
    """Check the log and everything around it, and show how to fix problems. It changes nothing.

    Columns when piped: status, id, detail, fix. Exits 8 if a check fails; a warning is not a failure.

    \b
    Examples:
      everlog doctor
      everlog doctor --json
    """
    from everlog.application.anywhere import check_log

    failed = answer_checks(session.out, check_log(session.location, session.log))
    if failed:
        raise click.exceptions.Exit(CHECK_FAILED)


def answer_checks(out: Output, checks: Iterable[Check]) -> list[Check]:
    """Print the checks, and return those that failed."""
    import msgspec

    found = [msgspec.structs.replace(check, fix=out.as_typed(_not_doctor(check.fix))) for check in checks]
    failed = [check for check in found if check.status == "fail"]
    lines = []
    for check in found:
        lines.append(f"{out.paint(f'{check.status:<4}', COLORS[check.status])}  {check.id:<10}  {safe(check.detail)}")
        if check.fix:
            lines.append(f"      fix: {safe(check.fix)}")
    out.answer(
        Answer.of_many(
            found,
            ids=[check.id for check in failed],
            lines=lines,
            facts={status: sum(check.status == status for check in found) for status in COLORS},
        )
    )
    return failed


def _not_doctor(fix: str) -> str:
    """Replace a hint of an error that would send the reader to `doctor`, which is running already."""
    return "everlog verify" if fix.startswith("everlog doctor") else fix
