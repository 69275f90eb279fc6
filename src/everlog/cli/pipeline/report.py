"""`everlog pipeline report`: the lake as one HTML page."""

from __future__ import annotations

import click

from everlog.cli.output import Answer, safe
from everlog.cli.pipeline.lake import lake_option
from everlog.cli.session import Session, common_options, pass_session


@click.command("report")
@click.argument("file", metavar="[FILE]", default="report.html")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@lake_option
@common_options
@pass_session
def report_command(session: Session, file: str, force: bool, lake: str | None) -> None:
    """Write a page with plots from the lake to FILE (report.html): of every table in SQL that has a chart line.

    It reads the result of the last pipeline run and needs no Spark; the page needs no network, and has each plot's
    rows and SQL. A lake that belongs to another log is refused.

    \b
    Example:
      everlog pipeline run && everlog pipeline report monday.html
    """
    from everlog.application.lake import defined_tables, open_lake, write_page
    from everlog.application.move_log import output_file
    from everlog.pipeline.session.session import require_libraries

    require_libraries()
    path = output_file(session.directory / file, replace=force)
    log_id = session.log_id(optional=lake is not None)  # a lake may have been copied elsewhere, without its log
    definitions = defined_tables(session.location) if log_id else None
    size = write_page(open_lake(session.location, lake, log_id=log_id), path, definitions)
    facts = {"file": file, "bytes": size}
    lines = [f"wrote {safe(file)}: open it in a browser"]
    session.out.answer(Answer.of_one(file, facts, lines=lines))
