"""`everlog serve` and `everlog tokens`: a log as a service over HTTP."""

from __future__ import annotations

import sys

import click

from everlog.cli.output import Answer, json_text, safe
from everlog.cli.session import Session, common_options, pass_session

_COLUMNS = ("name", "role", "actor", "scope", "created_at", "expires_at")


@click.command("serve")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), default=7373, show_default=True, help="0: any."
)
@common_options
@pass_session
def serve_command(session: Session, host: str, port: int) -> None:
    """Serve the log over HTTP, until Ctrl-C.

    Callers need a token: see everlog tokens. On this machine's own address, the server makes one for itself and
    prints it; that one ends with the server.

    \b
    Examples:
      everlog serve
      everlog serve --port 0 --json
    """
    from everlog.server.serve import app_of, serve

    log = session.log()
    app = app_of(log, session.settings().settings)
    secret = app.services["log"].tokens.for_this_process(actor=log.actor)

    def ready(url: str) -> None:
        if session.json:
            sys.stdout.write(json_text({"url": url, "token": secret}) + "\n")
        else:
            sys.stdout.write(f"serving at {url}\ntoken {secret}\n")
        sys.stdout.flush()

    serve(app, host=host, port=port, ready=ready)


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
