"""`everlog errors`: the requests that the log refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, Output, safe
from everlog.cli.session import Session, common_options, missing_ok_option, pass_session

if TYPE_CHECKING:
    from everlog.log.write.refusal_rows import Refusal


_LEFT_OUT_MAX = 5


@click.command("errors")
@click.option(
    "-n", "count", type=click.IntRange(min=1), metavar="N", default=20, help="Show the newest N (default: 20)."
)
@click.option("--code", metavar="CODE", default="", help="Only refusals with this code, such as transition_refused.")
@click.option("--stream", metavar="KIND/ID", default="", help="Only refusals about this stream.")
@click.option("--by", metavar="ACTOR", default="", help="Only refusals of this actor.")
@click.option("--operation", metavar="NAME", default="", help="Only refusals of this operation, such as 'wp move'.")
@click.option("--stats", is_flag=True, help="Count the refusals, the most common first.")
@missing_ok_option
@common_options
@pass_session
def errors_command(
    session: Session, count: int, code: str, stream: str, by: str, operation: str, stats: bool
) -> None:
    """Show refused requests and why they were refused, the newest last.

    Refusals are kept for 90 days. They never contain a payload. At most 100 per actor and minute are recorded, and a
    warning counts the others. Columns when piped: refused_at, code, type, stream, actor, reason, operation; with
    --stats: count, code, type, operation.

    \b
    Examples:
      everlog errors -n 5
      everlog errors --code wrong_sequence --by agent:builder
      everlog errors --stats --operation "wp move"
    """
    if not session.server:
        _warn_of_left_out(session, by)
    limit = None if stats else count
    found = session.any_log().refusals(limit=limit, code=code, stream=stream, actor=by, operation=operation)
    if stats:
        _show_most_common(session.out, found, count)
    else:
        _show_newest(session.out, found[::-1])
    if not found:
        session.out.hint("nothing was refused")


def _warn_of_left_out(session: Session, by: str) -> None:
    """Warn about refusals that were counted and not recorded."""
    from everlog.core.text import counted

    for one in [one for one in session.log().writer.refusals.left_out() if by in ("", one.actor)][:_LEFT_OUT_MAX]:
        session.out.warn(
            f"{counted(one.left_out, 'further refusal')} of {one.actor} in the minute of {one.at:%Y-%m-%dT%H:%MZ}:"
            " counted, not recorded"
        )
    if damaged := session.log().writer.refusals.damaged():
        session.out.warn(
            f"left out, because the disk or a crash damaged what was kept: {counted(damaged, 'refusal')}"
        )


def _show_newest(out: Output, found: list[Refusal]) -> None:
    from everlog.cli.events.records import moment

    out.answer(
        Answer.of_many(
            found,
            ("refused_at", "code", "type", "stream", "actor", "reason", "operation"),
            cells={"refused_at": lambda item: moment(item.refused_at)},
            named="id",
            lines=[line for item in found for line in _lines(out, item)],
        )
    )


def _show_most_common(out: Output, newest_first: list[Refusal], count: int) -> None:
    """Print each kind of refusal with its count and its last hint."""
    kinds: dict[tuple[str, str, str], list[Refusal]] = {}
    for refusal in newest_first:
        kinds.setdefault((refusal.code, refusal.type, refusal.operation), []).append(refusal)
    common = sorted(kinds.items(), key=lambda item: -len(item[1]))[:count]
    found = [
        {
            "count": len(some),
            "code": code,
            "type": type_,
            "operation": operation,
            "last_at": some[0].refused_at.isoformat(),
            "last_reason": some[0].reason,
            "last_hint": some[0].hint,
        }
        for (code, type_, operation), some in common
    ]
    lines = [line for _, some in common for line in _common_lines(out, some)]
    facts = {"count": sum(len(some) for _, some in common)}
    columns = ("count", "code", "type", "operation")
    out.answer(Answer.of_many(found, columns, named="code", lines=lines, facts=facts))


def _common_lines(out: Output, some: list[Refusal]) -> list[str]:
    last = some[0]
    what = out.paint(safe(last.code), "yellow")
    first = f"{len(some):5}  {what}  {safe(last.operation or last.type)}"
    fix = [f"       fix: {safe(out.as_typed(last.hint))}"] if last.hint else []
    return [first, f"       last: {safe(last.reason)}", *fix]


def _lines(out: Output, refusal: Refusal) -> list[str]:
    """Return the lines of a refusal. Its reason is a sentence, so it gets a separate line, where nothing is cut."""
    from everlog.cli.events.records import moment

    what = refusal.type or refusal.operation
    facts = "  ".join(text for text in (what, refusal.stream, refusal.actor) if text)
    first = f"{moment(refusal.refused_at)}  {out.paint(safe(refusal.code), 'yellow')}  {safe(facts)}"
    fix = [f"    fix: {safe(out.as_typed(refusal.hint))}"] if refusal.hint else []
    return [first, f"    {safe(refusal.reason)}", *fix]
