"""A control plane: orgs, apps and environments, and what should run in them (seed 003)."""

from __future__ import annotations

from everlog.programs.controlplane.commands import COMMANDS
from everlog.programs.controlplane.events import CATALOG
from everlog.programs.controlplane.guard import GUARD
from everlog.programs.controlplane.questions import QUESTIONS
from everlog.programs.controlplane.views import VIEWS
from everlog.programs.program import Program

PROGRAM = Program(
    name="controlplane",
    group="control",
    about="""A place is ORG, ORG/APP or ORG/APP/ENVIRONMENT. With --scope (or the setting `scope`) nothing outside of
that scope can be seen or changed.""",
    types=CATALOG,
    views=VIEWS,
    commands=COMMANDS,
    questions=QUESTIONS,
    rules=GUARD,
)
