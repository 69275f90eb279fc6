"""`everlog tokens`: who may call the server."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session
from everlog.cli.time_options import AHEAD

_COLUMNS = ("name", "role", "actor", "scope", "created_at", "expires_at")


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
@click.option("--expires", type=AHEAD, metavar="TIME", help="When it ends: 12h, 30d, 2027-01-01.")
@common_options
@pass_session
def new_command(session: Session, name: str, acts_as: str, role: Any, scope: str, expires: datetime | None) -> None:
    """Make a token, and print it once.

    \b
    Example:
      everlog tokens new ci --actor service:ci --role append --scope acme/shop --expires 30d
    """
    from everlog.server.callers.tokens import Tokens

    secret = Tokens(session.log()).new(name, actor=acts_as, role=role, within=scope, expires_at=expires)
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
    import msgspec

    from everlog.server.callers.tokens import Tokens

    found = Tokens(session.log()).every()
    data = [{**msgspec.to_builtins(one), "scope": one.within} for one in found]
    shown = [{name: one[name] for name in _COLUMNS} for one in data]
    session.out.answer(Answer.of_many(shown, _COLUMNS))


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
    from everlog.server.callers.tokens import Tokens

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
    from everlog.server.callers.tokens import Tokens

    secret = Tokens(session.log()).rotate(name)
    session.out.answer(Answer.of_row(secret, {"name": name, "token": secret}, lines=[f"token {secret}"]))
