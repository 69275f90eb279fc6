"""Agents that ask before they act (seed 001): commands are proposed, validated, approved or rejected, and run."""

from __future__ import annotations

from everlog.programs.agents.commands import COMMANDS
from everlog.programs.agents.events import CATALOG
from everlog.programs.agents.questions import QUESTIONS
from everlog.programs.agents.rules import GUARD
from everlog.programs.agents.views import VIEWS, Commands
from everlog.programs.program import Program

PROGRAM = Program(
    name="agents",
    group="agent",
    about="A command is proposed, validated, approved or rejected by another actor, and then run.",
    types=CATALOG,
    views=VIEWS,
    commands=COMMANDS,
    questions=QUESTIONS,
    rules=GUARD,
    shows={"command": Commands},
)
