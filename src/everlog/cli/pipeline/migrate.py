"""`everlog pipeline migrate` and `export`: move history that is too long for one process in and out of a log."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline.group import log_url, spark_of, spark_options
from everlog.cli.session import Session, common_options, pass_session
from everlog.cli.transfer.import_ import (
    mapping_option,
    new_ids_option,
    odd_lines,
    set_aside_option,
    trust_clock_option,
    warn_of,
)
from everlog.core.text import counted
from everlog.errors import SET_ASIDE, NoLogHere

FORMATS = ("everlog", "cloudevents")


@click.command("migrate")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--to", "url", metavar="URL", required=True, help="The new log, such as segments:data.")
@mapping_option
@click.option(
    "--namespace", metavar="NAME", default="", help="The origin of these events, if the first one has none."
)
@trust_clock_option
@new_ids_option
@set_aside_option
@click.option(
    "--staging",
    metavar="DIR",
    default="",
    help="A folder that every worker can read (default: a temporary one on this machine).",
)
@click.option("--dry-run", is_flag=True, help="Read and check everything, create nothing.")
@spark_options
@common_options
@pass_session
def migrate_command(
    session: Session,
    paths: tuple[str, ...],
    url: str,
    mapping: str,
    namespace: str,
    trust_clock: bool,
    new_ids: bool,
    set_aside: str,
    staging: str,
    dry_run: bool,
    master: str,
    conf: dict[str, str],
) -> None:
    """Create a new log from files of other programs, or from all files below folders, read in parallel.

    It reads what everlog import reads, with the same --mapping, --new-ids and --set-aside: see everlog import
    --help. The new log becomes visible when it is complete and was read again from its bytes. The same files give
    the same ids and the same digest. To continue a migration that was stopped, repeat the command.

    \b
    Examples:
      everlog pipeline migrate history/ --to segments:data --dry-run
      everlog pipeline migrate kitty-specs/ --to segments:data --new-ids --set-aside bad.jsonl
      everlog pipeline migrate orders/ --mapping orders.toml --to postgresql://db.example/orders
    """
    import msgspec

    from everlog.application.move_log import aside_writer, copy_target, import_options, shown_url
    from everlog.cli.pipeline.progress import spark_progress
    from everlog.cli.progress import progress
    from everlog.pipeline.session.session import require_libraries

    target = copy_target(url, base=session.directory)
    options = import_options(
        namespace=namespace,
        trust_clock=trust_clock,
        mapping=mapping,
        directory=session.directory,
        new_ids=new_ids,
    )
    aside = aside_writer(session.directory / set_aside) if set_aside else None
    try:
        catalog = session.catalog()
    except NoLogHere:
        catalog = None  # that of a log without declared types
    require_libraries()
    from everlog.pipeline.migrate.chunks import chunks_of
    from everlog.pipeline.migrate.migrate import prepare, write

    sources = [session.directory / path for path in paths]
    chunks_of(sources, mapped=bool(mapping))  # missing files are reported before Spark is started
    with spark_of(session, master, conf, app="everlog migrate") as spark, TemporaryDirectory() as here:
        with spark_progress(session.out, spark, "reading"):
            folder = session.directory / staging if staging else Path(here)
            found = prepare(
                spark, sources, target, folder, options, set_aside=aside, catalog=catalog, dry_run=dry_run
            )
        with progress(session.out, "writing and comparing", 2 * found.events) as show:
            migrated = write(target, found, progress=show)
    facts = msgspec.to_builtins(migrated)
    warn_of(session, migrated.problems, migrated.set_aside, migrated.not_events)
    shapes = ", ".join(f"{count:,} {shape}" for shape, count in migrated.shapes.items())
    lines = [
        f"found     {counted(migrated.events, 'event')} in {counted(migrated.files, 'file')} ({shapes})",
        f"repeated  {migrated.repeated:,}",
        *odd_lines(migrated.new_ids, migrated.set_aside, set_aside, dry_run=dry_run),
    ]
    if dry_run:
        lines.append("dry run: nothing was made")
    else:
        lines += [
            f"digest    {migrated.digest}",
            session.out.paint("ok", "green") + f": {safe(shown_url(url))} is whole",
        ]
    session.out.answer(Answer.of_one(migrated.digest, facts, lines=lines))
    if migrated.set_aside:
        raise click.exceptions.Exit(SET_ASIDE)


@click.command("export")
@click.argument("folder", metavar="FOLDER")
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="everlog", help="The format (default: everlog)."
)
@spark_options
@common_options
@pass_session
def export_command(session: Session, folder: str, form: str, master: str, conf: dict[str, str]) -> None:
    """Write the whole log into a new FOLDER, many files at once, with a manifest that lists them.

    Each file is a complete export, which everlog import reads; everlog pipeline migrate reads the folder.

    \b
    Example:
      everlog pipeline export out/
    """
    import msgspec

    from everlog.application.move_log import Format
    from everlog.cli.pipeline.progress import spark_progress
    from everlog.pipeline.session.session import require_libraries

    session.log()  # a missing log is reported before Spark is started
    url = log_url(session)
    require_libraries()
    from everlog.pipeline.migrate.export import export_all, require_empty

    require_empty(session.directory / folder)
    with (
        spark_of(session, master, conf, app="everlog export") as spark,
        spark_progress(session.out, spark, "exporting"),
    ):
        manifest = export_all(spark, url, session.directory / folder, Format(form))
    facts = {"events": manifest.count, "files": len(manifest.parts), "head": manifest.head, "folder": folder}
    line = f"exported  {counted(manifest.count, 'event')} to {counted(len(manifest.parts), 'file')} in {safe(folder)}"
    session.out.answer(Answer.of_one(folder, facts, lines=[line], data=msgspec.to_builtins(manifest)))
