"""What every command of a domain shares here: on whose behalf it runs, and how it tells what it did."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from everlog.cli.output import Answer
from everlog.cli.session import Session, actor_option, common_options
from everlog.cli.times import MOMENT

if TYPE_CHECKING:
    from everlog.domains.deciding import By, Done

_Command = TypeVar("_Command", bound=Callable[..., Any])


def doing_options(command: _Command) -> _Command:
    """The options of a command that records something. They arrive as one argument `by`, made by `by_of`."""
    for option in reversed(
        (
            click.option("--key", metavar="KEY", default="", help="Makes a retry safe: it is done once."),
            click.option("--scope", metavar="PATH", default="", help="Where it belongs, such as acme/shop/prod."),
            click.option("--causation", metavar="ID", default="", help="The event that led to this."),
            click.option("--correlation", metavar="ID", default="", help="What belongs together has the same."),
            click.option("--request-id", metavar="ID", default="", help="The request that this came with."),
            click.option("--at", type=MOMENT, metavar="TIME", help="When it happened, if not now: 10m."),
            click.option("--dry-run", is_flag=True, help="Check everything, record nothing."),
            actor_option,
            common_options,
        )
    ):
        command = option(command)
    return command


def by_of(
    session: Session,
    *,
    key: str,
    scope: str,
    causation: str,
    correlation: str,
    request_id: str,
    at: datetime | None,
    dry_run: bool,
) -> By:
    from everlog.domains.deciding import By

    session.request_id = request_id
    loaded = session.settings().settings
    return By(
        actor=session.log().actor,
        scope=scope or loaded.scope,
        key=key,
        at=at,
        request_id=request_id,
        causation_id=causation,
        correlation_id=correlation,
        dry_run=dry_run,
    )


def by_of_request(session: Session, *, request_id: str, **given: Any) -> By:
    """The same for a program whose events always name their request: it gets an id if the caller has none."""
    from everlog.core.ids import new_id

    return by_of(session, request_id=request_id or new_id().lower(), **given)


def tell(session: Session, done: Done, line: str, **facts: Any) -> None:
    """Say what was done: a line for people, the facts and the events' ids for programs.

    A retry under the same key gets the same answer to the last byte; that it is a retry stands on stderr.
    """
    status = "dry_run" if done.dry_run else "recorded" if done.records else "unchanged"
    ends = {"dry_run": "  dry run: nothing was recorded", "unchanged": "  as it was"}
    events = [
        {"position": one.position, "id": one.event.id, "type": one.event.type, "stream": one.event.stream}
        for one in done.records
    ]
    session.out.answer(
        Answer(
            data={**facts, "status": status, "events": events},
            ids=[str(next(iter(facts.values())))] if facts else [one.event.id for one in done.records],
            columns=(*facts, "status"),
            rows=[(*facts.values(), status)],
            lines=[line + ends.get(status, "")],
            facts={**facts, "status": status},
        )
    )
    if done.replayed:
        session.out.hint("already done under this key; nothing new was recorded")
