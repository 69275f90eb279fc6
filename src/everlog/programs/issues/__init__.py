"""Issues with short ids, comments, labels and links, from open to purged (seed 004)."""

from __future__ import annotations

from everlog.programs.issues.claiming import Ready
from everlog.programs.issues.commands import COMMANDS
from everlog.programs.issues.events import CATALOG
from everlog.programs.issues.guard import GUARD
from everlog.programs.issues.questions import QUESTIONS
from everlog.programs.issues.views import VIEWS, Current
from everlog.programs.program import Program

PROGRAM = Program(
    name="issues",
    group="issue",
    about="""An issue is named by its short id (the end of its uid), by its uid, or by a unique prefix of that. With
--scope (or the setting `scope`), issues belong to that project, and issues outside of it are not found.""",
    types=CATALOG,
    views=VIEWS,
    commands=COMMANDS,
    questions=(*QUESTIONS, Ready),
    rules=GUARD,
    shows={"issue": Current},
)
