"""`everlog export`: write events as text to a file or to standard output."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.events.log import filter_options, query_of
from everlog.cli.output import Answer, json_safe, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.transfer.exporting import Export

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
    from everlog.cli.progress import progress
    from everlog.cli.transfer.new_file import new_file
    from everlog.core.event import Position
    from everlog.files import DiskFiles, replace_file_by
    from everlog.transfer.exporting import Export, Format, chunks

    past_damage, session.past_damage = (
        session.past_damage,
        False,
    )  # the export records damage in FILE
    log = session.log()
    after = Position(since - 1 if isinstance(since, int) and since > 0 else 0)
    upto = Position(until) if isinstance(until, int) else None
    query = query_of(since, until, filters)
    path = session.directory if file == "-" else new_file(session, file, force=force)
    with progress(session.out, "exporting", log.head()) as tell:
        export = Export(
            log.stored, Format(form), query, after=after, upto=upto, past_damage=past_damage, progress=tell
        )
        if file == "-":
            for piece in chunks(export.pieces()):
                _print(piece)
        else:
            replace_file_by(DiskFiles(), path, chunks(export.pieces()))
    for first, last in export.lost:
        session.left_out.add(first, last)
    _answer(session, export, file, form)


def _print(piece: bytes) -> None:
    if sys.stdout.isatty():
        sys.stdout.write(json_safe(piece.decode()))
    elif hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(piece)  # the exact bytes, for any encoding of the terminal
    else:
        sys.stdout.write(piece.decode())


def _answer(session: Session, export: Export, file: str, form: str) -> None:
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
