"""`everlog dump`, `segments` and `index`: the files of a store shown, compressed, and indexed again."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted
from everlog.errors import CHECK_FAILED


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
    from everlog.application.store_files import segment_entries, segment_files
    from everlog.core.codec import recorded_object

    found = [session.directory / name for name in files] or segment_files(session.location)
    rows: list[tuple[str, int, int, str, str]] = []
    data = []
    damaged = False
    for entry in segment_entries(found):
        damaged = damaged or entry.is_damaged
        where = (entry.file.name, entry.start, entry.end)
        rows.append((*where, entry.kind, safe(entry.text)))
        one = {
            "file": str(entry.file),
            "start": entry.start,
            "end": entry.end,
            "kind": entry.kind,
            "text": entry.text,
        }
        if records:
            one["records"] = [recorded_object(recorded) for recorded in entry.records]
            rows += [(*where, "event", safe(f"#{r.position} {r.event.type} {r.event.stream}")) for r in entry.records]
        data.append(one)
    session.out.answer(
        Answer(
            data=data,
            columns=("file", "start", "end", "kind", "text"),
            rows=rows,
            facts={"files": len(found), "entries": len(rows), "damaged": damaged},
        )
    )
    if damaged:
        raise click.exceptions.Exit(CHECK_FAILED)


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
    """Compress old segments with Zstandard. They stay in place and can be read as before.

    \b
    Example:
      everlog segments archive --days 30
    """
    from everlog.application import store_files

    if days is None:
        days = session.settings().settings.archive_after_days
    done = store_files.archive_segments(session.log(), days=days)
    before, after = sum(one.bytes for one in done), sum(one.packed_bytes for one in done)
    saved = f", {counted(before, 'byte')} became {after:,}" if done else ""
    session.out.answer(
        Answer.of_many(
            done,
            ids=[],
            lines=[f"compressed {counted(len(done), 'segment')}{saved}"],
            facts={"packed": len(done), "bytes": before, "packed_bytes": after},
        )
    )


@click.group("index")
@common_options
def index_command() -> None:
    """The index of a JSONL log: rebuild.

    It is derived from the day files, and is rebuilt automatically if it is missing, stale or damaged.

    \b
    Example:
      everlog index rebuild
    """


@index_command.command("rebuild")
@click.option(
    "--accept-missing",
    is_flag=True,
    help="Continue without events and notes that were here before and are in no file now.",
)
@common_options
@pass_session
def rebuild_index(session: Session, accept_missing: bool) -> None:
    """Rebuild the index from the day files.

    From then on, positions follow the order of the lines, and existing cursors are reset.

    \b
    Example:
      everlog index rebuild
    """
    import msgspec

    from everlog.application import store_files

    done = store_files.rebuild_index(session.log(), accept_missing=accept_missing)
    facts = msgspec.to_builtins(done)
    lines = [f"rebuilt the index of {counted(done.events, 'event')}; existing cursors are reset"]
    session.out.answer(Answer.of_row(done.epoch, facts, lines=lines))
