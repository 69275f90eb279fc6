"""`everlog consumers`: inspect and repair the groups that share the events of this log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, actor_option, common_options, missing_ok_option, pass_session

if TYPE_CHECKING:
    from everlog.application.consumer_groups import MemberLag
    from everlog.log.dead_letters import GroupLetter


@click.group("consumers")
@common_options
def consumers_command() -> None:
    """Groups of consumers: list, lag, dead-letters, retry, skip, reset.

    \b
    Example:
      everlog consumers lag mailer
    """


@consumers_command.command("list")
@common_options
@pass_session
def list_groups(session: Session) -> None:
    """Show every group with its members and its lag.

    Columns when piped: group, members, partitions, key, behind, dead_letters. `behind` counts positions.

    \b
    Example:
      everlog consumers list
    """
    from everlog.application.consumer_groups import group_overviews

    found = group_overviews(session.log())
    session.out.answer(Answer.of_many(found))
    if not found:
        session.out.hint("there are no groups of consumers; a group exists once a member has joined it")


@consumers_command.command("lag")
@click.argument("name", metavar="GROUP")
@missing_ok_option
@common_options
@pass_session
def show_lag(session: Session, name: str) -> None:
    """Show the lag of each member of a group.

    Columns when piped: member, partitions, events, positions, cursor, dead_letters, lease_until. `events` counts what
    waits to be handled (empty if the key is a function in the consumers' code), `positions` counts the positions from
    the oldest cursor to the head. A row without a member is about partitions that no member has.

    \b
    Example:
      everlog consumers lag mailer
    """
    import msgspec

    from everlog.application.consumer_groups import member_lags
    from everlog.cli.events.records import moment

    lags = member_lags(session.log(), name)

    def lease_until(lag: MemberLag) -> str:
        return moment(lag.lease_until) if lag.lease_until else ""

    known = [lag.events for lag in lags if lag.events is not None]
    facts: dict[str, Any] = {"group": name, "members": sum(1 for lag in lags if lag.member)}
    facts["events"] = sum(known) if len(known) == len(lags) else None
    session.out.answer(
        Answer.of_many(
            lags,
            cells={"partitions": lambda lag: len(lag.partitions), "lease_until": lease_until},
            ids=[lag.member for lag in lags if lag.member],
            facts=facts,
            data=[{**msgspec.to_builtins(lag), "lease_until": lease_until(lag)} for lag in lags],
        )
    )


@consumers_command.command("dead-letters")
@click.argument("name", metavar="GROUP")
@click.option("--decided", is_flag=True, help="Also show those that were retried or skipped in the last 90 days.")
@missing_ok_option
@common_options
@pass_session
def show_letters(session: Session, name: str, decided: bool) -> None:
    """Show the events that a group could not process, and why.

    Columns when piped: position, what, key, type, stream, attempts, reason.

    \b
    Example:
      everlog consumers dead-letters mailer
    """
    from everlog.application.consumer_groups import dead_letters
    from everlog.log.dead_letters import explanation

    found = dead_letters(session.log(), name, decided=decided)
    columns = ("position", "what", "key", "type", "stream", "attempts", "reason")
    facts = {"group": name, "count": len(found)}
    session.out.answer(Answer.of_many(found, columns, cells={"reason": explanation}, facts=facts))
    if not found:
        session.out.hint("there are no dead letters")


@consumers_command.command("retry")
@click.argument("name", metavar="GROUP")
@click.argument("position", type=click.IntRange(min=1))
@click.option("--reason", metavar="TEXT", default="", help="What has changed since; it is recorded.")
@actor_option
@common_options
@pass_session
def retry_letter(session: Session, name: str, position: int, reason: str) -> None:
    """Retry a dead letter. The events that wait for it follow in order, once it succeeds.

    \b
    Example:
      everlog consumers retry mailer 17 --reason "the mail server is back"
    """
    from everlog.application import consumer_groups

    letter = consumer_groups.retry_letter(session.log(), name, position, reason=reason)
    _answer_letter(session, letter, f"#{position} is retried by the member that has partition {letter.partition}")


@consumers_command.command("skip")
@click.argument("name", metavar="GROUP")
@click.argument("position", type=click.IntRange(min=1))
@click.option("--reason", metavar="TEXT", required=True, help="Why; it is recorded.")
@actor_option
@common_options
@pass_session
def skip_letter(session: Session, name: str, position: int, reason: str) -> None:
    """Skip an event permanently. The events that wait for it follow in order.

    \b
    Example:
      everlog consumers skip mailer 17 --reason "the address never existed"
    """
    from everlog.application import consumer_groups

    letter = consumer_groups.skip_letter(session.log(), name, position, reason=reason)
    _answer_letter(session, letter, f"{safe(name)} skips #{position}")


@consumers_command.command("reset")
@click.argument("name", metavar="GROUP")
@click.option(
    "--to",
    "to",
    metavar="WHERE",
    default="start",
    help="start, head, or a position to continue after (default: start).",
)
@click.option("--forget", is_flag=True, help="Remove the group itself, with its cursors and dead letters.")
@click.option("--confirm", metavar="TEXT", help="The exact words: reset GROUP.")
@common_options
@pass_session
def reset_group(session: Session, name: str, to: str, forget: bool, confirm: str | None) -> None:
    """Move a group to another position. Events before it are not processed, events after it are processed again.

    \b
    Examples:
      everlog consumers reset mailer --to 1200 --confirm "reset mailer"
      everlog consumers reset mailer --forget --confirm "reset mailer"
    """
    from everlog.application import consumer_groups

    consumer_groups.reset_group(session.log(), name, to=to, forget=forget, confirm=confirm)
    if forget:
        line = f"{safe(name)} is removed; the first member that joins creates it again"
    else:
        line = f"{safe(name)} continues from {safe(to)}"
    facts = {"group": name, "to": "" if forget else to, "forgotten": forget}
    session.out.answer(Answer.of_one(name, facts, lines=[line]))


def _answer_letter(session: Session, letter: GroupLetter, line: str) -> None:
    import msgspec

    data = msgspec.to_builtins(letter)
    facts = {"group": letter.group, "position": letter.position, "what": letter.what, "key": letter.key}
    session.out.answer(Answer.of_one(str(letter.position), facts, lines=[line], data=data))
