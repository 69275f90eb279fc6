"""`everlog import`: record the events of files, from everlog or from other programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import SET_ASIDE

if TYPE_CHECKING:
    from everlog.application.move_log import Imported

PROBLEMS_SHOWN = 20


mapping_option = click.option(
    "--mapping", metavar="FILE", default="", help="A TOML file that describes a row of CSV, or an object of JSON."
)
trust_clock_option = click.option("--trust-clock", is_flag=True, help="Accept Lamport values that are far ahead.")
new_ids_option = click.option(
    "--new-ids", is_flag=True, help="Replace ids that are not ULIDs or are in the future; a tag keeps them."
)
set_aside_option = click.option(
    "--set-aside", metavar="FILE", default="", help="Write bad lines to FILE, record the others, and exit 9."
)


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--namespace", metavar="NAME", default="", help="The origin of these events, if the first one has none."
)
@click.option(
    "--on-unknown-type",
    type=click.Choice(("keep", "refuse")),
    default="keep",
    help="What to do with types that are not in the catalog (default: keep).",
)
@mapping_option
@trust_clock_option
@new_ids_option
@set_aside_option
@click.option(
    "--unsigned", is_flag=True, help="Record events of keys although nothing shows here that the keys signed them."
)
@click.option("--dry-run", is_flag=True, help="Check everything, record nothing.")
@common_options
@pass_session
def import_command(
    session: Session,
    files: tuple[str, ...],
    namespace: str,
    on_unknown_type: str,
    mapping: str,
    trust_clock: bool,
    new_ids: bool,
    set_aside: str,
    unsigned: bool,
    dry_run: bool,
) -> None:
    """Record the events of FILEs, in order; - is standard input.

    The format of a file is recognized by its fields: exports of everlog, CloudEvents 1.0 in lines or as one array,
    spec-kitty's status.events.jsonl, kata's exports, and the event logs that docs/how-to/moving.md lists. Events of
    everlog are recorded unchanged. Fields that other events lack are computed from their content: importing again, or
    on another machine, gives the same ids and the same digest, and known events are left out.

    Everything is checked before anything is recorded, as in everlog append: known types, secrets, names. Every bad
    line is reported, and then nothing is recorded. With --set-aside the bad lines are written to FILE, one JSON
    object per line with file, line, reason, code and text; the others are recorded, and the exit code is 9.

    With --new-ids an event whose id is not a ULID, or is dated in the future, gets a new id. It is computed from the
    line, so that the same file gives the same ids; the old id is kept as a tag, and references are adjusted.

    An event whose origin is a key must be signed by that key for this log, with its path, as everlog export writes
    it. With --unsigned it is recorded without: that saves what is left of a signed log, and everlog verify reports
    each such event.

    With --mapping the files are CSV or JSON: the mapping names the columns, or the paths in an object, of type,
    stream, actor and payload (docs/how-to/moving.md).

    \b
    Examples:
      everlog import all.jsonl --dry-run
      everlog import orders.csv --mapping orders.toml
      everlog import kitty-specs/*/status.events.jsonl --new-ids --set-aside bad.jsonl
      everlog import events/2026-01-26.jsonl events/2026-01-27.jsonl --on-unknown-type refuse
    """
    from everlog.application.move_log import import_from, import_options
    from everlog.cli.progress import progress

    options = import_options(
        namespace=namespace,
        keep_unknown_types=on_unknown_type == "keep",
        trust_clock=trust_clock,
        mapping=mapping,
        directory=session.directory,
        new_ids=new_ids,
        unsigned=unsigned,
    )
    imported = import_from(
        session.log(),
        session.directory,
        files,
        options,
        read_stdin=lambda size: _stdin(session, size),
        dry_run=dry_run,
        set_aside=session.directory / set_aside if set_aside else None,
        progress=lambda total: progress(session.out, "reading and recording", total),
    )
    _answer(session, imported, set_aside)
    if imported.set_aside:
        raise click.exceptions.Exit(SET_ASIDE)


def _stdin(session: Session, size: int) -> bytes:
    if sys.stdin.isatty():
        session.out.hint("reading from the terminal; end with Ctrl-D")
    return sys.stdin.buffer.read(size)


def _answer(session: Session, imported: Imported, set_aside: str) -> None:
    import msgspec

    facts = msgspec.to_builtins(imported)
    warn_of(session, imported.problems, imported.set_aside, imported.not_events)
    shapes = ", ".join(f"{count:,} {shape}" for shape, count in sorted(imported.shapes.items()))
    lines = [
        f"found     {counted(imported.events, 'event')}" + (f" ({shapes})" if shapes else ""),
        f"new       {imported.new:,}" + ("  dry run, nothing recorded" if imported.dry_run else ""),
        f"known     {imported.known:,}",
        f"digest    {imported.digest}",
    ]
    if imported.repeated:
        lines.insert(3, f"repeated  {counted(imported.repeated, 'line')} occurred twice")
    lines[3:3] = odd_lines(imported.new_ids, imported.set_aside, set_aside, dry_run=imported.dry_run)
    if imported.origin:
        more = f" and {imported.origins - 1:,} more, one for each file" if imported.origins > 1 else ""
        lines.append(f"origin    {safe(imported.origin)}{more}")
    session.out.answer(Answer.of_one(imported.digest, facts, lines=lines))


def warn_of(session: Session, problems: Sequence[str], lines: int, not_events: Mapping[str, int]) -> None:
    """Warn of lines that were set aside, and of those that are no events."""
    for problem in problems[:PROBLEMS_SHOWN]:
        session.out.warn(f"set aside: {safe(problem)}")
    if len(problems) > PROBLEMS_SHOWN:
        session.out.warn(f"set aside: {counted(lines, 'line')} in all")
    for what, count in not_events.items():
        session.out.warn(f"left out: {counted(count, 'line is no event', 'lines are no events')} but {what}")


def odd_lines(new_ids: int, set_aside: int, file: str, *, dry_run: bool) -> list[str]:
    """Return the lines of an answer about new ids and lines that were set aside."""
    where = "  dry run, nothing written" if dry_run else f", in {safe(file)}"
    return [
        *([f"set aside {counted(set_aside, 'line')}{where}"] if set_aside else []),
        *([f"new ids   {new_ids:,}"] if new_ids else []),
    ]
