"""`everlog views dead-letters`, `retry` and `skip`: the events that a view could not apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, actor_option, common_options, pass_session


@click.command("dead-letters")
@click.argument("view")
@common_options
@pass_session
def dead_letters(session: Session, view: str) -> None:
    """Show the events that a view could not apply, why, and the events that wait for them.

    Columns when piped: position, what, type, stream, key, reason.

    \b
    Example:
      everlog views dead-letters streams
    """
    found = session.log().view(view).dead_letters()
    _answer_letters(session, found)
    if not found:
        session.out.hint("there are no dead letters")


@click.command("retry")
@click.argument("view")
@common_options
@pass_session
def retry_letters(session: Session, view: str) -> None:
    """Retry all waiting events with the current upcasters, and show those that still fail.

    Columns when piped: position, what, type, stream, key, reason.

    \b
    Example:
      everlog views retry streams
    """
    left = session.log().view(view).retry()
    if not left:
        session.out.hint("no event is waiting")
    _answer_letters(session, left)


@click.command("skip")
@click.argument("view")
@click.argument("position", type=int)
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is recorded.")
@actor_option
@common_options
@pass_session
def skip_letter(session: Session, view: str, position: int, reason: str) -> None:
    """Have a view skip an event that it cannot apply, and continue after it.

    Columns when piped: position, what, type, stream, key, reason.

    \b
    Example:
      everlog views skip streams 17 --reason "a test event"
    """
    _answer_letters(session, session.log().view(view).skip(position, reason=reason))


def _answer_letters(session: Session, letters: Sequence[Any]) -> None:
    from everlog.log.dead_letters import explanation

    columns = ("position", "what", "type", "stream", "key", "reason")
    session.out.answer(Answer.of_many(letters, columns, cells={"reason": explanation}))
