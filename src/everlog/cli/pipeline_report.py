"""`everlog pipeline report`: the lake as one page for people."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.lake_place import lake_option, lake_path
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session


@click.command("report")
@click.argument("file", metavar="[FILE]", default="report.html")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@lake_option
@common_options
@pass_session
def report_command(session: Session, file: str, force: bool, lake: Path | None) -> None:
    """Write a page with plots from the lake to FILE (report.html): work, conflicts, deploys, refusals, activity.

    It reads what the last pipeline run left, needs no Spark, and the page needs no network.

    \b
    Example:
      everlog pipeline run && everlog pipeline report monday.html
    """
    from everlog.errors import Conflict
    from everlog.files import DiskFiles, replace_file
    from everlog.pipeline.session import require_libraries

    require_libraries()
    from everlog.pipeline.lake import Lake
    from everlog.pipeline.report import report

    files, path = DiskFiles(), session.place / file
    if files.exists(path) and not force:
        raise Conflict(
            f"{path} is there already", hint="name another file, or replace it with --force", path=str(path)
        )
    page = report(Lake.open(lake_path(session, lake)))
    replace_file(files, path, page.encode())
    facts = {"file": file, "bytes": len(page.encode())}
    session.out.answer(
        Answer(
            data=facts,
            ids=[file],
            rows=list(facts.items()),
            lines=[f"wrote {safe(file)}: open it in a browser"],
            facts=facts,
        )
    )
