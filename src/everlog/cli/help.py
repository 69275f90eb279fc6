"""`everlog help`: the topics that belong to no single command."""

from __future__ import annotations

import textwrap

import click

from everlog.cli.print_error import Usage
from everlog.cli.session import Session, common_options, pass_session
from everlog.errors import EXIT_CODES, codes_of

TOPICS = {
    "agents": "",
    "exit-codes": "",
    "operations": "",
    "output": """\
Stdout contains only the answer. Hints, warnings, progress and errors go to stderr.

  a terminal   a table or a few lines; a row that is too wide continues on the
               next line, indented. NO_COLOR, TERM=dumb and --no-color turn
               colour off, COLUMNS sets the width. More than a screen goes to
               PAGER, or less; PAGER=cat turns that off
  a pipe       one row per line, fields separated by tabs, no header;
               COMMAND --help names the columns
  --json       {"schema_version": 1, "data": ..., "next": ..., "warnings": []}
               streams (tail, log --follow, log --to-end) print one object per
               line; --json=FIELD,FIELD gives these fields only
  --agent      OK key=value ... then ITEM key=value ... for each item;
               ERR code=... message=... on stderr
  --quiet      ids only

Errors have three lines: what happened, why, and what to type next. With --json
they are one object on stderr: {"schema_version": 1, "error": {"code",
"message", "why", "hint", "details", "retryable", "request_id"}}

A tab, a line break or any character that could control a terminal is written
as an escape, such as \\t or \\x1b. Times are UTC.""",
    "cursors": """\
A position is an event's number in the order of the log: 1, 2, 3 ... A cursor is
how far a reader has read. A plain position is a cursor; so is the next cursor
of a page, which also names the copy of the log that it is for.

  everlog log --after 0 -n 100 --json           the first page; .next.cursor is
                                                the next cursor
  everlog log --after CURSOR -n 100 --json      the page after it
  everlog log --after CURSOR --wait 60 --json   the same, once there is one
  everlog log --after CURSOR --to-end           everything up to the head
  everlog tail --after CURSOR                   everything, and all that follows

This also works with a filter: a page states how far it has read, even if
nothing matched. If events before a cursor were purged, or the log was replaced
by another copy, the page has reset_required and the cursor to continue with:
discard what you derived from earlier events, and read the state again.""",
    "types": """\
A log accepts only the event types that it knows: everlog's own, those in
.everlog/types.toml, and those of a Python catalog (the setting catalog).

  everlog schema list
  everlog schema add deploy.finished service:str 'result:ok | failed'
  everlog append deploy.finished -s deploy/17 service=shop result=ok

A field is str, int, float, bool, object, list, list[str] or any, or a choice
such as planned | doing. With ? it may be null, with = it has a default. In
types.toml a type can also restrict the transitions of a stream:

  [types."workpackage.moved"]
  fields = { went_to = "planned | doing | done" }
  [types."workpackage.moved".transitions]
  kind = "workpackage"
  field = "went_to"
  initial = "planned"
  allowed = { planned = ["doing"], doing = ["done"] }

`everlog schema lock` records what the types promise; `everlog schema check`
reports a change that breaks it.""",
}


@click.command("help")
@click.argument("words", metavar="[TOPIC | COMMAND ...]", nargs=-1)
@click.option("--all", "whole", is_flag=True, help="List every command, with all options.")
@common_options
@pass_session
@click.pass_context
def help_command(context: click.Context, session: Session, words: tuple[str, ...], whole: bool) -> None:
    """Explain a command or a topic.

    The topics are agents, exit-codes, output, cursors, types and operations.

    \b
    Examples:
      everlog help --all
      everlog help exit-codes
      everlog help schema add
    """
    out = session.out
    if whole and words:
        raise click.UsageError("--all lists every command: leave the topic out")
    match words:
        case () if whole:
            from everlog.cli.main import cli

            out.page(cli.whole_help(context.find_root()).split("\n"))
        case ():
            topics = "Topics (everlog help TOPIC): " + ", ".join(TOPICS)
            out.page([*context.find_root().get_help().split("\n"), "", topics])
        case ("agents",):
            from everlog.application.folder.create import agents_text

            out.page(agents_text().split("\n"))
        case ("exit-codes",):
            out.page(_exit_lines())
        case ("operations",):
            _show_operations(session)
        case (topic,) if topic in TOPICS:
            out.page(TOPICS[topic].split("\n"))
        case _:
            out.page(_command_help(context, words).split("\n"))


def _show_operations(session: Session) -> None:
    """Print the operations of the log, then those of every program; the user's programs are last."""
    from everlog.application.operations.registry import operations
    from everlog.cli.output import Answer

    found = [
        {"name": one.name, "records": one.records, "description": one.summary, "schema": one.schema}
        for one in operations(session.location.own_programs())
    ]
    session.out.answer(Answer.of_many(found, ("name", "records", "description")))


def _command_help(context: click.Context, words: tuple[str, ...]) -> str:
    place = context.find_root()
    for word in words:
        group = place.command
        command = group.get_command(place, word) if isinstance(group, click.Group) else None
        if command is None:
            known = group.list_commands(place) if isinstance(group, click.Group) else []
            raise click.exceptions.NoSuchCommand(
                word,
                message=f"There is no help on {' '.join(words)!r}",
                possibilities=[*known, *TOPICS],
                ctx=context,
            )
        place = click.Context(command, info_name=word, parent=place)
    return place.get_help()


def _exit_lines() -> list[str]:
    lines = []
    for number, meaning in EXIT_CODES.items():
        lines.append(f"{number:>4}  {meaning}")
        codes = [*(["usage"] if number == Usage.exit_code else []), *codes_of(number)]
        lines += textwrap.wrap(", ".join(codes), 80, initial_indent=" " * 6, subsequent_indent=" " * 6)
    return lines
