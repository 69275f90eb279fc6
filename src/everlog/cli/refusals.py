"""`everlog errors`: the log's memory of what it refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, Output, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session

if TYPE_CHECKING:
    from everlog.log.refusals import Refusal


@click.command("errors")
@click.option("-n", "count", type=click.IntRange(min=1), metavar="N", default=20, help="The newest N (20).")
@click.option("--code", metavar="CODE", default="", help="With this code, such as transition_refused.")
@click.option("--stream", metavar="KIND/ID", default="", help="About this stream.")
@click.option("--by", metavar="ACTOR", default="", help="Of this actor.")
@click.option("--stats", is_flag=True, help="How often each was refused, the most common first.")
@missing_ok_option
@common_options
@pass_session
def errors_command(session: Session, count: int, code: str, stream: str, by: str, stats: bool) -> None:
    """Show what was refused and why, the newest last.

    Refusals are kept for 90 days. They never hold a payload. Columns when piped: refused_at, code, type, stream,
    actor, reason; with --stats: count, code, type.

    \b
    Examples:
      everlog errors -n 5
      everlog errors --code wrong_sequence --by agent:builder
      everlog errors --stats
    """
    import msgspec

    from everlog.cli.records import moment

    log = session.log()
    if stats:
        if code or stream or by:
            raise click.UsageError("--stats counts all of them; leave --code, --stream and --by out")
        counts = [(times, code, type_) for code, type_, times in log.refusal_counts()[:count]]
        columns: tuple[str, ...] = ("count", "code", "type")
        data = [dict(zip(columns, row, strict=True)) for row in counts]
        facts = {"count": sum(row[0] for row in counts)}
        session.out.answer(
            Answer(data=data, ids=[row[1] for row in counts], columns=columns, rows=counts, facts=facts)
        )
    else:
        found = log.refusals(limit=count, code=code, stream=stream, actor=by)[::-1]
        session.out.answer(
            Answer(
                data=[msgspec.to_builtins(refusal) for refusal in found],
                ids=[refusal.id for refusal in found],
                columns=("refused_at", "code", "type", "stream", "actor", "reason"),
                rows=[
                    (moment(item.refused_at), item.code, item.type, item.stream, item.actor, item.reason)
                    for item in found
                ],
                lines=[line for item in found for line in _lines(session.out, item)],
                facts={"count": len(found)},
            )
        )
        counts = [(1, "", "")] * len(found)
    if not counts:
        session.out.hint("nothing was refused")


def _lines(out: Output, refusal: Refusal) -> list[str]:
    """A reason is a sentence: it gets a line of its own, where nothing cuts it."""
    from everlog.cli.records import moment

    facts = "  ".join(text for text in (refusal.type, refusal.stream, refusal.actor) if text)
    first = f"{moment(refusal.refused_at)}  {out.paint(safe(refusal.code), 'yellow')}  {safe(facts)}"
    fix = [f"    fix: {safe(out.as_typed(refusal.hint))}"] if refusal.hint else []
    return [first, f"    {safe(refusal.reason)}", *fix]
