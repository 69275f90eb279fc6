"""`everlog control`: orgs, apps and environments, and what these have; deploys and questions stand beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from everlog.cli.control_asking import audit, consume, desired, list_places
from everlog.cli.control_deploy import deploy
from everlog.cli.doing import by_of_request, doing_options, tell
from everlog.cli.output import safe
from everlog.cli.session import Session, common_options, pass_session

if TYPE_CHECKING:
    from everlog.domains.controlplane.commands import Step


@click.group("control")
@common_options
def control_command() -> None:
    """A control plane: what should run, where, and who said so.

    A place is ORG, ORG/APP or ORG/APP/ENVIRONMENT. With --scope (or the setting `scope`) nothing beyond that scope
    can be touched or seen.

    \b
    Example:
      everlog control deploy request acme/shop/prod shop:1.4.2 && everlog control desired acme/shop/prod
    """


for _command in (deploy, list_places, desired, audit, consume):
    control_command.add_command(_command)


# ---- places


@control_command.group("org")
@common_options
def org() -> None:
    """Tenants: create, close.

    \b
    Example:
      everlog control org create acme
    """


@org.command("create")
@click.argument("name", metavar="ORG")
@click.option("--title", metavar="TEXT", default="", help="A name for people.")
@doing_options
@pass_session
def create_org(session: Session, name: str, title: str, **by: Any) -> None:
    """Make an org.

    \b
    Example:
      everlog control org create acme --title "Acme Ltd"
    """
    from everlog.domains.controlplane.events import OrgCreated

    _create(session, name, OrgCreated(title=title), by)


@org.command("close")
@click.argument("name", metavar="ORG")
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@doing_options
@pass_session
def close_org(session: Session, name: str, reason: str, **by: Any) -> None:
    """Give up an org whose apps are closed. Its history stays.

    \b
    Example:
      everlog control org close acme --reason "moved away"
    """
    _close(session, name, "org", reason, by)


@control_command.group("app")
@common_options
def app() -> None:
    """Apps of an org: create, close.

    \b
    Example:
      everlog control app create acme/shop
    """


@app.command("create")
@click.argument("name", metavar="ORG/APP")
@click.option("--title", metavar="TEXT", default="", help="A name for people.")
@doing_options
@pass_session
def create_app(session: Session, name: str, title: str, **by: Any) -> None:
    """Make an app of an org.

    \b
    Example:
      everlog control app create acme/shop --title "The shop"
    """
    from everlog.domains.controlplane.events import AppCreated

    _create(session, name, AppCreated(title=title), by)


@app.command("close")
@click.argument("name", metavar="ORG/APP")
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@doing_options
@pass_session
def close_app(session: Session, name: str, reason: str, **by: Any) -> None:
    """Give up an app whose environments are closed.

    \b
    Example:
      everlog control app close acme/shop --reason "replaced by acme/store"
    """
    _close(session, name, "app", reason, by)


@control_command.group("environment")
@common_options
def environment() -> None:
    """Environments of an app: create, close.

    \b
    Example:
      everlog control environment create acme/shop/prod
    """


@environment.command("create")
@click.argument("name", metavar="ENVIRONMENT")
@click.option("--region", metavar="TEXT", default="", help="Where it runs.")
@click.option("--protected", is_flag=True, help="Only people deploy to it, no services.")
@doing_options
@pass_session
def create_environment(session: Session, name: str, region: str, protected: bool, **by: Any) -> None:
    """Make an environment of an app.

    \b
    Example:
      everlog control environment create acme/shop/prod --region eu-1 --protected
    """
    from everlog.domains.controlplane.events import EnvironmentCreated

    _create(session, name, EnvironmentCreated(region=region, protected=protected), by)


@environment.command("close")
@click.argument("name", metavar="ENVIRONMENT")
@click.option("--reason", metavar="TEXT", required=True, help="Why.")
@doing_options
@pass_session
def close_environment(session: Session, name: str, reason: str, **by: Any) -> None:
    """Give up an environment: nothing should run there any more.

    \b
    Example:
      everlog control environment close acme/shop/test --reason "not needed"
    """
    _close(session, name, "environment", reason, by)


# ---- what an environment has


@control_command.group("route")
@common_options
def route() -> None:
    """Hosts that lead to an environment: set, remove.

    \b
    Example:
      everlog control route set shop.example.org acme/shop/prod
    """


@route.command("set")
@click.argument("host")
@click.argument("where", metavar="ENVIRONMENT")
@click.option("--process", metavar="NAME", default="web", show_default=True, help="Which process answers.")
@click.option("--port", type=click.IntRange(1, 65_535), default=8080, show_default=True, help="Where it listens.")
@doing_options
@pass_session
def set_route(session: Session, host: str, where: str, process: str, port: int, **by: Any) -> None:
    """Have a host lead to a process of an environment.

    \b
    Example:
      everlog control route set shop.example.org acme/shop/prod --process web --port 8080
    """
    from everlog.domains.controlplane import commands
    from everlog.domains.controlplane.events import RouteSet

    wanted = RouteSet(process=process, port=port)
    _tell(session, commands.set_route(session.log(), host, where, wanted, by=by_of_request(session, **by)))


@route.command("remove")
@click.argument("host")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def remove_route(session: Session, host: str, reason: str, **by: Any) -> None:
    """Let a host go.

    \b
    Example:
      everlog control route remove shop.example.org
    """
    from everlog.domains.controlplane import commands

    _tell(session, commands.remove_route(session.log(), host, reason=reason, by=by_of_request(session, **by)))


@control_command.group("secret")
@common_options
def secret() -> None:
    """Versions of secrets that an environment gets: set, remove. Values stay in the secret manager.

    \b
    Example:
      everlog control secret set acme/shop/prod DATABASE_URL --version 3
    """


@secret.command("set")
@click.argument("where", metavar="ENVIRONMENT")
@click.argument("name", metavar="NAME")
@click.option(
    "--version", "version_id", metavar="ID", required=True, help="A number, a UUID, a ULID, or …/versions/N."
)
@doing_options
@pass_session
def set_secret(session: Session, where: str, name: str, version_id: str, **by: Any) -> None:
    """Give an environment a version of a secret. What may be a value is refused, and kept nowhere.

    \b
    Example:
      everlog control secret set acme/shop/prod DATABASE_URL --version 3
    """
    from everlog.domains.controlplane import commands

    made_by = by_of_request(session, **by)
    _tell(session, commands.set_secret(session.log(), where, name, version_id=version_id, by=made_by))


@secret.command("remove")
@click.argument("where", metavar="ENVIRONMENT")
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def remove_secret(session: Session, where: str, name: str, reason: str, **by: Any) -> None:
    """Take a secret from an environment.

    \b
    Example:
      everlog control secret remove acme/shop/prod DATABASE_URL
    """
    from everlog.domains.controlplane import commands

    _tell(session, commands.remove_secret(session.log(), where, name, reason=reason, by=by_of_request(session, **by)))


@control_command.group("volume")
@common_options
def volume() -> None:
    """Disks of an environment: attach, detach.

    \b
    Example:
      everlog control volume attach acme/shop/prod data --mount /data --size-gb 10
    """


@volume.command("attach")
@click.argument("where", metavar="ENVIRONMENT")
@click.argument("name", metavar="NAME")
@click.option("--process", metavar="NAME", default="web", show_default=True, help="Which process has it.")
@click.option("--mount", metavar="PATH", required=True, help="Where the process finds it.")
@click.option("--size-gb", type=click.IntRange(1, 65_536), required=True, help="How large it is; it may only grow.")
@doing_options
@pass_session
def attach_volume(session: Session, where: str, name: str, process: str, mount: str, size_gb: int, **by: Any) -> None:
    """Give a process a disk, or a larger one.

    \b
    Example:
      everlog control volume attach acme/shop/prod data --process db --mount /data --size-gb 20
    """
    from everlog.domains.controlplane import commands
    from everlog.domains.controlplane.events import VolumeAttached

    wanted = VolumeAttached(process=process, mount=mount, size_gb=size_gb)
    _tell(session, commands.attach_volume(session.log(), where, name, wanted, by=by_of_request(session, **by)))


@volume.command("detach")
@click.argument("where", metavar="ENVIRONMENT")
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", default="", help="Why.")
@doing_options
@pass_session
def detach_volume(session: Session, where: str, name: str, reason: str, **by: Any) -> None:
    """Take a disk from a process.

    \b
    Example:
      everlog control volume detach acme/shop/prod data
    """
    from everlog.domains.controlplane import commands

    _tell(session, commands.detach_volume(session.log(), where, name, reason=reason, by=by_of_request(session, **by)))


@control_command.command("scale")
@click.argument("where", metavar="ENVIRONMENT")
@click.argument("process", metavar="PROCESS")
@click.argument("count", type=click.IntRange(0, 1_000))
@doing_options
@pass_session
def scale(session: Session, where: str, process: str, count: int, **by: Any) -> None:
    """Say how many of a process should run.

    \b
    Example:
      everlog control scale acme/shop/prod web 3
    """
    from everlog.domains.controlplane import commands

    _tell(session, commands.scale(session.log(), where, process, count=count, by=by_of_request(session, **by)))


# ---- inside


def _create(session: Session, place: str, made: Any, by: dict[str, Any]) -> None:
    from everlog.domains.controlplane import commands

    _tell(session, commands.create(session.log(), place, made, by=by_of_request(session, **by)))


def _close(session: Session, place: str, kind: str, reason: str, by: dict[str, Any]) -> None:
    from everlog.domains.controlplane import commands

    _tell(session, commands.close(session.log(), place, kind=kind, reason=reason, by=by_of_request(session, **by)))


def _tell(session: Session, step: Step) -> None:
    line = f"{step.becomes}  {safe(step.id)}" if step.done.records else safe(step.id)
    tell(session, step.done, line, id=step.id, becomes=step.becomes)
