"""Something that people who keep issues might do next."""

from __future__ import annotations

import random

from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.issues.commands import (
    Close,
    Comment,
    Create,
    Delete,
    Edit,
    Label,
    Link,
    Purge,
    Reopen,
    Restore,
    Unlabel,
    Unlink,
)
from everlog.programs.issues.questions import List
from everlog.programs.issues.rules import words_for
from everlog.programs.perform import ask, perform

WORDS = ("door", "squeaks", "login", "fails", "page", "slow", "fix", "again", "on", "start")
LABELS = ("bug", "p1", "ui", "Not A Label")
KINDS = ("blocks", "relates", "duplicates", "hates")


def step(log: Log, chance: random.Random) -> None:
    project = chance.choice(["house", "house", "house", "house/cellar"])
    by = By(
        actor=chance.choice(["user:ada", "agent:builder"]),
        key=chance.choice(["", "", "", f"k{chance.randrange(3)}"]),
    )
    issue, other = _some(log, chance), _some(log, chance)
    match chance.randrange(16):
        case 0 | 1 | 2 | 3:
            new = Create(
                project=project,
                title=_text(chance, 3),
                body=_text(chance, chance.randrange(6)),
                owner=chance.choice(["", "ada"]),
                labels=chance.sample(LABELS[:3], chance.randrange(3)),
                links=[f"relates:{issue}"] if chance.random() < 0.3 else [],
                force_new=chance.random() < 0.3,
            )
            perform(log, new, by)
        case 4 | 5:
            perform(
                log,
                Edit(
                    project=project,
                    issue=issue,
                    title=chance.choice([None, _text(chance, 3)]),
                    owner=_text(chance, 1),
                ),
                by,
            )
        case 6:
            perform(log, Comment(project=project, issue=issue, text=_text(chance, chance.randrange(3))), by)
        case 7:
            perform(log, Label(project=project, issue=issue, labels=chance.sample(LABELS, 2)), by)
        case 8:
            perform(log, Unlabel(project=project, issue=issue, labels=chance.sample(LABELS[:3], 2)), by)
        case 9 | 10:
            perform(log, Link(project=project, issue=issue, kind=chance.choice(KINDS), other=other), by)
        case 11:
            perform(log, Unlink(project=project, issue=issue, kind=chance.choice(KINDS[:3]), other=other), by)
        case 12:
            perform(log, chance.choice([Close, Reopen])(issue=issue, reason="so it is", project=project), by)
        case 13:
            words = words_for("delete", chance.choice([issue, issue, other]))
            perform(log, Delete(project=project, issue=issue, force=chance.random() < 0.9, confirm=words), by)
        case 14:
            perform(log, Restore(project=project, issue=issue), by)
        case _:
            words = words_for("purge", chance.choice([issue, other]))
            perform(log, Purge(project=project, issue=issue, force=True, confirm=words, reason="a request"), by)


def _some(log: Log, chance: random.Random) -> str:
    there: list[str] = [one["id"] for one in ask(log, List(status="all"))]
    return chance.choice([*there, *there, *there, "zzzz", "12"])


def _text(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(WORDS, k=count))
