"""What a shell completes after the commands and options that click knows: names of this log.

A value is recognised by the word that its help has for it, so a new command completes streams by calling them STREAM.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from everlog.cli.session import Session

KINDS = {"ISSUE": "issue", "DEPLOY": "deploy", "COMMAND": "command"}
WP = "workpackage"
_VALUES = {
    "TYPE": ("types",),
    "KIND/ID": ("streams",),
    "STREAM": ("streams",),
    "STREAM|VIEW": ("streams", "views"),
    "VIEW": ("views",),
    "ID|#POSITION": ("ids",),
    "ID|#POSITION|PART": ("ids",),
}


def complete_names() -> None:
    """Have click ask for the names of this log where an argument or option is any text."""
    setattr(click.types.StringParamType, "shell_complete", _complete)  # noqa: B010


def _complete(_: Any, context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from everlog.application.folder.completion import completions

    word = re.sub(r"[\[\]. ]", "", parameter.make_metavar(context))
    group = context.command_path.split()[1]
    if group == "help":
        return [CompletionItem(name) for name in _helped(context) if name.startswith(incomplete)]
    kind = WP if (group, word) == ("wp", "ID") else KINDS.get(word, "")
    words = ("settings",) if (group, word) == ("config", "KEY") else _VALUES.get(word, ())
    session = context.ensure_object(Session)
    here = Path.cwd() / session.work_in
    if kind:
        return [
            CompletionItem(name) for name in completions(here, session.url, lambda n: n.streams(incomplete, kind))
        ]
    found = completions(here, session.url, lambda n: [one for what in words for one in getattr(n, what)(incomplete)])
    return [CompletionItem(name) for name in found]


def _helped(context: click.Context) -> list[str]:
    from everlog.cli.help import TOPICS

    root = context.find_root()
    return [*TOPICS, *(root.command.list_commands(root) if isinstance(root.command, click.Group) else [])]
