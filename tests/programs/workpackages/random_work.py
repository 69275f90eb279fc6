"""Something that people and agents might do with work packages next."""

from __future__ import annotations

import random

from everlog.log.log import Log
from everlog.programs.command import By
from everlog.programs.perform import perform
from everlog.programs.workpackages.claiming import Claim, Release, Renew
from everlog.programs.workpackages.commands import Create, Depend, Gate, GateResult, Move, Spec, Subtask, Workspace
from everlog.programs.workpackages.events import LANES

PACKAGES = [f"WP{number:02}" for number in range(1, 7)]


def step(log: Log, chance: random.Random) -> None:
    package = chance.choice(PACKAGES)
    by = By(actor=chance.choice(["user:ada", "agent:builder"]))
    match chance.randrange(14):
        case 0:
            perform(log, Spec(slug=f"00{chance.randrange(3)}-x", title="A feature"), by)
        case 1 | 2:
            created = Create(
                id=package,
                title=chance.choice(["Index", "Merge"]),
                feature=f"00{chance.randrange(3)}-x",
                depends_on=chance.sample(PACKAGES, chance.randrange(3)),
                subtasks=["write it", "test it"][: chance.randrange(3)],
                gates=["ci"][: chance.randrange(2)],
            )
            perform(log, created, by)
        case 3:
            perform(log, Depend(id=package, on=chance.sample(PACKAGES, chance.randrange(2))), by)
        case 4:
            perform(log, Subtask(id=package, index=chance.randrange(4), text="something"), by)
        case 5:
            perform(log, Gate(id=package, gate=chance.choice(["ci", "review"])), by)
        case 6 | 7:
            perform(
                log,
                GateResult(id=package, gate="ci", verdict=chance.choice(["passed", "failed", "pending", "maybe"])),
                by,
            )
        case 8:
            perform(log, Workspace(id=package, path=f"trees/{package}", branch=chance.choice(["", "main"])), by)
        case 9 | 10:
            perform(log, chance.choice([Claim(id=package), Renew(id=package), Release(id=package)]), by)
        case _:
            reason = chance.choice(["", "it is not good enough yet"])
            perform(log, Move(id=package, to=chance.choice([*LANES, "doing", "for_review"]), reason=reason), by)
