"""Something that agents and the people around them might do next."""

from __future__ import annotations

import random

from everlog.log.log import Log
from everlog.programs.agents.commands import Approve, Execute, Fail, Propose, Reject, Validate
from everlog.programs.command import By
from everlog.programs.perform import perform


def step(log: Log, chance: random.Random) -> None:
    command = f"c{chance.randrange(8)}"
    by = By(actor=chance.choice(["user:ada", "agent:builder"]), correlation_id=f"session-{chance.randrange(3)}")
    match chance.randrange(6) if log.head() else 0:
        case 0:
            tool = chance.choice(["pytest", "ruff", "not a name"]) if log.head() else "pytest"
            perform(log, Propose(agent_id="builder", tool_name=tool, id=command), by)
        case 1:
            perform(log, Validate(id=command, valid=chance.random() < 0.8, findings=["looked at it"]), by)
        case 2:
            perform(log, Approve(id=command), by)
        case 3:
            perform(log, Reject(id=command, reason="not now"), by)
        case 4:
            perform(log, Execute(id=command, exit_code=chance.randrange(2), seconds=1.5), by)
        case _:
            perform(log, Fail(id=command, error="it stopped"), by)
