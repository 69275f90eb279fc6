"""A community of people and their nodes: members and rights, a market, chats, files, documents (seed 002)."""

from __future__ import annotations

from everlog.programs.community.commands import COMMANDS
from everlog.programs.community.events import CATALOG
from everlog.programs.community.guard import GUARD
from everlog.programs.community.questions import QUESTIONS
from everlog.programs.community.views import VIEWS
from everlog.programs.program import Program

PROGRAM = Program(
    name="community",
    group="community",
    about="--scope names the community; without it, it is the one of the setting scope, or the only one in the log.",
    types=CATALOG,
    views=VIEWS,
    commands=COMMANDS,
    questions=QUESTIONS,
    rules=GUARD,
)
