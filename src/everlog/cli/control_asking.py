"""What `everlog control` answers: what there is, what should run, who did what, and what comes next."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.control_deploy import fence, fence_option
from everlog.cli.output import Answer, json_text, pairs
from everlog.cli.session import Session, common_options, pass_session, past_damage_option
from everlog.cli.times import AS_OF, MOMENT

if TYPE_CHECKING:
    from everlog.core.query import Reset
    from everlog.views.as_of import Moment


@click.command("list")
@click.argument("place", required=False, default="")
@fence_option
@past_damage_option
@common_options
@pass_session
def list_places(session: Session, place: str, scope: str) -> None:
    """Show orgs, apps and environments: all, or those below a place.

    Columns when piped: place, kind, status, title, created_at.

    \b
    Example:
      everlog control list acme
    """
    from everlog.domains.controlplane import asking

    found = asking.listed(session.log(), place, within=fence(session, scope))
    columns = ("place", "kind", "status", "title", "created_at")
    session.out.answer(Answer.of_many(found, columns))
    if not found:
        told = (
            f"there is no {place}: everlog control list"
            if place
            else "there is nothing: everlog control org create NAME"
        )
        session.out.hint(told)


@click.command("desired")
@click.argument("where", metavar="ENVIRONMENT")
@click.option("--as-of", type=AS_OF, metavar="MOMENT", help="As it was: a time, 10m, or #1234.")
@fence_option
@past_damage_option
@common_options
@pass_session
def desired(session: Session, where: str, as_of: Moment | None, scope: str) -> None:
    """Show what should run in an environment, now or as of a moment.

    \b
    Examples:
      everlog control desired acme/shop/prod
      everlog control desired acme/shop/prod --as-of 2h
    """
    from everlog.domains.controlplane import asking

    found = asking.desired(session.log(), where, as_of=as_of, within=fence(session, scope))
    session.out.answer(Answer.of_one(where, found))


@click.command("audit")
@click.argument("place")
@click.option("--since", type=MOMENT, metavar="TIME", help="From this time on: 3d, 2026-11-01.")
@click.option("--until", type=MOMENT, metavar="TIME", help="Before this time.")
@click.option("--occurred", is_flag=True, help="The times are those at which it is said to have happened.")
@click.option("--actor-type", type=click.Choice(["user", "service_principal", "system"]), help="Only these.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="POSITION", help="Go on after this position.")
@click.option("-n", "--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@click.option("--by-day", is_flag=True, help="Count by day, of a whole org.")
@fence_option
@past_damage_option
@common_options
@pass_session
def audit(
    session: Session,
    place: str,
    since: datetime | None,
    until: datetime | None,
    occurred: bool,
    actor_type: str | None,
    after: int,
    limit: int,
    by_day: bool,
    scope: str,
) -> None:
    """Show who did what in an org, an app or an environment, in order of position.

    The times are those at which the log learned of it, unless --occurred is given. Columns when piped: position,
    occurred_at, actor, actor_type, type, stream, payload; with --by-day: day, events, actors.

    \b
    Examples:
      everlog control audit acme --since 3d --actor-type service_principal
      everlog control audit acme --by-day
    """
    import msgspec

    from everlog.domains.controlplane import asking

    within = fence(session, scope)
    if by_day:
        days = asking.days(session.log(), place, within=within)
        rows = [(day["day"], day["events"], day["actors"]) for day in days]
        columns: tuple[str, ...] = ("day", "events", "actors")
        ids = [day["day"] for day in days]
        session.out.answer(
            Answer(data=days, ids=ids, columns=columns, rows=rows, facts={"org": place, "days": len(days)})
        )
        return
    found = asking.audit(
        session.log(),
        place,
        since=since,
        until=until,
        occurred=occurred,
        actor_type=actor_type or "",
        after=after,
        limit=limit,
        within=within,
    )
    columns = ("position", "occurred_at", "actor", "actor_type", "type", "stream", "payload")
    entries = [msgspec.to_builtins(entry) for entry in found]
    following = found[-1].position if len(found) == limit else None
    session.out.answer(
        Answer(
            data=entries,
            ids=[entry["id"] for entry in entries],
            columns=columns,
            rows=[[_cell(entry[name]) for name in columns] for entry in entries],
            facts={"count": len(entries), "next": following},
            next=following,
        )
    )
    if following is not None:
        session.out.hint(f"there may be more: --after {following}")
    if not entries:
        session.out.hint(f"nothing was done in {place}: everlog control list")


@click.command("follow")
@click.argument("place")
@click.option("--consumer", "name", metavar="NAME", required=True, help="Whose cursor it is, such as edge-1.")
@click.option("--to-end", is_flag=True, help="Stop when there is nothing more, instead of waiting.")
@fence_option
@common_options
@pass_session
def consume(session: Session, place: str, name: str, to_end: bool, scope: str) -> None:
    """Print the events of a place as they come, as a consumer whose cursor the log keeps.

    The cursor moves on after a line was written: whoever is stopped in between gets that event again. Under the same
    name it goes on where it was. `everlog consumers lag control.ORG.NAME` tells how far behind it is.

    \b
    Example:
      everlog control follow acme/shop/prod --consumer edge-1 --json
    """
    import sys

    from everlog.cli.records import Lines, print_record
    from everlog.domains.controlplane import asking

    out = session.out
    lines = Lines(out)

    def on_reset(reset: Reset) -> None:
        facts: dict[str, Any] = {"reason": reset.reason, "cursor": str(reset.cursor)}
        if out.json:
            out.line(json_text({"reset_required": reset.reason, "cursor": str(reset.cursor)}))
        elif out.agent:
            out.line("RESET " + pairs(facts))
        else:
            out.warn(f"reset required: history before {reset.cursor} changed ({reset.reason}); fetch the state anew")

    group = asking.consumer(session.log(), place, name, within=fence(session, scope))
    with group.member(name, on_reset=on_reset) as member:
        for delivery in member.deliveries(to_end=to_end):
            print_record(out, delivery.recorded, lines)
            sys.stdout.flush()
            delivery.ack()


def _cell(value: Any) -> Any:
    return value if not isinstance(value, str) else value.replace("+00:00", "Z")
