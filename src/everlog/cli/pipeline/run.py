"""`everlog pipeline run` and `compact`: bring the lake up to the log, and merge its small files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer
from everlog.cli.pipeline.group import log_url, spark_options
from everlog.cli.pipeline.lake import lake_option, spark_beside
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

if TYPE_CHECKING:
    from everlog.pipeline.engines.engine import Engine
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.run import RunOutcome
    from everlog.pipeline.session.progress import OnStep


@click.command("run")
@click.option("--rebuild", metavar="TABLE", multiple=True, help="Rebuild this table, or all; may be repeated.")
@lake_option
@spark_options
@common_options
@pass_session
def run_command(
    session: Session, rebuild: tuple[str, ...], lake: str | None, master: str, conf: dict[str, str]
) -> None:
    """Bring the lake up to the log: new events, typed tables, views.

    Only new events are read. A run with nothing new changes nothing, and one that was killed is finished by the next.
    After a purge, the purged events are removed from every table and from the disk. For few events the tables are
    derived by this process, and Spark is started only for what needs it; --master or --conf starts it in any case.

    \b
    Examples:
      everlog pipeline run
      everlog pipeline run --lake /data/lake --master spark://127.0.0.1:7077
      everlog pipeline run --rebuild silver/note.added
    """
    from everlog.pipeline.session.session import require_libraries

    require_libraries()
    from everlog.application.lake import defined_tables, lake_path, with_settings
    from everlog.pipeline.engines.choose import LOCAL_EVENTS_MAX, choose
    from everlog.pipeline.lake.bucket import url_of
    from everlog.pipeline.run import require_types, run_chosen
    from everlog.pipeline.tables.answers import answers_of
    from everlog.pipeline.tables.gold import gold_of

    log = session.log()
    require_types(log)  # before the folder of the lake is made
    place = lake_path(session.location, lake)
    found = with_settings(_lake_for(place, log.identity.log_id, rebuild, master), session.location)
    session.when_stopped = "stopped; every table is complete, and the same command continues where it was"
    outcome = run_chosen(
        choose(log.head(), local_max=LOCAL_EVENTS_MAX, asked_for=asked_for(master, conf)),
        log,
        log_url(session),
        found,
        gold=gold_of(
            found, log.views.known(), log.catalog, more=answers_of(log, found, defined_tables(session.location))
        ),
        rebuild=rebuild,
        start_spark=partial(start_spark, session, found, master, conf),
    )
    tables = {table.name: table.rows() for table in found.tables()}
    session.out.answer(
        Answer(
            data={**_facts(outcome), "lake": url_of(place), "tables": tables},
            ids=sorted(tables),
            columns=("table", "rows"),
            rows=sorted(tables.items()),
            lines=[
                *_lines(outcome),
                f"engine: {outcome.engine} ({outcome.why})",
                *(f"{rows:>12,}  {name}" for name, rows in sorted(tables.items())),
            ],
            facts=_facts(outcome),
        )
    )


def asked_for(master: str, conf: Mapping[str, str]) -> str:
    """Return why Spark is started in any case; empty if no option asks for it."""
    given = [name for name, value in (("--master", master), ("--conf", conf)) if value]
    return f"{' and '.join(given)} {'was' if len(given) == 1 else 'were'} given" if given else ""


@contextmanager
def start_spark(
    session: Session, lake: Lake, master: str, conf: Mapping[str, str], why: str
) -> Iterator[tuple[Engine, OnStep]]:
    from everlog.cli.pipeline.progress import spark_progress
    from everlog.pipeline.engines.spark import SparkEngine

    if session.out.progress_wanted:
        session.out.note(f"Spark is needed: {why}")
    with (
        spark_beside(session, lake, master, conf, app="everlog pipeline run") as spark,
        spark_progress(session.out, spark, "pipeline run") as on_step,
    ):
        yield SparkEngine(spark), on_step


def _lake_for(place: Path, log_id: str, rebuild: tuple[str, ...], master: str) -> Lake:
    """Return the lake in this folder. Wrong options are reported before it is made, and before Spark starts."""
    from everlog.errors import NotFound
    from everlog.pipeline.lake.lake import Lake
    from everlog.pipeline.run import require_tables
    from everlog.pipeline.session.session import require_master

    if master:
        require_master(master)
    try:
        found = Lake.open(place, log_id=log_id)
    except NotFound:
        require_tables(Lake(place, log_id), rebuild)
        return Lake.open(place, log_id=log_id, create=True)
    require_tables(found, rebuild)
    return found


def _facts(outcome: RunOutcome) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(outcome)
    del found["left"]  # nothing: Spark has done the rest
    for done in found["views"] or ():
        del done["problem"], done["violating"]  # nothing: else the run has failed
    return found


def _lines(outcome: RunOutcome) -> list[str]:
    lines = [f"{counted(outcome.events, 'new event')}, the lake is at {outcome.cursor.partition('@')[0]}"]
    if not outcome.changed:
        lines = [f"nothing new, the lake is at {outcome.cursor.partition('@')[0]}"]
    if outcome.restored:
        lines.append("the log is another copy than before: every table was rebuilt")
    if outcome.types_rebuilt:
        lines.append(f"read differently than before, and rebuilt: {', '.join(outcome.types_rebuilt)}")
    if outcome.set_aside:
        lines.append(
            f"{counted(outcome.set_aside, 'event')} could not be typed: see the table quarantine for the reasons"
        )
    for done in outcome.views or ():
        if done.stopped_at:
            view = done.table.partition("/")[2]
            lines.append(f"the view {view} is stopped at #{done.stopped_at}: see the table letters/{view}")
        elif done.letters:
            lines.append(f"{counted(done.letters, 'event')} could not be applied to {done.table}: see letters/…")
    if outcome.scanned_files:
        lines.append(
            f"{counted(outcome.purged, 'purged event')} were removed from the lake;"
            f" {counted(outcome.removed_files, 'old file was', 'old files were')} removed, and"
            f" nothing of them is left in {counted(outcome.scanned_files, 'file')} ({outcome.scanned_bytes:,} bytes)"
        )
    return lines


@click.command("compact")
@click.option(
    "--kept-hours", type=click.IntRange(0), default=24, show_default=True, help="How long old versions are kept."
)
@lake_option
@spark_options
@common_options
@pass_session
def compact_command(session: Session, kept_hours: int, lake: str | None, master: str, conf: dict[str, str]) -> None:
    """Merge small files, and remove files that only old versions use. No row changes.

    A run does the same automatically when there are many small files. Files of old versions are kept for a day, for
    readers that started with them; --kept-hours 0 removes them at once.

    Columns when piped: table, files before, files after, files removed.

    \b
    Examples:
      everlog pipeline compact
      everlog pipeline compact --kept-hours 0
    """
    from everlog.cli.pipeline.progress import spark_progress
    from everlog.pipeline.session.session import require_libraries

    require_libraries()
    from everlog.application.lake import open_lake, with_settings
    from everlog.pipeline.lake.compact import compact

    log = session.log()
    found = with_settings(open_lake(session.location, lake, log_id=log.identity.log_id), session.location)
    with (
        found.writing(),
        spark_beside(session, found, master, conf, app="everlog pipeline compact") as spark,
        spark_progress(session.out, spark, "pipeline compact"),
    ):
        done = compact(spark, found, epoch=log.identity.epoch, kept_hours=kept_hours)
    rows = [tuple(one) for one in done]
    session.out.answer(
        Answer(
            data=[one._asdict() for one in done],
            ids=[one.table for one in done if one.before != one.after or one.removed],
            columns=("table", "files before", "files after", "files removed"),
            rows=rows,
            facts={"tables": len(done), "removed": sum(one.removed for one in done)},
        )
    )
