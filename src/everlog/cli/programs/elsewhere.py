"""A word after `everlog` that is no command of it: a program that is not on here, or `everlog-WORD` on the path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from typing import NoReturn

import click

from everlog.cli.session import Session
from everlog.errors import InvalidSettings


def command_elsewhere(
    session: Session, ctx: click.Context, commands: Collection[str], args: list[str]
) -> click.Command:
    """Return a command that runs `everlog-WORD`; else raise an error that says what the word could be."""
    word = args[0]
    from everlog.programs.plugins import distribution, plugins

    setting = session.location.programs_setting()
    if (error := session.location.unusable_programs().get(word)) is not None:
        raise error
    if word.isidentifier() or all(part.isidentifier() for part in word.split("-")):
        if found := shutil.which(f"everlog-{word}"):
            return click.Command(
                word,
                callback=lambda: _run(session, found, args[1:]),
                add_help_option=False,
                context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
            )
        if (point := plugins().get(word)) is not None:
            raise InvalidSettings(
                f"the program {word!r} is not on here",
                why=f"{distribution(point)} has it, and the setting programs does not name it",
                hint=f"everlog config set programs {','.join(filter(None, (setting, word)))}",
            )
    raise click.exceptions.NoSuchCommand(word, possibilities=commands, ctx=ctx)


def _run(session: Session, path: str, args: list[str]) -> NoReturn:
    """Become the program, as git does it: with the same environment, in the directory that -C names."""
    if session.url or session.server_given or session.actor or session.json or session.agent or session.quiet:
        raise click.UsageError(f"{path} has its own options: write them after its name")
    os.chdir(session.directory)
    os.execv(path, [path, *args])
