"""Agents that ask before they act: by themselves at night, and for the work packages by day."""

from __future__ import annotations

import random
from collections.abc import Generator
from datetime import datetime

from everlog.core.event import Event
from everlog.demo.week import BUILDER, PEOPLE, REVIEWER, Thread, Week, chance_of
from everlog.log.log import Log
from everlog.programs.agents.commands import Approve, Execute, Fail, Propose, Reject, Validate
from everlog.programs.agents.events import Risk
from everlog.programs.perform import perform

SESSIONS = 42
"""A session that is shown."""

TOOLS: tuple[tuple[str, str, Risk, str], ...] = (
    ("run_tests", "tests", "low", "the last change touched it"),
    ("read_file", "src/cart.py", "low", "to see how totals are rounded"),
    ("edit_file", "src/cart.py", "medium", "round once, at the end"),
    ("run_linter", "src", "low", "before anybody looks at it"),
    ("git_push", "origin/main", "high", "the branch is ready"),
    ("drop_index", "orders_by_day", "high", "nothing reads it any more"),
)


def threads(log: Log, week: Week) -> list[Thread]:
    return [_session(log, week, number) for number in range(SESSIONS)]


def _session(log: Log, week: Week, number: int) -> Thread:
    """Play one night of an agent: a few commands, each because of the one before."""
    chance, session = chance_of("session", number), f"night-{number:02}"
    yield week.on(number % 7, 19 + (number // 7) * 0.7)
    cause = ""
    for turn in range(chance.randint(3, 5)):
        tool = TOOLS[(number + turn) % len(TOOLS)]
        thread = run(log, week, chance, tool, session=session, cause=cause, agent=BUILDER)
        last = yield from thread
        if last is None:
            return
        cause = last.id


def run(
    log: Log,
    week: Week,
    chance: random.Random,
    tool: tuple[str, str, Risk, str],
    *,
    session: str,
    cause: str,
    agent: str,
    scope: str = "acme/shop",
) -> Generator[datetime, None, Event | None]:
    """Run one command from its proposal to its end, and return its last event; None if it came to nothing."""
    name, target, risk, why = tool
    asked = Propose(
        agent_id=agent.partition(":")[2],
        tool_name=name,
        tool_input={"target": target},
        why=why,
        risk=risk,
        scope=scope,
    )
    command = perform(log, asked, week.by(agent, correlation_id=session, causation_id=cause)).result.id
    yield week.after(chance.uniform(0.1, 1))
    valid = not (name == "drop_index" and chance.random() < 0.5)
    findings = [] if valid else ["an index of a table that is in use"]
    perform(log, Validate(id=command, scope=scope, valid=valid, findings=findings), week.by("service:validator"))
    yield week.after(chance.uniform(1, 6))
    if not valid or (risk == "high" and chance.random() < 0.3):
        perform(
            log,
            Reject(id=command, scope=scope, reason=findings[0] if findings else "not before the review"),
            week.by(PEOPLE[0]),
        )
        return None
    decides = PEOPLE[chance.randrange(4)] if risk == "high" else REVIEWER
    perform(log, Approve(id=command, scope=scope, note="" if risk == "low" else "go on"), week.by(decides))
    yield week.after(chance.uniform(0.2, 4))
    seconds = round(chance.uniform(0.2, 95), 1)
    if chance.random() < 0.08:
        perform(
            log, Fail(id=command, scope=scope, error="the machine was restarted", seconds=seconds), week.by(agent)
        )
        return None
    code = 1 if name == "run_tests" and chance.random() < 0.2 else 0
    done = perform(log, Execute(id=command, scope=scope, exit_code=code, seconds=seconds), week.by(agent))
    last: Event = done.events[-1]
    return last
