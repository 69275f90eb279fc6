"""`everlog program`: begin a program of your own, and list those that can be used here."""

from __future__ import annotations

from pathlib import Path

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, common_options, pass_session


@click.group("program")
@common_options
def program_command() -> None:
    """Programs on the log: begin one of your own, list those that can be used.

    \b
    Example:
      everlog program new shed
    """


@program_command.command("new")
@click.argument("name")
@click.argument("directory", required=False, type=click.Path(path_type=Path, file_okay=False))
@common_options
@pass_session
def new_program(session: Session, name: str, directory: Path | None) -> None:
    """Write a program to begin with: a module, its tests, and a pyproject.toml that makes it a plugin.

    The files are in DIRECTORY, or in a new one with the name of the program.

    \b
    Example:
      everlog program new shed
    """
    from everlog.application.new_program import write_program

    made = write_program(name, session.directory / (directory or name))
    facts = {"name": made.name, "folder": str(made.folder), "files": list(made.files)}
    session.out.answer(
        Answer.of_row(made.name, facts, lines=[f"wrote {', '.join(made.files)} in {made.folder}"], row=[made.name])
    )
    session.out.hint(
        f"next: cd {directory or name}; python -m pytest; pip install -e .; everlog config set programs {name}"
    )


@program_command.command("list")
@common_options
@pass_session
def list_programs(session: Session) -> None:
    """List the programs that can be used here, and which of them are on.

    Columns when piped: name, on, origin.

    \b
    Example:
      everlog program list
    """
    from everlog.application.programs_here import programs_here

    cells = {"on": lambda one: "on" if one.on else "off"}
    session.out.answer(Answer.of_many(programs_here(session.location), cells=cells, named="name"))
