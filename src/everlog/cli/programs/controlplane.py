"""`everlog control`: orgs, apps and environments, what these have, and what should run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from everlog.cli.output import Answer, safe
from everlog.cli.programs.builder import Several, Surface, build
from everlog.cli.programs.spelling import Argument, Option
from everlog.cli.session import Session, common_options, pass_session
from everlog.cli.time_options import AS_OF
from everlog.programs.controlplane import PROGRAM
from everlog.programs.controlplane.questions import Audit, Days, DeployHistory, List

if TYPE_CHECKING:
    from everlog.core.query import Reset

_WITHIN = "See and change nothing outside of this scope, such as acme."


@click.command("follow")
@click.argument("place")
@click.option("--consumer", "name", metavar="NAME", required=True, help="The name of the consumer, such as edge-1.")
@click.option("--to-end", is_flag=True, help="Stop at the head instead of waiting for more.")
@click.option("--scope", metavar="PATH", default="", help=_WITHIN)
@common_options
@pass_session
def follow(session: Session, place: str, name: str, to_end: bool, scope: str) -> None:
    """Print the events of a place as they arrive, as a consumer whose cursor is stored in the log.

    The cursor advances after a line is written: a consumer that is stopped in between gets that event again. Under
    the same name it continues where it stopped. `everlog consumers lag control.ORG.NAME` shows how far behind it is.

    \b
    Example:
      everlog control follow acme/shop/prod --consumer edge-1 --json
    """
    import sys

    from everlog.cli.events.records import Lines, print_record, print_reset
    from everlog.programs.controlplane.questions import consumer

    out = session.out
    lines = Lines(out)

    def on_reset(reset: Reset) -> None:
        what = f"history before {reset.cursor} changed ({reset.reason}); fetch the state again"
        print_reset(out, reset, f"reset required: {what}")

    within = scope or session.settings().settings.scope
    group = consumer(session.log(), place, name, within=within)
    with group.member(name, on_reset=on_reset) as member:
        for delivery in member.deliveries(to_end=to_end):
            print_record(out, delivery.recorded, lines)
            sys.stdout.flush()
            delivery.ack()


def _line(command: Any, result: Any) -> str:
    return safe(result.id) if result.becomes == "unchanged" else f"{result.becomes}  {safe(result.id)}"


def _audit(session: Session, question: Audit, found: list[Any]) -> Answer:
    following = found[-1].position if len(found) == question.limit else None
    return Answer.of_many(
        msgspec.to_builtins(found),
        question.columns,
        cells={"occurred_at": lambda entry: entry["occurred_at"].replace("+00:00", "Z")},
        named="id",
        facts={"count": len(found), "next": following},
        next=following,
    )


def _more(session: Session, question: Audit, found: list[Any]) -> str:
    return f"there may be more: --after {found[-1].position}" if len(found) == question.limit else ""


def _days(session: Session, question: Days, days: list[dict[str, Any]]) -> Answer:
    return Answer.of_many(days, question.columns, facts={"org": question.place, "days": len(days)})


def _nothing(session: Session, question: List) -> str:
    if question.place:
        return f"there is no {question.place}: everlog control list"
    return "there is nothing: everlog control org create NAME"


control_command = build(
    Surface(
        program=PROGRAM,
        title="A control plane: what should run, where, and who decided it.",
        example="deploy request acme/shop/prod shop:1.4.2 && everlog control desired acme/shop/prod",
        groups={
            "org": ("Tenants: create, close.", "org create acme"),
            "app": ("Apps of an org: create, close.", "app create acme/shop"),
            "environment": ("Environments of an app: create, close.", "environment create acme/shop/prod"),
            "deploy": (
                "Deploys: request, start, succeed, fail, rollback, history, show.\n\n"
                "People and services request a deploy; services report its progress.",
                "deploy request acme/shop/prod shop:1.4.2 --key build-17",
            ),
            "route": (
                "Routes from hosts to an environment: set, remove.",
                "route set shop.example.org acme/shop/prod",
            ),
            "secret": (
                "Versions of secrets that an environment gets: set, remove. Values stay in the secret manager.",
                "secret set acme/shop/prod DATABASE_URL --version 3",
            ),
            "volume": (
                "Disks of an environment: attach, detach.",
                "volume attach acme/shop/prod data --mount /data --size-gb 10",
            ),
        },
        spelling={
            "*.org": Argument("ORG"),
            "*.app": Argument("ORG/APP"),
            "*.environment": Argument("ENVIRONMENT"),
            "*.deploy": Argument("DEPLOY"),
            "RequestDeploy.artifact": Argument("IMAGE"),
            "RequestDeploy.id": Option("--id", metavar="ID"),
            "RollBackDeploy.to": Option("--to", metavar="DEPLOY"),
            "*.host": Argument("HOST"),
            "SetRoute.process": Option(metavar="NAME"),
            "*.name": Argument("NAME"),
            "SetSecret.version_id": Option("--version", metavar="ID"),
            "AttachVolume.process": Option(metavar="NAME"),
            "AttachVolume.mount": Option(metavar="PATH"),
            "Scale.process": Argument("PROCESS"),
            "Scale.count": Argument(),
            "List.place": Argument("[PLACE]"),
            "Desired.as_of": Option("--as-of", metavar="MOMENT", type=AS_OF),
            "Audit.place": Argument("PLACE"),
            "Audit.since": Option(metavar="TIME"),
            "Audit.until": Option(metavar="TIME"),
            "Audit.after": Option(metavar="POSITION"),
        },
        several=(
            Several(
                "audit",
                "Show who did what in an org, an app or an environment, in order of position.\n\n"
                "--since and --until compare when an event was recorded; with --occurred, when it happened.",
                (*Audit.examples, *Days.examples),
                ((Days, ("by_day",)), (Audit, ())),
                flags={"by-day": "Count events and actors per day, for a whole org."},
            ),
        ),
        columns={Days: "with --by-day: day, events, actors;", Audit: ", ".join(Audit.columns)},
        line=_line,
        answers={Audit: _audit, Days: _days},
        empty={
            List: _nothing,
            DeployHistory: lambda session, question: (
                f"nothing was deployed: everlog control deploy request {question.environment} IMAGE"
            ),
            Audit: lambda session, question: f"nothing was done in {question.place}: everlog control list",
        },
        hints={Audit: _more},
        within=_WITHIN,
        new_request_ids=True,
        more=(follow,),
    )
)
