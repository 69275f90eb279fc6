"""`everlog init`: create a folder with a log, and files that explain themselves."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.command("init")
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--store",
    metavar="URL",
    default="sqlite:log.db",
    help="Where the events are stored; a path is relative to .everlog/.",
)
@click.option("--new", is_flag=True, help="Create a new log where settings exist but their log is missing.")
@click.option(
    "--signed", is_flag=True, help="Make a key, and sign every event with it. The key is the origin of the log."
)
@click.option(
    "--program",
    "programs",
    metavar="NAME",
    multiple=True,
    help="Switch a program on: agent, community, control, issue, wp, a plugin or a module; may be repeated.",
)
@click.option("--agents", is_flag=True, help="Add to AGENTS.md how an agent uses this log.")
@common_options
@pass_session
def init_command(
    session: Session,
    directory: Path | None,
    store: str,
    new: bool,
    signed: bool,
    programs: tuple[str, ...],
    agents: bool,
) -> None:
    """Create a log in DIRECTORY, or in the current directory.

    It writes .everlog/ with settings, event types and the log. Running it twice does no harm. In a git repository,
    git is also set up to merge a jsonl: store (see everlog git install).

    \b
    Examples:
      everlog init
      everlog init services/shop --agents
      everlog init --program wp --program issue
      everlog init --store jsonl:.
    """
    from everlog.application.folder.create import create_log

    if session.server_given:
        raise click.UsageError("init creates a folder with a log in it, and --url names a log that a server has")
    if session.url:
        raise click.UsageError(
            "init creates a folder with a log in it, and --log names a log without one;"
            " give --store URL for where the events are stored, or use everlog.open(URL) in Python for a log alone"
        )
    at = (session.directory / (directory or Path())).resolve()
    created = create_log(
        at, store=store, new=new, signed=signed, programs=programs, agents_md=agents, warn=session.out.warn
    )
    if session.server:
        session.out.warn(
            f"EVERLOG_URL applies: commands work on {session.server}, not on the log in {created.folder}"
        )
    folder = str(created.folder)
    line = f"created a log in {folder}" if created.is_new else f"there is a log in {folder} already"
    facts = {"folder": folder, "log_id": created.log_id, "made": created.is_new}
    session.out.answer(
        Answer.of_row(
            created.log_id,
            facts,
            lines=[line, *(["git merges its events in this clone"] if created.merged_by_git else [])],
            row=(folder, created.log_id, "made" if created.is_new else "there"),
            data={**facts, "files": created.files},
        )
    )
    session.out.hint(
        'next: everlog append note.added -s note/1 text="hello"\n'
        "      everlog log\n"
        "      everlog schema add deploy.finished service:str 'result:ok | failed'"
    )
