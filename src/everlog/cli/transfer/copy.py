"""`everlog copy`: copy a whole log into another store."""

from __future__ import annotations

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@common_options
@pass_session
def copy_command(session: Session, source: str, target: str) -> None:
    """Copy a whole log from any store to any other.

    FROM and TO are URLs, such as sqlite:log.db. Ids, order, positions, times, signatures, purges, idempotency keys
    and refusals are kept, and both sides are compared byte by byte before the copy gets its name. Others may write to
    FROM meanwhile: the copy is the log at one moment. An interrupted copy continues when the command is repeated.

    The copy has its own origin, so that both logs can be written to afterwards.

    \b
    Examples:
      everlog copy sqlite:.everlog/log.db sqlite:backup.db
      everlog copy sqlite:.everlog/log.db segments:.everlog/segments
      everlog copy jsonl:events postgresql://db.example/logs --json
    """
    import msgspec

    from everlog.application.move_log import copy_between
    from everlog.cli.progress import progress

    done = copy_between(
        session.location, source, target, lambda total: progress(session.out, "copying and comparing", total)
    )
    copied = done.copied
    facts = {
        **msgspec.to_builtins(copied.summary),
        "notes": copied.notes,
        "claims": copied.claims,
        "resumed_at": copied.resumed_at,
        "log_id": copied.identity.log_id,
        "origin": copied.identity.origin,
        "epoch": copied.identity.epoch,
    }
    resumed = f", continued after #{copied.resumed_at}" if copied.resumed_at else ""
    lines = [
        f"copied    {counted(copied.summary.events, 'event')} to {safe(done.url)}{resumed}",
        f"purged    {copied.summary.purged:,}",
        f"head      #{copied.summary.head}",
        f"digest    {copied.summary.digest}",
        session.out.paint("ok", "green") + ": both sides are equal",
    ]
    session.out.answer(Answer.of_one(copied.summary.digest, facts, lines=lines))
    session.out.hint(done.how_to_use)
