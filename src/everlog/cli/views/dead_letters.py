"""`everlog views dead-letters`, `retry` and `skip`: the events that a view could not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, actor_option, common_options, pass_session

if TYPE_CHECKING:
    from everlog.log.derived import ViewOfLog
    from everlog.views.dead_letters import ViewLetter


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
    _answer_letters(session, _tried(session, session.log().view(view)))


def _tried(session: Session, handle: ViewOfLog) -> list[ViewLetter]:
    left = handle.retry()
    if not left:
        session.out.hint("no event is waiting")
    return left


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


def _answer_letters(session: Session, letters: list[ViewLetter]) -> None:
    import msgspec

    from everlog.log.dead_letters import explanation

    session.out.answer(
        Answer(
            data=[msgspec.to_builtins(letter) for letter in letters],
            ids=[str(letter.position) for letter in letters],
            columns=("position", "what", "type", "stream", "key", "reason"),
            rows=[
                (
                    letter.position,
                    letter.what,
                    letter.type,
                    letter.stream,
                    letter.key,
                    explanation(letter),
                )
                for letter in letters
            ],
            facts={"count": len(letters)},
        )
    )
