"""`everlog pipeline run` and `compact`: the lake brought up to the log, and kept tidy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.lake_place import lake_of, lake_option, lake_path, spark_beside
from everlog.cli.output import Answer
from everlog.cli.pipeline import log_url, spark_options
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.counted import counted

if TYPE_CHECKING:
    from everlog.pipeline.lake import Lake
    from everlog.pipeline.run import Outcome


@click.command("run")
@click.option("--rebuild", metavar="TABLE", multiple=True, help="Make this table anew, or all; may be repeated.")
@lake_option
@spark_options
@common_options
@pass_session
def run_command(
    session: Session, rebuild: tuple[str, ...], lake: Path | None, master: str, conf: dict[str, str]
) -> None:
    """Bring the lake up to the log: new events, typed tables, views.

    What is there already is not read again; a run with nothing new changes nothing, and one that was killed is
    finished by the next. After a purge, what was purged leaves every table and the disk. Of few events the same
    tables are made without starting Spark, as far as that goes; --master or --conf starts it all the same.

    \b
    Examples:
      everlog pipeline run
      everlog pipeline run --lake /data/lake --master spark://127.0.0.1:7077
      everlog pipeline run --rebuild silver/note.added
    """
    from everlog.cli.spark_progress import spark_progress
    from everlog.pipeline.session import require_libraries

    require_libraries()
    from everlog.pipeline.answers import answers_of
    from everlog.pipeline.gold import gold_of
    from everlog.pipeline.run import run
    from everlog.pipeline.small_run import joined, run_small

    log = session.log()
    place = lake_path(session, lake)
    found = _lake_for(place, log.identity.log_id, rebuild, master)
    session.when_stopped = "stopped; every table is whole, and the same command goes on where it was"
    views, more, url = log.views.known(), answers_of(log), log_url(session)
    gold = gold_of(found, views, log.catalog, more=more)
    # Who says where Spark runs, or how, wants it to run.
    begun = None if master or conf else run_small(log, url, found, gold=gold, rebuild=rebuild)
    if begun is not None and begun.whole:
        outcome = begun.outcome
    else:
        with (
            spark_beside(session, found, master, conf, app="everlog pipeline run") as spark,
            spark_progress(session.out, spark, "pipeline run") as told,
        ):
            gold = gold_of(found, views, log.catalog, more=more, told=told)
            outcome = run(spark, log, url, found, gold=gold, rebuild=() if begun else rebuild, told=told)
        outcome = outcome if begun is None else joined(begun.outcome, outcome)
    tables = {table.name: table.rows() for table in found.tables()}
    session.out.answer(
        Answer(
            data={**_facts(outcome), "lake": str(place), "tables": tables},
            ids=sorted(tables),
            columns=("table", "rows"),
            rows=sorted(tables.items()),
            lines=[*_lines(outcome), *(f"{rows:>12,}  {name}" for name, rows in sorted(tables.items()))],
            facts=_facts(outcome),
        )
    )


def _lake_for(place: Path, log_id: str, rebuild: tuple[str, ...], master: str) -> Lake:
    """The lake in this folder. What is wrong with the options is told before it is made, and before Spark starts."""
    from everlog.errors import NotFound
    from everlog.pipeline.lake import Lake
    from everlog.pipeline.run import require_tables
    from everlog.pipeline.session import require_master

    if master:
        require_master(master)
    try:
        found = Lake.open(place, log_id=log_id)
    except NotFound:
        require_tables(Lake(place, log_id), rebuild)
        return Lake.open(place, log_id=log_id, create=True)
    require_tables(found, rebuild)
    return found


def _facts(outcome: Outcome) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(outcome)
    return found


def _lines(outcome: Outcome) -> list[str]:
    lines = [f"{counted(outcome.events, 'new event')}, the lake is at {outcome.cursor.partition('@')[0]}"]
    if not outcome.changed:
        lines = [f"nothing new, the lake is at {outcome.cursor.partition('@')[0]}"]
    if outcome.restored:
        lines.append("the log is another copy than before: every table was made anew")
    if outcome.types_rebuilt:
        lines.append(f"read in another way than before, and typed anew: {', '.join(outcome.types_rebuilt)}")
    if outcome.set_aside:
        lines.append(
            f"{counted(outcome.set_aside, 'event')} could not be typed: see the table quarantine for the reasons"
        )
    for done in outcome.views or ():
        if done.stopped_at:
            view = done.table.partition("/")[2]
            lines.append(f"the view {view} is stopped at #{done.stopped_at}: see the table letters/{view}")
        elif done.letters:
            lines.append(f"{counted(done.letters, 'event')} could not be taken into {done.table}: see letters/…")
    if outcome.scanned_files:
        lines.append(
            f"{counted(outcome.purged, 'purged event')} left the lake;"
            f" {counted(outcome.removed_files, 'old file was', 'old files were')} removed, and"
            f" nothing of them is in {counted(outcome.scanned_files, 'file')} ({outcome.scanned_bytes:,} bytes)"
        )
    return lines


@click.command("compact")
@click.option(
    "--kept-hours", type=click.IntRange(0), default=24, show_default=True, help="How long old versions stay."
)
@lake_option
@spark_options
@common_options
@pass_session
def compact_command(session: Session, kept_hours: int, lake: Path | None, master: str, conf: dict[str, str]) -> None:
    """Unite small files, and remove those that only old versions name. No row changes.

    A run does the same by itself when there are many. Files of old versions are kept for a day, for readers that
    began with them; --kept-hours 0 removes them at once.

    Columns when piped: table, files before, files after, files removed.

    \b
    Examples:
      everlog pipeline compact
      everlog pipeline compact --kept-hours 0
    """
    from everlog.cli.spark_progress import spark_progress
    from everlog.pipeline.session import require_libraries

    require_libraries()
    from everlog.pipeline.compacting import compact

    log = session.log()
    found = lake_of(session, lake, log_id=log.identity.log_id)
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
