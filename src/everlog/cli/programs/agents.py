"""`everlog agent`: agents that ask before they act."""

from __future__ import annotations

from typing import Any

from everlog.cli.output import Answer, safe
from everlog.cli.programs.builder import SCOPE, Surface, build, label_from_settings
from everlog.cli.programs.spelling import Argument, Flag, Option
from everlog.cli.session import Session
from everlog.programs.agents import PROGRAM
from everlog.programs.agents.questions import Causes, List, Sources, Trace


def _tree(session: Session, question: Any, steps: list[dict[str, Any]]) -> Answer:
    lines = [
        f"{'  ' * step['depth']}{step['status']:10} {safe(step['stream'])}  {safe(step['actor'])}  {step['at']}"
        + ("  <- asked for" if step.get("asked") else "")
        for step in steps
    ]
    return Answer.of_many(steps, question.columns, named="id", lines=lines)


def _no_commands(session: Session, question: List) -> str:
    if question.pending:
        return "nothing waits"
    if question.status:
        return f"none is {safe(' or '.join(question.status))}: everlog agent list"
    return "nothing was proposed: everlog agent propose --help"


agent_command = build(
    Surface(
        program=PROGRAM,
        title="Commands of agents: propose, validate, approve, reject, execute, fail, list, show, trace and more.",
        example="propose pytest --agent-id builder && everlog agent list --pending",
        spelling={
            "*.scope": SCOPE,
            "*.id": Argument("COMMAND"),
            "Propose.tool_name": Argument("TOOL"),
            "Propose.tool_input": Argument("[JSON]"),
            "Propose.agent_id": Option(metavar="ID"),
            "Propose.id": Option("--id", metavar="ID"),
            "Validate.valid": Flag("--invalid", "The command must not be approved.", opposite=True),
            "Validate.findings": Option("--finding", metavar="TEXT"),
            "List.status": Option("--status", metavar="STATUS"),
            "Trace.session": Argument("SESSION"),
            "Causes.event": Argument("ID|#POSITION"),
        },
        answers={Trace: _tree, Causes: _tree},
        empty={
            List: _no_commands,
            Sources: lambda session, question: "nobody has done anything: everlog agent propose --help",
        },
        complete=label_from_settings("scope"),
    )
)
