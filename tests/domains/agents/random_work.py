"""Something that agents and the people around them might do next."""

from __future__ import annotations

import random

from everlog.domains.agents import commands
from everlog.domains.agents.events import Proposed
from everlog.domains.deciding import By
from everlog.log.log import Log


def step(log: Log, chance: random.Random) -> None:
    command = f"c{chance.randrange(8)}"
    by = By(actor=chance.choice(["user:ada", "agent:builder"]), correlation_id=f"session-{chance.randrange(3)}")
    match chance.randrange(6) if log.head() else 0:
        case 0:
            tool = chance.choice(["pytest", "ruff", "not a name"]) if log.head() else "pytest"
            commands.propose(log, Proposed(agent_id="builder", tool_name=tool), id=command, by=by)
        case 1:
            commands.validate(log, command, valid=chance.random() < 0.8, findings=["looked at it"], by=by)
        case 2:
            commands.approve(log, command, by=by)
        case 3:
            commands.reject(log, command, reason="not now", by=by)
        case 4:
            commands.execute(log, command, exit_code=chance.randrange(2), seconds=1.5, by=by)
        case _:
            commands.fail(log, command, error="it stopped", by=by)
