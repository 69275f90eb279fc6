"""`everlog hooks`: addresses that events are sent to."""

from __future__ import annotations

import time

import click

from everlog.cli.events.records import moment
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.core.text import counted

_COLUMNS = ("name", "url", "types", "kind", "scope", "created_at", "dead_letters")


@click.group("hooks")
@common_options
def hooks_command() -> None:
    """Webhooks: add, list, remove, replay, secret, run.

    A hook is sent every matching event that is recorded after it was added, as a signed CloudEvent, at least once and
    in the order of each stream. everlog serve sends, and so does everlog hooks run. What cannot be delivered is sent
    again for about an hour; then it waits as a dead letter: everlog consumers dead-letters hook-NAME.

    \b
    Examples:
      everlog hooks add https://ci.example/hook --type deploy.finished
      everlog hooks list
    """


@hooks_command.command("add")
@click.argument("url", metavar="URL")
@click.option("--name", metavar="NAME", default="", help="How to call it; the name of its host if left out.")
@click.option("--type", "types", metavar="TYPE", multiple=True, help="Only events of this type; may be repeated.")
@click.option("--kind", metavar="KIND", default="", help="Only events of streams of this kind.")
@click.option("--scope", metavar="SCOPE", default="", help="Only events in this scope.")
@click.option("--private", is_flag=True, help="The address may be on this machine or in a private network.")
@common_options
@pass_session
def add_command(
    session: Session, url: str, name: str, types: tuple[str, ...], kind: str, scope: str, private: bool
) -> None:
    """Add a hook, and print the secret with which its receiver checks the signatures.

    \b
    Example:
      everlog hooks add https://ci.example/hook --type deploy.finished --scope acme
    """
    from everlog.server.hooks.hook import HookSecrets, add_hook

    log = session.log()
    hook = add_hook(log, url, name=name, types=types, kind=kind, scope=scope, private=private, by=log.actor)
    secret = HookSecrets(session.keys_path()).of(hook)
    facts = {"name": hook.name, "secret": secret}
    session.out.answer(Answer.of_row(hook.name, facts, lines=[safe(f"added {hook.name}"), f"secret {secret}"]))
    session.out.hint("next: everlog serve, or everlog hooks run, sends the events")


@hooks_command.command("list")
@common_options
@pass_session
def list_command(session: Session) -> None:
    """List the hooks, without their secrets.

    Columns when piped: name, url, types, kind, scope, created_at, dead_letters: how many events a hook could not
    deliver.

    \b
    Example:
      everlog hooks list
    """
    from everlog.server.hooks.hook import hooks_of

    log = session.log()
    found = list(hooks_of(log))
    cells = {
        "types": lambda hook: ", ".join(hook.types),
        "created_at": lambda hook: moment(hook.created_at),
        "dead_letters": lambda hook: len(hook.group(log).dead_letters()),
    }
    session.out.answer(Answer.of_many(found, _COLUMNS, cells=cells))


@hooks_command.command("remove")
@click.argument("name")
@common_options
@pass_session
def remove_command(session: Session, name: str) -> None:
    """Remove a hook, with what it could not deliver.

    \b
    Example:
      everlog hooks remove ci-example
    """
    from everlog.server.hooks.hook import remove_hook

    remove_hook(session.log(), name)
    session.out.answer(Answer.of_row(name, {"name": name}, lines=[safe(f"removed {name}")]))


@hooks_command.command("secret")
@click.argument("name")
@common_options
@pass_session
def secret_command(session: Session, name: str) -> None:
    """Print the secret of a hook, with which its receiver checks the signatures.

    \b
    Example:
      everlog hooks secret ci-example
    """
    from everlog.server.hooks.hook import HookSecrets, hook_named

    secret = HookSecrets(session.keys_path()).of(hook_named(session.log(), name))
    session.out.answer(Answer.of_row(name, {"name": name, "secret": secret}, lines=[f"secret {secret}"]))


@hooks_command.command("replay")
@click.argument("name")
@common_options
@pass_session
def replay_command(session: Session, name: str) -> None:
    """Send again what a hook could not deliver.

    \b
    Example:
      everlog hooks replay ci-example
    """
    from everlog.server.hooks.hook import replay

    log = session.log()
    count = replay(log, name, by=log.actor)
    line = f"{counted(count, 'event')} will be sent again"
    session.out.answer(Answer.of_row(name, {"name": name, "events": count}, lines=[line]))


@hooks_command.command("run")
@common_options
@pass_session
def run_command(session: Session) -> None:
    """Send events to all hooks, until Ctrl-C. A log that is served with everlog serve does not need it.

    \b
    Example:
      everlog hooks run
    """
    from everlog.server.hooks.delivery import Deliveries

    sending = Deliveries(session.log(), session.keys_path())
    session.when_stopped = "stopped; what was not acknowledged is sent again next time"
    try:
        while True:
            time.sleep(1)
    finally:
        sending.close()
