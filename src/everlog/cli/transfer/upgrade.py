"""`everlog upgrade`: bring a log of an older format to the present one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.application.move_log import Named


@click.command("upgrade")
@click.argument("place", metavar="[FOLDER or URL]", default="")
@click.option("--forget-old", is_flag=True, help="Remove the old files that an upgrade has kept.")
@common_options
@pass_session
def upgrade_command(session: Session, place: str, forget_old: bool) -> None:
    """Bring a log of an older format to the present one.

    Ids, payloads, positions, times, purges, idempotency keys, notes and the clock are kept; the hashes of the chains
    are computed again. Every row is checked first, and both sides are compared before they are swapped. The old files
    are kept until --forget-old. An upgrade that was killed is finished or begun again by the next one.

    \b
    Examples:
      everlog upgrade
      everlog upgrade sqlite:backup.db
      everlog upgrade --forget-old
    """
    import msgspec

    from everlog.application.move_log import named_log, upgrade_named
    from everlog.cli.progress import progress

    named = named_log(session.location, place)
    if forget_old:
        _forget(session, named)
        return
    done = upgrade_named(named, lambda total: progress(session.out, "checking, carrying over and comparing", total))
    report = done.report
    facts = {
        "done": done.done,
        "earlier": done.earlier,
        "kept": done.kept,
        "report": None if report is None else msgspec.to_builtins(report),
    }
    if done.earlier:
        session.out.warn(f"an upgrade was killed before it was complete; it was {done.earlier}")
    if report is None:
        session.out.answer(Answer.of_one("", facts, lines=[f"{safe(named.shown)} is in the present format"]))
        return
    lines = [
        f"upgraded  {counted(report.events, 'event')} of {safe(named.shown)} from format {report.old_format}"
        f" to {report.format}"
        if done.done
        else f"{safe(named.shown)} was upgraded before, from format {report.old_format} to {report.format}",
        f"purged    {report.purged:,}",
        f"head      #{report.head}",
        f"before    {report.old_digest}",
        f"digest    {report.digest}",
    ]
    session.out.answer(Answer.of_one(report.digest, facts, lines=lines))
    if done.kept:
        session.out.hint(f"the old files are in {done.kept}; when all is well: everlog upgrade --forget-old")


def _forget(session: Session, named: Named) -> None:
    import msgspec

    from everlog.application.move_log import forget_named

    gone = forget_named(named)
    lines = [f"removed   {safe(gone.kept)}" + (f", {gone.bytes:,} bytes" if gone.bytes else "")]
    session.out.answer(Answer.of_one(gone.kept, msgspec.to_builtins(gone), lines=lines))
