"""`everlog import`: the events of files, ours or of other programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.cutover.importing import Imported, Source
    from everlog.cutover.mapping import RowMapping

STDIN_BYTES_MAX = 64 * 1024 * 1024


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--namespace", metavar="NAME", default="", help="Whose events these are, if the first does not say it.")
@click.option(
    "--on-unknown-type",
    type=click.Choice(("keep", "refuse")),
    default="keep",
    help="Types that are not in the catalog (keep).",
)
@click.option("--mapping", metavar="FILE", default="", help="The files are CSV; this TOML says what a row is.")
@click.option("--trust-clock", is_flag=True, help="Accept Lamport values however far ahead.")
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
    dry_run: bool,
) -> None:
    """Record the events of FILEs, in order; - is standard input.

    What is in a file is told by its fields: exports of everlog, CloudEvents 1.0 in lines or as one array,
    spec-kitty's status.events.jsonl, kata's exports, and the event logs that docs/moving.md lists. Events of ours are
    recorded as they are. Events of others get what they lack, computed from what they say: importing again, or on
    another machine, gives the same ids and the same digest, and what is there already is left out.

    Everything is checked before anything is recorded, and every bad line is named.

    With --mapping the files are CSV: the mapping says of which columns type, stream, actor and payload are made
    (docs/moving.md).

    \b
    Examples:
      everlog import all.jsonl --dry-run
      everlog import orders.csv --mapping orders.toml
      everlog import kitty-specs/034-login/status.events.jsonl
      everlog import events/2026-01-26.jsonl events/2026-01-27.jsonl --on-unknown-type refuse
    """
    from everlog.cli.progress import progress
    from everlog.cutover.importing import Options, import_files

    options = Options(
        namespace,
        keep_unknown_types=on_unknown_type == "keep",
        trust_clock=trust_clock,
        mapping=mapping_of(session, mapping) if mapping else None,
    )
    log = session.log()
    with _opened(session, files) as sources:
        size = sum(source.size for source in sources)
        with progress(session.out, "reading and recording", 2 * size) as tell:
            imported = import_files(log, sources, options, dry_run=dry_run, progress=tell)
    _answer(session, imported)


def mapping_of(session: Session, name: str) -> RowMapping:
    """The mapping that a file holds."""
    from everlog.cutover.mapping import read_mapping
    from everlog.errors import NotFound
    from everlog.files import DiskFiles

    try:
        text = DiskFiles().read_all(session.place / name).decode(errors="replace")
    except OSError as error:
        why = error.strerror or str(error)
        raise NotFound(f"{name} cannot be read", why=why, hint="check what follows --mapping") from error
    return read_mapping(text, source=name)


@contextmanager
def _opened(session: Session, names: tuple[str, ...]) -> Iterator[list[Source]]:
    from everlog.cutover.importing import Source
    from everlog.errors import BadFile, NotFound
    from everlog.files import DiskFiles

    files, handles, sources = DiskFiles(), [], []
    try:
        for name in names:
            if name == "-":
                sources.append(_stdin(session))
                continue
            if (session.place / name).is_dir():
                raise BadFile(f"{name} is a directory", why="events are imported from files", hint="name its files")
            try:
                handle = files.open(session.place / name)
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
    from everlog.cutover.importing import Source
    from everlog.errors import BadFile

    if sys.stdin.isatty():
        session.out.hint("reading from the terminal; end with Ctrl-D")
    data = sys.stdin.buffer.read(STDIN_BYTES_MAX + 1)
    if len(data) > STDIN_BYTES_MAX:
        raise BadFile(
            f"standard input is longer than {STDIN_BYTES_MAX:,} bytes",
            why="it is read twice, and so must be kept",
            hint="write it to a file and import that",
        )
    return Source("stdin", len(data), lambda size, at: data[at : at + size])


def _answer(session: Session, imported: Imported) -> None:
    import msgspec

    facts = msgspec.to_builtins(imported)
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
        lines.insert(3, f"repeated  {counted(imported.repeated, 'line')} stood there twice")
    if imported.origin:
        lines.append(f"origin    {safe(imported.origin)}")
    session.out.answer(Answer.of_one(imported.digest, facts, lines=lines))
