"""`everlog conflicts`: concurrent changes of one stream, which of them wins, and decisions that it is the other."""

from __future__ import annotations

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, actor_option, common_options, pass_session

_COLUMNS = ("conflict", "stream", "winner", "loser", "detected", "resolved")


@click.group("conflicts", invoke_without_command=True)
@common_options
@click.pass_context
def conflicts_command(context: click.Context) -> None:
    """Concurrent changes of one stream: list, detect, resolve.

    Two nodes changed a stream, and neither knew of the other's change. The change with the greater clock value wins.
    Without a command it lists them.

    \b
    Examples:
      everlog conflicts
      everlog conflicts list --open
    """
    if context.invoked_subcommand is None:
        _list(context.ensure_object(Session), False)


@conflicts_command.command("list")
@click.option("--open", "only_open", is_flag=True, help="Only conflicts that nobody has resolved.")
@common_options
@pass_session
def list_conflicts(session: Session, only_open: bool) -> None:
    """List the conflicts. The list is the same on every node that has the same events.

    Columns when piped: conflict, stream, winner, loser, detected, resolved.

    \b
    Example:
      everlog conflicts list --open
    """
    _list(session, only_open)


def _list(session: Session, only_open: bool) -> None:
    from everlog.application.conflicts import conflicts

    found = [one for one in conflicts(session.log()) if not (only_open and one.resolved)]
    session.out.answer(Answer.of_many(found, _COLUMNS))
    if not found:
        session.out.hint("there are no conflicts")


@conflicts_command.command("detect")
@common_options
@pass_session
def detect_conflicts(session: Session) -> None:
    """Record the conflicts that changes of this log lost, each once, as conflict.detected.

    Columns when piped: position, id, stream.

    \b
    Example:
      everlog conflicts detect
    """
    from everlog.application.conflicts import record_detected

    found = [
        {"position": one.position, "id": one.event.id, "stream": one.event.stream}
        for one in record_detected(session.log())
    ]
    session.out.answer(Answer.of_many(found, ("position", "id", "stream"), named="id"))
    if not found:
        session.out.hint("nothing was recorded: no change of this log lost since the last time")


@conflicts_command.command("resolve")
@click.argument("conflict")
@click.option("--winner", metavar="EVENT", default="", help="The change that counts (default: the one that loses).")
@click.option("--reason", metavar="TEXT", default="", help="Why; it is recorded.")
@actor_option
@common_options
@pass_session
def resolve_conflict(session: Session, conflict: str, winner: str, reason: str) -> None:
    """Decide which of two concurrent changes counts, and record it as conflict.resolved.

    \b
    Example:
      everlog conflicts resolve 01KA0000000000000000000000-01KA0000000000000000000001 --reason "Ada asked first"
    """
    from everlog.application.conflicts import resolve

    log = session.log()
    head = log.head()
    done = resolve(log, conflict, winner=winner, reason=reason)
    facts = {"position": done.position, "id": done.event.id, **done.event.payload}
    session.out.answer(Answer.of_one(done.event.id, facts))
    if done.position <= head:
        session.out.hint("decided before; nothing new was recorded. --winner EVENT decides otherwise")
