"""`everlog git` and `everlog merge-driver`: a log of day files in a git repository."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.group("git")
@common_options
def git_command() -> None:
    """A JSONL log in git: install.

    Run it once in every clone; `everlog init` does it too.

    \b
    Example:
      everlog git install
    """


@git_command.command("install")
@common_options
@pass_session
def install_command(session: Session) -> None:
    """Have git merge this log with those of other clones.

    It writes .gitattributes and .gitignore next to the log, and registers the merge driver in the configuration of
    this clone, which git does not copy to others. Running it twice does no harm.

    \b
    Example:
      everlog git install
    """
    from everlog.application.move_log import install_in_git

    done = install_in_git(session.location)
    folder, changed = str(done.folder), list(done.changed)
    facts = {"folder": folder, "repository": str(done.repository), "changed": changed}
    what = f"changed: {', '.join(changed)}" if changed else "nothing to change"
    session.out.answer(
        Answer(
            data=facts,
            ids=changed,
            rows=[(name,) for name in changed],
            lines=[f"git merges the events of {folder} in this clone; {what}"],
            facts={**facts, "changed": len(changed)},
        )
    )


@click.command("merge-driver")
@click.argument("base", type=click.Path(path_type=Path))
@click.argument("ours", type=click.Path(path_type=Path))
@click.argument("theirs", type=click.Path(path_type=Path))
@click.argument("path", metavar="PATH")
@common_options
@pass_session
def merge_driver_command(session: Session, base: Path, ours: Path, theirs: Path, path: str) -> None:
    """Merge two states of a day file. Git calls this command.

    The file OURS gets the lines of both, in an order that is the same in every clone; PATH is its name in messages,
    and BASE is not used. If a line cannot be read, or two events have the same id, nothing is changed, and the exit
    code reports a conflict to git.

    \b
    Example:
      everlog merge-driver base.jsonl ours.jsonl theirs.jsonl events/2026-11-15.jsonl
    """
    from everlog.application.move_log import merge_day_file

    merge_day_file(ours=ours, theirs=theirs, name=path)
    # No output: git prints its own line, and a rebase would repeat ours for every commit.
    session.out.answer(Answer(data={"path": path}, ids=[], rows=[], lines=[], facts={"path": path}))
