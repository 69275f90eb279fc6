"""Something that people and agents might do with work packages next."""

from __future__ import annotations

import random

from everlog.domains.deciding import By
from everlog.domains.workpackages import commands
from everlog.domains.workpackages.events import LANES, Created, Specified
from everlog.log.log import Log

PACKAGES = [f"WP{number:02}" for number in range(1, 7)]


def step(log: Log, chance: random.Random) -> None:
    package = chance.choice(PACKAGES)
    by = By(actor=chance.choice(["user:ada", "agent:builder"]))
    match chance.randrange(12):
        case 0:
            commands.specify(log, Specified(feature_slug=f"00{chance.randrange(3)}-x", title="A feature"), by=by)
        case 1 | 2:
            created = Created(
                work_package_id=package,
                title=chance.choice(["Index", "Merge"]),
                feature_slug=f"00{chance.randrange(3)}-x",
                dependencies=chance.sample(PACKAGES, chance.randrange(3)),
                subtasks=["write it", "test it"][: chance.randrange(3)],
            )
            commands.create(log, created, gates=["ci"][: chance.randrange(2)], by=by)
        case 3:
            commands.depend(log, package, chance.sample(PACKAGES, chance.randrange(2)), by=by)
        case 4:
            commands.complete(log, package, chance.randrange(4), text="something", by=by)
        case 5:
            commands.gate(log, package, chance.choice(["ci", "review"]), by=by)
        case 6 | 7:
            commands.judge(log, package, "ci", chance.choice(["passed", "failed", "pending", "maybe"]), by=by)
        case 8:
            commands.house(log, package, f"trees/{package}", branch=chance.choice(["", "main"]), by=by)
        case _:
            reason = chance.choice(["", "it is not good enough yet"])
            commands.move(log, package, chance.choice([*LANES, "doing", "for_review"]), reason=reason, by=by)
