"""`everlog import`: record the events of files, from everlog or from other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.transfer.import_pass import Source
    from everlog.transfer.importing import Imported
    from everlog.transfer.mapping import RowMapping

STDIN_BYTES_MAX = 64 * 1024 * 1024
EXIT_SET_ASIDE = 9
PROBLEMS_SHOWN = 20


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
@click.option("--mapping", metavar="FILE", default="", help="The files are CSV; this TOML file describes a row.")
@click.option("--trust-clock", is_flag=True, help="Accept Lamport values that are far ahead.")
@click.option(
    "--new-ids", is_flag=True, help="Replace ids that are not ULIDs or are in the future; a tag keeps them."
)
@click.option(
    "--set-aside", metavar="FILE", default="", help="Write bad lines to FILE, import the others, and exit 9."
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
    dry_run: bool,
) -> None:
    """Record the events of FILEs, in order; - is standard input.

    The format of a file is recognized by its fields: exports of everlog, CloudEvents 1.0 in lines or as one array,
    spec-kitty's status.events.jsonl, kata's exports, and the event logs that docs/moving.md lists. Events of everlog
    are recorded unchanged. Fields that other events lack are computed from their content: importing again, or on
    another machine, gives the same ids and the same digest, and known events are left out.

    Everything is checked before anything is recorded, as in everlog append: known types, secrets, names. Every bad
    line is reported, and then nothing is recorded. With --set-aside the bad lines are written to FILE, one JSON
    object per line with file, line, reason, code and text; the others are recorded, and the exit code is 9.

    With --new-ids an event whose id is not a ULID, or is dated in the future, gets a new id. It is computed from the
    line, so that the same file gives the same ids; the old id is kept as a tag, and references are adjusted.

    With --mapping the files are CSV: the mapping names the columns of type, stream, actor and payload
    (docs/moving.md).

    \b
    Examples:
      everlog import all.jsonl --dry-run
      everlog import orders.csv --mapping orders.toml
      everlog import kitty-specs/*/status.events.jsonl --new-ids --set-aside bad.jsonl
      everlog import events/2026-01-26.jsonl events/2026-01-27.jsonl --on-unknown-type refuse
    """
    from everlog.cli.progress import progress
    from everlog.transfer.import_pass import Options
    from everlog.transfer.importing import import_files, passes

    options = Options(
        namespace,
        keep_unknown_types=on_unknown_type == "keep",
        trust_clock=trust_clock,
        mapping=mapping_of(session, mapping) if mapping else None,
        new_ids=new_ids,
    )
    aside = partial(_write_aside, _aside_path(session, set_aside)) if set_aside else None
    log = session.log()
    with _opened(session, files) as sources:
        size = sum(source.size for source in sources)
        with progress(session.out, "reading and recording", passes(options, dry_run=dry_run) * size) as tell:
            imported = import_files(log, sources, options, dry_run=dry_run, set_aside=aside, progress=tell)
    _answer(session, imported, set_aside)
    if imported.set_aside:
        raise click.exceptions.Exit(EXIT_SET_ASIDE)


def _aside_path(session: Session, name: str) -> Path:
    """Return the path for bad lines. Raises an error now if it cannot be written."""
    from everlog.cli.transfer.new_file import new_file

    # An existing file may be from an earlier run of the same command: its content decides.
    return new_file(session, name, force=True)


def _write_aside(path: Path, lines: Iterator[bytes]) -> None:
    """Write the lines. A file that exists already must contain the same lines."""
    from everlog.errors import Conflict
    from everlog.files import DiskFiles, replace_file_by

    files = DiskFiles()
    draft = path.with_name(path.name + ".new") if files.exists(path) else path
    replace_file_by(files, draft, lines, mode=0o600)
    if draft == path:
        return
    same = files.read_all(draft) == files.read_all(path)
    files.unlink(draft)
    if not same:
        raise Conflict(
            f"{path} exists already, with other lines",
            why="nothing was imported and the file was not changed",
            hint="name another file for --set-aside",
            path=str(path),
        )


def mapping_of(session: Session, name: str) -> RowMapping:
    """Return the mapping of a file."""
    from everlog.errors import NotFound
    from everlog.files import DiskFiles
    from everlog.transfer.mapping import read_mapping

    try:
        text = DiskFiles().read_all(session.directory / name).decode(errors="replace")
    except OSError as error:
        why = error.strerror or str(error)
        raise NotFound(f"{name} cannot be read", why=why, hint="check what follows --mapping") from error
    return read_mapping(text, source=name)


@contextmanager
def _opened(session: Session, names: tuple[str, ...]) -> Iterator[list[Source]]:
    from everlog.errors import BadFile, NotFound
    from everlog.files import DiskFiles
    from everlog.transfer.import_pass import Source

    files, handles, sources = DiskFiles(), [], []
    try:
        for name in names:
            if name == "-":
                sources.append(_stdin(session))
                continue
            if (session.directory / name).is_dir():
                raise BadFile(f"{name} is a directory", why="events are imported from files", hint="name its files")
            try:
                handle = files.open(session.directory / name)
            except OSError as error:
                why = error.strerror or str(error)
                raise NotFound(f"{name} cannot be read", why=why, hint="check its name") from error
            handles.append(handle)

            def read(size: int, at: int, handle=handle) -> bytes:  # type: ignore[no-untyped-def]
                return files.read(handle, size, at=at)

            sources.append(Source(name, files.size(handle), read))
        yield sources
    finally:
        for handle in handles:
            files.close(handle)


def _stdin(session: Session) -> Source:
    from everlog.errors import BadFile
    from everlog.transfer.import_pass import Source

    if sys.stdin.isatty():
        session.out.hint("reading from the terminal; end with Ctrl-D")
    data = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(data) > STDIN_BYTES_MAX:
        raise BadFile(
            f"standard input is longer than {STDIN_BYTES_MAX:,} bytes",
            why="it is read twice, so it must fit in memory",
            hint="write it to a file and import that",
        )
    return Source("stdin", len(data), lambda size, at: data[at : at + size])


def _answer(session: Session, imported: Imported, set_aside: str) -> None:
    import msgspec

    facts = msgspec.to_builtins(imported)
    for problem in imported.problems[:PROBLEMS_SHOWN]:
        session.out.warn(f"set aside: {safe(problem)}")
    if imported.set_aside > PROBLEMS_SHOWN:
        session.out.warn(f"set aside: {imported.set_aside - PROBLEMS_SHOWN:,} more")
    for what, count in imported.not_events.items():
        session.out.warn(f"left out: {counted(count, 'line is no event', 'lines are no events')} but {what}")
    shapes = ", ".join(f"{count:,} {shape}" for shape, count in sorted(imported.shapes.items()))
    lines = [
        f"found     {counted(imported.events, 'event')}" + (f" ({shapes})" if shapes else ""),
        f"new       {imported.new:,}" + ("  dry run, nothing recorded" if imported.dry_run else ""),
        f"known     {imported.known:,}",
        f"digest    {imported.digest}",
    ]
    if imported.repeated:
        lines.insert(3, f"repeated  {counted(imported.repeated, 'line')} occurred twice")
    if imported.new_ids:
        lines.insert(3, f"new ids   {imported.new_ids:,}")
    if imported.set_aside:
        where = "  dry run, nothing written" if imported.dry_run else f", in {safe(set_aside)}"
        lines.insert(3, f"set aside {counted(imported.set_aside, 'line')}{where}")
    if imported.origin:
        more = f" and {imported.origins - 1:,} more, one for each file" if imported.origins > 1 else ""
        lines.append(f"origin    {safe(imported.origin)}{more}")
    session.out.answer(Answer.of_one(imported.digest, facts, lines=lines))
