"""Something that people who keep issues might do next."""

from __future__ import annotations

import random

from everlog.domains.deciding import By
from everlog.domains.issues import asking, commands
from everlog.domains.issues.commands import New
from everlog.domains.issues.rules import words_for
from everlog.log.log import Log

WORDS = ("door", "squeaks", "login", "fails", "page", "slow", "fix", "again", "on", "start")
LABELS = ("bug", "p1", "ui", "Not A Label")
KINDS = ("blocks", "relates", "duplicates", "hates")


def step(log: Log, chance: random.Random) -> None:
    by = By(
        actor=chance.choice(["user:ada", "agent:builder"]),
        scope=chance.choice(["house", "house", "house", "house/cellar"]),
        key=chance.choice(["", "", "", f"k{chance.randrange(3)}"]),
    )
    issue, other = _some(log, chance), _some(log, chance)
    match chance.randrange(16):
        case 0 | 1 | 2 | 3:
            new = New(
                title=_text(chance, 3),
                body=_text(chance, chance.randrange(6)),
                owner=chance.choice(["", "ada"]),
                labels=tuple(chance.sample(LABELS[:3], chance.randrange(3))),
                links=(("relates", issue),) if chance.random() < 0.3 else (),
            )
            commands.create(log, new, force_new=chance.random() < 0.3, by=by)
        case 4 | 5:
            commands.edit(log, issue, title=chance.choice([None, _text(chance, 3)]), owner=_text(chance, 1), by=by)
        case 6:
            commands.comment(log, issue, _text(chance, chance.randrange(3)), by=by)
        case 7:
            commands.label(log, issue, chance.sample(LABELS, 2), by=by)
        case 8:
            commands.unlabel(log, issue, chance.sample(LABELS[:3], 2), by=by)
        case 9 | 10:
            commands.link(log, issue, chance.choice(KINDS), other, by=by)
        case 11:
            commands.remove_link(log, issue, chance.choice(KINDS[:3]), other, by=by)
        case 12:
            chance.choice([commands.close, commands.reopen])(log, issue, reason="so it is", by=by)
        case 13:
            words = words_for("delete", chance.choice([issue, issue, other]))
            commands.delete(log, issue, force=chance.random() < 0.9, confirm=words, by=by)
        case 14:
            commands.restore(log, issue, by=by)
        case _:
            words = words_for("purge", chance.choice([issue, other]))
            commands.purge(log, issue, force=True, confirm=words, reason="a request", by=by)


def _some(log: Log, chance: random.Random) -> str:
    there: list[str] = [one["id"] for one in asking.listed(log, states=asking.STATES)]
    return chance.choice([*there, *there, *there, "zzzz", "12"])


def _text(chance: random.Random, count: int) -> str:
    return " ".join(chance.choices(WORDS, k=count))
