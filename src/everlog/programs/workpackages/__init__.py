"""Work packages on a board of lanes, with dependencies, subtasks and gates (seed 000)."""

from __future__ import annotations

from everlog.programs.program import Program
from everlog.programs.workpackages.claiming import CLAIMING
from everlog.programs.workpackages.commands import COMMANDS
from everlog.programs.workpackages.events import CATALOG
from everlog.programs.workpackages.guard import GUARD
from everlog.programs.workpackages.questions import QUESTIONS
from everlog.programs.workpackages.views import VIEWS, Board, Specs

PROGRAM = Program(
    name="workpackages",
    group="wp",
    about="""A package moves from planned to doing, for_review and done. It cannot start before the packages that it
depends on are done, and it cannot be done before its gates have passed.""",
    types=CATALOG,
    views=VIEWS,
    commands=(*COMMANDS, *CLAIMING),
    questions=QUESTIONS,
    rules=GUARD,
    shows={"workpackage": Board, "featurespec": Specs},
)
