"""`everlog dump` and `everlog segments`: show segment files, and compress old ones."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

EXIT_DAMAGED = 8


@click.command("dump")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--records", is_flag=True, help="Also show each event of each frame.")
@common_options
@pass_session
def dump_command(session: Session, files: tuple[Path, ...], records: bool) -> None:
    """Show the content of segment files, frame by frame, with offsets.

    It reads the files as they are, also damaged ones, and does not open the log. Without FILES it shows every segment
    of this log. Exits 8 if there is damage.

    Columns when piped: file, start, end, kind, text.

    \b
    Examples:
      everlog dump
      everlog dump --records .everlog/log/segments/00000001.seg
    """
    from everlog.core.codec import recorded_object
    from everlog.wiring import segment_entries, segment_files

    found = [session.directory / name for name in files] or segment_files(
        session.settings().settings.store, base=session.directory if session.url else session.folder()
    )
    rows: list[tuple[str, int, int, str, str]] = []
    data = []
    damaged = False
    for path in found:
        for entry in segment_entries(path):
            damaged = damaged or entry.kind == "damaged"
            rows.append((path.name, entry.start, entry.end, entry.kind, entry.text))
            one = {"file": str(path), "start": entry.start, "end": entry.end, "kind": entry.kind, "text": entry.text}
            if records:
                one["records"] = [recorded_object(recorded) for recorded in entry.records]
                rows += [
                    (path.name, entry.start, entry.end, "event", f"#{r.position} {r.event.type} {r.event.stream}")
                    for r in entry.records
                ]
            data.append(one)
    session.out.answer(
        Answer(
            data=data,
            columns=("file", "start", "end", "kind", "text"),
            rows=[(name, start, end, kind, safe(text)) for name, start, end, kind, text in rows],
            facts={"files": len(found), "entries": len(rows), "damaged": damaged},
        )
    )
    if damaged:
        raise click.exceptions.Exit(EXIT_DAMAGED)


@click.group("segments")
@common_options
def segments_command() -> None:
    """The files of a segments log: archive.

    \b
    Example:
      everlog segments archive
    """


@segments_command.command("archive")
@click.option(
    "--days", type=click.IntRange(min=0), help="Minimum age in days (default: the setting archive_after_days)."
)
@common_options
@pass_session
def archive_segments(session: Session, days: int | None) -> None:
    """Compress old segments with gzip. They stay in place and can be read as before.

    \b
    Example:
      everlog segments archive --days 30
    """
    from everlog.errors import InvalidSettings
    from everlog.stores.contract import Archiving

    store: object = session.log().stored
    if not isinstance(store, Archiving):
        raise InvalidSettings(
            "this log has no segments",
            why="only a segments: log stores its events in segment files",
            hint="everlog copy copies a log into another store",
        )
    packed = store.archive(days=session.settings().settings.archive_after_days if days is None else days)
    before, after = sum(size for _, size, _ in packed), sum(size for _, _, size in packed)
    saved = f", {counted(before, 'byte')} became {after:,}" if packed else ""
    session.out.answer(
        Answer(
            data=[{"segment": number, "bytes": size, "packed_bytes": small} for number, size, small in packed],
            columns=("segment", "bytes", "packed_bytes"),
            rows=packed,
            lines=[f"compressed {counted(len(packed), 'segment')}{saved}"],
            facts={"packed": len(packed), "bytes": before, "packed_bytes": after},
        )
    )
