"""`everlog export`: write events as text to a file or to standard output."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Any

import click

from everlog.cli.events.log import filter_options, query_of
from everlog.cli.output import Answer, json_safe, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option
from everlog.core.text import counted

FORMATS = ("everlog", "cloudevents", "cloudevents-batch")


@click.command("export")
@click.argument("file", metavar="[FILE]", default="-")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="everlog", help="The format (default: everlog)."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@filter_options
@past_damage_option
@common_options
@pass_session
def export_command(
    session: Session,
    file: str,
    form: str,
    force: bool,
    since: datetime | int | None,
    until: datetime | int | None,
    **filters: Any,
) -> None:
    """Write events to FILE, or to standard output.

    The format everlog is one JSON line per event, exactly as recorded; everlog import reads it. The format
    cloudevents is one CloudEvent 1.0 per line, cloudevents-batch one array of them. The last line, or the last event,
    has their count and digest, so that a truncated file is noticed. FILE gets its name when it is complete.

    The export of a damaged log ends at the first event that cannot be read. With --past-damage everything else is
    written, and the lost positions are named on standard error and in the last line.

    \b
    Examples:
      everlog export all.jsonl
      everlog export --format cloudevents --since 2h --type workpackage.moved
      everlog export --stream note/1 | wc -l
      everlog export what-is-left.jsonl --past-damage
    """
    from everlog.application.move_log import export_events, output_file
    from everlog.cli.progress import progress

    # The export itself records damage in FILE.
    past_damage, session.past_damage = session.past_damage, False
    log = session.log()
    export = export_events(
        log,
        _print if file == "-" else output_file(session.directory / file, replace=force),
        form,
        query_of(since, until, filters),
        after=since - 1 if isinstance(since, int) and since > 0 else 0,
        upto=until if isinstance(until, int) else None,
        past_damage=past_damage,
        progress=lambda total: progress(session.out, "exporting", total),
    )
    for first, last in export.lost:
        session.left_out.add(first, last)
    facts: dict[str, Any] = {
        "events": export.count,
        "head": export.head,
        "digest": export.digest,
        "format": form,
        "file": file,
    }
    if export.lost:
        facts["lost"] = [list(one) for one in export.lost]
    if file == "-":
        session.out.hint(f"{counted(export.count, 'event')}, digest {export.digest}")
        return
    lines = [f"exported  {counted(export.count, 'event')} to {safe(file)}", f"digest    {export.digest}"]
    session.out.answer(Answer.of_one(export.digest, facts, lines=lines))


def _print(piece: bytes) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(json_safe(piece.decode()))
    elif hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(piece)  # the exact bytes, for any encoding of the terminal
    else:
        sys.stdout.write(piece.decode())
