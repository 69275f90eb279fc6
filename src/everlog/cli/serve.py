"""`everlog serve` and `everlog tokens`: a log as a service over HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, pass_session

_COLUMNS = ("name", "role", "actor", "scope", "created_at", "expires_at")


@click.command("serve")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), default=7373, show_default=True, help="0: any free one."
)
@click.option("--host-name", "host_names", metavar="NAME", multiple=True, help="A name under which it answers, too.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(path_type=Path), help="The certificate, in PEM.")
@click.option("--tls-key", metavar="FILE", type=click.Path(path_type=Path), help="The key of the certificate.")
@click.option("--behind-proxy", is_flag=True, help="A proxy does TLS, and says who calls (X-Forwarded-For).")
@click.option("--log-requests", is_flag=True, help="Write a line for every request to standard error.")
@common_options
@pass_session
def serve_command(session: Session, host_names: tuple[str, ...], log_requests: bool, **listen: Any) -> None:
    """Serve the log over HTTP, until Ctrl-C or SIGTERM.

    Callers need a token: see everlog tokens. If only this machine can reach it, the server makes one for itself and
    prints it; that one ends with the server. Any other address needs TLS, or a proxy that does it.

    \b
    Examples:
      everlog serve
      everlog serve --port 0 --json
      everlog serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --host-name log.example
    """
    from everlog.server.listen.front import Front
    from everlog.server.listen.holder import sole_server
    from everlog.server.observe.json_logs import logging_as_json
    from everlog.server.serve import Listen, app_of, limits_of, serve

    where = Listen(**listen)
    where.check()
    settings = session.settings().settings
    names = (*host_names, *settings.host_names.split(","), where.host)
    front = Front(limits_of(settings), host_names=names, behind_proxy=where.behind_proxy, log_requests=log_requests)
    log = session.log()
    with sole_server(log) as holder, logging_as_json(requests=log_requests):
        app = app_of(log, settings, front)
        secret = app.services["log"].tokens.for_this_process(actor=log.actor) if where.is_private else ""

        def ready(url: str) -> None:
            holder.answers_at(url)
            lines = [f"serving at {url}", *([f"token {secret}"] if secret else [])]
            text = json_text({"url": url, "token": secret}) if session.json else "\n".join(lines)
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

        try:
            serve(app, where, ready=ready)
        finally:
            app.close()


@click.group("tokens")
@common_options
def tokens_command() -> None:
    """Who may call the server: new, list, revoke, rotate.

    A token says who acts, what it may do, and in which scope. The log keeps only its hash.

    \b
    Examples:
      everlog tokens new ci --actor service:ci --role append
      everlog tokens list
    """


@tokens_command.command("new")
@click.argument("name")
@click.option("--actor", "acts_as", metavar="ACTOR", required=True, help="Who acts with it, such as service:ci.")
@click.option(
    "--role",
    type=click.Choice(["read", "append", "admin"]),
    default="append",
    show_default=True,
    help="What it may do.",
)
@click.option("--scope", metavar="SCOPE", default="", help="What it may see and touch; empty means everything.")
@common_options
@pass_session
def new_command(session: Session, name: str, acts_as: str, role: str, scope: str) -> None:
    """Make a token, and print it once.

    \b
    Example:
      everlog tokens new ci --actor service:ci --role append --scope acme/shop
    """
    from everlog.server.tokens import Tokens

    secret = Tokens(session.log()).new(name, actor=acts_as, role=role, within=scope)  # type: ignore[arg-type]
    facts = {"name": name, "token": secret}
    session.out.answer(Answer.of_row(secret, facts, lines=[f"token {secret}"]))
    session.out.hint("it is shown only now: the log keeps its hash")


@tokens_command.command("list")
@common_options
@pass_session
def list_command(session: Session) -> None:
    """List the tokens, without their secrets.

    Columns when piped: name, role, actor, scope, created_at, expires_at.

    \b
    Example:
      everlog tokens list
    """
    from everlog.server.tokens import Tokens

    found = [
        {
            "name": one.name,
            "role": one.role,
            "actor": one.actor,
            "scope": one.within,
            "created_at": one.created_at,
            "expires_at": one.expires_at,
        }
        for one in Tokens(session.log()).every()
    ]
    session.out.answer(Answer.of_many(found, _COLUMNS, ids=[str(one["name"]) for one in found]))


@tokens_command.command("revoke")
@click.argument("name")
@common_options
@pass_session
def revoke_command(session: Session, name: str) -> None:
    """End a token. Streams that are open with it end within seconds.

    \b
    Example:
      everlog tokens revoke ci
    """
    from everlog.server.tokens import Tokens

    Tokens(session.log()).revoke(name)
    session.out.answer(Answer.of_row(name, {"name": name}, lines=[safe(f"revoked {name}")]))


@tokens_command.command("rotate")
@click.argument("name")
@common_options
@pass_session
def rotate_command(session: Session, name: str) -> None:
    """Give a token a new secret, and print it once. The old one ends.

    \b
    Example:
      everlog tokens rotate ci
    """
    from everlog.server.tokens import Tokens

    secret = Tokens(session.log()).rotate(name)
    session.out.answer(Answer.of_row(secret, {"name": name, "token": secret}, lines=[f"token {secret}"]))
