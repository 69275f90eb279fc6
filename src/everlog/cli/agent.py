"""`everlog agent`: agents that ask before they act."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from everlog.cli.doing import by_of, doing_options, tell
from everlog.cli.output import Answer, safe
from everlog.cli.session import Session, common_options, pass_session, past_damage_option

if TYPE_CHECKING:
    from everlog.domains.agents.commands import Step


@click.group("agent")
@common_options
def agent_command() -> None:
    """Commands of agents: propose, validate, approve, reject, execute, fail, list, show, trace, causes, sources.

    A command is proposed, looked at, approved or rejected by somebody else, and then run.

    \b
    Example:
      everlog agent propose pytest --agent-id builder && everlog agent list --pending
    """


@agent_command.command("propose")
@click.argument("tool_name", metavar="TOOL")
@click.argument("tool_input", metavar="[JSON]", default="{}")
@click.option("--agent-id", metavar="ID", required=True, help="The agent that asks.")
@click.option("--why", metavar="TEXT", default="", help="What it is for.")
@click.option("--risk", type=click.Choice(["low", "medium", "high"]), default="medium", show_default=True)
@click.option("--id", "command_id", metavar="ID", default="", help="The command's id; a new one if left out.")
@doing_options
@pass_session
def propose(
    session: Session, tool_name: str, tool_input: str, agent_id: str, why: str, risk: Any, command_id: str, **by: Any
) -> None:
    """Ask for a tool to be run, with its input as a JSON object.

    \b
    Example:
      everlog agent propose run_tests '{"path": "tests"}' --agent-id builder --correlation session-7
    """
    from everlog.domains.agents import commands
    from everlog.domains.agents.events import Proposed

    try:
        given = json.loads(tool_input)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="JSON") from error
    proposal = Proposed(agent_id=agent_id, tool_name=tool_name, tool_input=given, why=why, risk=risk)
    _tell(session, commands.propose(session.log(), proposal, id=command_id, by=by_of(session, **by)))


@agent_command.command("validate")
@click.argument("command")
@click.option("--invalid", is_flag=True, help="It must not be approved.")
@click.option("--finding", "findings", metavar="TEXT", multiple=True, help="What was found; may be given again.")
@doing_options
@pass_session
def validate(session: Session, command: str, invalid: bool, findings: tuple[str, ...], **by: Any) -> None:
    """Record what a validator found.

    \b
    Example:
      everlog agent validate 01m7… --invalid --finding "it deletes the database"
    """
    from everlog.domains.agents import commands

    made_by = by_of(session, **by)
    _tell(session, commands.validate(session.log(), command, valid=not invalid, findings=findings, by=made_by))


@agent_command.command("approve")
@click.argument("command")
@click.option("--note", metavar="TEXT", default="", help="A word for the record.")
@doing_options
@pass_session
def approve(session: Session, command: str, note: str, **by: Any) -> None:
    """Let a command run.

    \b
    Example:
      everlog agent approve 01m7… --actor user:ada
    """
    from everlog.domains.agents import commands

    _tell(session, commands.approve(session.log(), command, note=note, by=by_of(session, **by)))


@agent_command.command("reject")
@click.argument("command")
@click.option("--reason", metavar="TEXT", required=True, help="Why not.")
@doing_options
@pass_session
def reject(session: Session, command: str, reason: str, **by: Any) -> None:
    """Say that a command must not run.

    \b
    Example:
      everlog agent reject 01m7… --reason "not on a Friday"
    """
    from everlog.domains.agents import commands

    _tell(session, commands.reject(session.log(), command, reason=reason, by=by_of(session, **by)))


@agent_command.command("execute")
@click.argument("command")
@click.option("--exit-code", type=int, default=0, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0), default=0.0, help="How long it took.")
@click.option("--summary", metavar="TEXT", default="", help="What came of it.")
@doing_options
@pass_session
def execute(session: Session, command: str, exit_code: int, seconds: float, summary: str, **by: Any) -> None:
    """Record that a command has run.

    \b
    Example:
      everlog agent execute 01m7… --exit-code 0 --seconds 12.5
    """
    from everlog.domains.agents import commands

    outcome: Any = {"exit_code": exit_code, "seconds": seconds, "summary": summary}
    _tell(session, commands.execute(session.log(), command, **outcome, by=by_of(session, **by)))


@agent_command.command("fail")
@click.argument("command")
@click.option("--error", metavar="TEXT", required=True, help="What went wrong.")
@click.option("--seconds", type=click.FloatRange(min=0), default=0.0, help="How long it took.")
@doing_options
@pass_session
def fail(session: Session, command: str, error: str, seconds: float, **by: Any) -> None:
    """Record that a command could not be run to its end.

    \b
    Example:
      everlog agent fail 01m7… --error "the machine was restarted"
    """
    from everlog.domains.agents import commands

    _tell(session, commands.fail(session.log(), command, error=error, seconds=seconds, by=by_of(session, **by)))


@agent_command.command("list")
@click.option("--pending", is_flag=True, help="Only what waits for a decision.")
@click.option("--status", "wanted", metavar="STATUS", multiple=True, help="Only these; may be given again.")
@past_damage_option
@common_options
@pass_session
def list_commands(session: Session, pending: bool, wanted: tuple[str, ...]) -> None:
    """Show commands and how they stand, the oldest first.

    Columns when piped: id, status, agent_id, tool_name, risk, proposed_at.

    \b
    Examples:
      everlog agent list --pending
      everlog agent list --status failed
    """
    from everlog.domains.agents import commands

    log = session.log()
    found = commands.pending(log) if pending else commands.listed(log, status=wanted)
    columns = ("id", "status", "agent_id", "tool_name", "risk", "proposed_at")
    session.out.answer(Answer.of_many(found, columns))
    if not found:
        none = f"none is {safe(' or '.join(wanted))}: everlog agent list" if wanted else ""
        proposed = none or "nothing was proposed: everlog agent propose --help"
        session.out.hint("nothing waits" if pending else proposed)


@agent_command.command("show")
@click.argument("command")
@past_damage_option
@common_options
@pass_session
def show(session: Session, command: str) -> None:
    """Show one command in full.

    \b
    Example:
      everlog agent show 01m7…
    """
    from everlog.domains.agents import commands

    found = commands.show(session.log(), command)
    session.out.answer(Answer.of_one(command, found))


@agent_command.command("trace")
@click.argument("session_id", metavar="SESSION")
@past_damage_option
@common_options
@pass_session
def trace(session: Session, session_id: str) -> None:
    """Show what happened in a session (a correlation id) on all streams, as a tree of causes.

    Columns when piped: depth, at, actor, stream, status, id, caused_by.

    \b
    Example:
      everlog agent trace session-7
    """
    from everlog.domains.agents import commands

    _show_tree(session, commands.trace(session.log(), session_id))


@agent_command.command("causes")
@click.argument("event", metavar="ID|#POSITION")
@past_damage_option
@common_options
@pass_session
def causes(session: Session, event: str) -> None:
    """Show the tree of causes that an event is part of, over all streams: what began it, and all that followed.

    Columns when piped: depth, at, actor, stream, status, id, caused_by.

    \b
    Example:
      everlog agent causes '#12'
    """
    from everlog.domains.agents import commands

    _show_tree(session, commands.causes(session.log(), event))


@agent_command.command("sources")
@past_damage_option
@common_options
@pass_session
def sources(session: Session) -> None:
    """Show who takes part, and how much each has done.

    Columns when piped: source, sequence, did, last_at.

    \b
    Example:
      everlog agent sources
    """
    from everlog.domains.agents import commands

    found = commands.sources(session.log())
    columns = ("source", "sequence", "did", "last_at")
    session.out.answer(Answer.of_many(found, columns))
    if not found:
        session.out.hint("nobody has done anything: everlog agent propose --help")


def _show_tree(session: Session, steps: list[dict[str, Any]]) -> None:
    columns = ("depth", "at", "actor", "stream", "status", "id", "caused_by")
    lines = [
        f"{'  ' * step['depth']}{step['status']:10} {safe(step['stream'])}  {safe(step['actor'])}  {step['at']}"
        + ("  <- asked for" if step.get("asked") else "")
        for step in steps
    ]
    session.out.answer(Answer.of_many(steps, columns, named="id", lines=lines))


def _tell(session: Session, step: Step) -> None:
    tell(session, step.done, f"{step.status}  {safe(step.id)}", id=step.id, becomes=step.status)
