"""`everlog mcp`: the log as tools for an agent, over standard input and output."""

from __future__ import annotations

import sys

import click

from everlog.cli.session import Session, actor_option, common_options, pass_session


@click.command("mcp")
@click.option("--all", "everything", is_flag=True, help="Offer the operations of programs that are not on here, too.")
@click.option("--scope", "within", metavar="PATH", default="", help="Show and record only what is in this scope.")
@actor_option
@common_options
@pass_session
def mcp_command(session: Session, everything: bool, within: str) -> None:
    """Offer the log to an agent as tools: a server of the Model Context Protocol, until its input ends.

    The tools are the operations of the log and of the programs that are on here, with the same rules and refusals as
    the commands. Each tool that records takes an idempotency_key, so that a retry is done once.

    \b
    Examples:
      everlog mcp --actor agent:builder
      claude mcp add everlog -- everlog -C ~/shop mcp --actor agent:builder
    """
    from everlog.application.folder.create import agents_text
    from everlog.application.mcp import Server, offered

    log = session.log()
    found = offered(session.location, log, everything=everything)
    server = Server(log, found, actor=session.actor, within=within, instructions=agents_text())
    for answer in server.answers(sys.stdin):
        session.out.line(answer)
        sys.stdout.flush()
