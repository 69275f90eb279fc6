"""`everlog control deploy`: what is asked for, what became of it, and back again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.doing import by_of_request, doing_options, tell
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option

if TYPE_CHECKING:
    from everlog.domains.controlplane.commands import Step

seconds_option = click.option("--seconds", type=click.FloatRange(min=0), default=0.0, help="How long it took.")
fence_option = click.option("--scope", metavar="PATH", default="", help="See nothing beyond it, such as acme.")


@click.group("deploy")
@common_options
def deploy() -> None:
    """Deploys: request, start, succeed, fail, rollback, history, show.

    People and services ask for a deploy; services report what became of it.

    \b
    Example:
      everlog control deploy request acme/shop/prod shop:1.4.2 --key build-17
    """


@deploy.command("request")
@click.argument("where", metavar="ENVIRONMENT")
@click.argument("artifact", metavar="IMAGE")
@click.option("--note", metavar="TEXT", default="", help="A word for the record.")
@click.option("--id", "deploy_id", metavar="ID", default="", help="The deploy's id; a new one if left out.")
@doing_options
@pass_session
def request(session: Session, where: str, artifact: str, note: str, deploy_id: str, **by: Any) -> None:
    """Ask for an image to run in an environment. With --key, asking again is safe.

    \b
    Example:
      everlog control deploy request acme/shop/prod shop:1.4.2 --key build-17
    """
    from everlog.domains.controlplane import commands
    from everlog.domains.controlplane.events import DeployRequested

    asked = DeployRequested(artifact=artifact, note=note)
    _tell(session, commands.deploy(session.log(), where, asked, id=deploy_id, by=by_of_request(session, **by)))


@deploy.command("start")
@click.argument("deploy_id", metavar="DEPLOY")
@click.option("--note", metavar="TEXT", default="", help="A word for the record.")
@doing_options
@pass_session
def start(session: Session, deploy_id: str, note: str, **by: Any) -> None:
    """Report that a service has begun with it.

    \b
    Example:
      everlog control deploy start 01m7… --actor service:deployer
    """
    from everlog.domains.controlplane import commands

    _tell(session, commands.start(session.log(), deploy_id, note=note, by=by_of_request(session, **by)))


@deploy.command("succeed")
@click.argument("deploy_id", metavar="DEPLOY")
@seconds_option
@doing_options
@pass_session
def succeed(session: Session, deploy_id: str, seconds: float, **by: Any) -> None:
    """Report that it runs: from now on its environment should run its image.

    \b
    Example:
      everlog control deploy succeed 01m7… --seconds 48 --actor service:deployer
    """
    from everlog.domains.controlplane import commands

    _tell(session, commands.succeed(session.log(), deploy_id, seconds=seconds, by=by_of_request(session, **by)))


@deploy.command("fail")
@click.argument("deploy_id", metavar="DEPLOY")
@click.option("--error", metavar="TEXT", required=True, help="What went wrong.")
@seconds_option
@doing_options
@pass_session
def fail(session: Session, deploy_id: str, error: str, seconds: float, **by: Any) -> None:
    """Report that it did not come to run, or call it off.

    \b
    Example:
      everlog control deploy fail 01m7… --error "the health check timed out" --actor service:deployer
    """
    from everlog.domains.controlplane import commands

    _tell(
        session,
        commands.fail(session.log(), deploy_id, error=error, seconds=seconds, by=by_of_request(session, **by)),
    )


@deploy.command("rollback")
@click.argument("deploy_id", metavar="DEPLOY")
@click.option("--to", metavar="DEPLOY", help="What to go back to; what ran before, if left out; nothing, if empty.")
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@doing_options
@pass_session
def rollback(session: Session, deploy_id: str, to: str | None, reason: str, **by: Any) -> None:
    """Let the environment run again what it ran before.

    \b
    Example:
      everlog control deploy rollback 01m7… --reason "orders fail"
    """
    from everlog.domains.controlplane import commands

    made_by = by_of_request(session, **by)
    _tell(session, commands.roll_back(session.log(), deploy_id, to=to, reason=reason, by=made_by))


@deploy.command("history")
@click.argument("where", metavar="ENVIRONMENT")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@fence_option
@past_damage_option
@common_options
@pass_session
def history(session: Session, where: str, limit: int, scope: str) -> None:
    """Show the deploys of an environment, the newest first.

    Columns when piped: id, status, artifact, requested_by, requested_at.

    \b
    Example:
      everlog control deploy history acme/shop/prod
    """
    from everlog.domains.controlplane import asking

    found = asking.history(session.log(), where, limit=limit, within=fence(session, scope))
    columns = ("id", "status", "artifact", "requested_by", "requested_at")
    session.out.answer(Answer.of_many(found, columns))
    if not found:
        session.out.hint(f"nothing was deployed: everlog control deploy request {where} IMAGE")


@deploy.command("show")
@click.argument("deploy_id", metavar="DEPLOY")
@fence_option
@past_damage_option
@common_options
@pass_session
def show(session: Session, deploy_id: str, scope: str) -> None:
    """Show one deploy in full.

    \b
    Example:
      everlog control deploy show 01m7…
    """
    from everlog.domains.controlplane import asking

    found = asking.show(session.log(), deploy_id, within=fence(session, scope))
    session.out.answer(Answer.of_one(deploy_id, found))


def fence(session: Session, scope: str) -> str:
    """The scope that this run stays within."""
    return scope or session.settings().settings.scope


def _tell(session: Session, step: Step) -> None:
    tell(session, step.done, f"{step.becomes}  {safe(step.id)}", id=step.id, becomes=step.becomes)
