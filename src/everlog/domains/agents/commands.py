"""What can be done with the commands of agents, for whoever serves people: a command line, a server, a program.

proposed = commands.propose(log, Proposed(agent_id="builder", tool_name="pytest"), by=By(actor="agent:builder"))
commands.approve(log, proposed.id, by=By(actor="user:ada"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from everlog.core.event import Recorded
from everlog.core.ids import new_id, one_spelling
from everlog.core.query import Query
from everlog.domains.agents import DOMAIN, rules
from everlog.domains.agents.events import KIND, Proposed
from everlog.domains.agents.rules import Command, command_of
from everlog.domains.agents.views import Causes, Commands, Pending, Sources, Trace, step_of
from everlog.domains.deciding import NOBODY, By, Done, decide
from everlog.errors import NoSuchSubject
from everlog.log.causes import causes_of
from everlog.log.log import Log

POSITION_DIGITS_MAX = 16  # an id has more characters

_Step = dict[str, Any]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command."""

    id: str
    status: str
    done: Done


def propose(log: Log, proposal: Proposed, *, id: str = "", by: By = NOBODY) -> Step:
    """Ask for a tool to be run. The id names the command from then on."""
    name = id or new_id().lower()
    asked = {"id": id, "proposal": msgspec.to_builtins(proposal)}
    return _step(log, name, "agent propose", asked, by, lambda found: rules.propose(found, proposal))


def validate(log: Log, command: str, *, valid: bool, findings: Sequence[str] = (), by: By = NOBODY) -> Step:
    """Record what a validator found."""
    asked = {"id": command, "valid": valid, "findings": list(findings)}
    return _step(
        log,
        command,
        "agent validate",
        asked,
        by,
        lambda found: rules.validate(found, command, valid=valid, findings=list(findings)),
    )


def approve(log: Log, command: str, *, note: str = "", by: By = NOBODY) -> Step:
    """Let a command run."""
    actor = by.actor or log.actor
    asked = {"id": command, "note": note}
    return _step(
        log, command, "agent approve", asked, by, lambda found: rules.approve(found, command, actor=actor, note=note)
    )


def reject(log: Log, command: str, *, reason: str, by: By = NOBODY) -> Step:
    """Say that a command must not run."""
    asked = {"id": command, "reason": reason}
    return _step(log, command, "agent reject", asked, by, lambda found: rules.reject(found, command, reason=reason))


def execute(
    log: Log, command: str, *, exit_code: int = 0, seconds: float = 0.0, summary: str = "", by: By = NOBODY
) -> Step:
    """Record that a command has run."""
    outcome = {"exit_code": exit_code, "seconds": seconds, "summary": summary}
    return _step(
        log,
        command,
        "agent execute",
        {"id": command, **outcome},
        by,
        lambda found: rules.execute(found, command, exit_code=exit_code, seconds=seconds, summary=summary),
    )


def fail(log: Log, command: str, *, error: str, seconds: float = 0.0, by: By = NOBODY) -> Step:
    """Record that a command could not be run to its end."""
    asked = {"id": command, "error": error, "seconds": seconds}
    return _step(
        log, command, "agent fail", asked, by, lambda found: rules.fail(found, command, error=error, seconds=seconds)
    )


# ---- asking


def show(log: Log, command: str) -> dict[str, Any]:
    """One command as it stands."""
    answer = log.view(Commands).get(_stream(command))
    if not answer.found:
        raise NoSuchSubject(
            f"there is no command {command}", why="nothing was proposed under this id", hint="everlog agent list"
        )
    return {"id": command, **answer.state}


def listed(log: Log, *, status: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Every command, the oldest first; or those of a status, such as pending."""
    wanted = set(status)
    found = [{"id": key.partition("/")[2], **state} for key, state in log.view(Commands).items()]
    there = [one for one in found if not wanted or one["status"] in wanted]
    return sorted(there, key=lambda one: (one["proposed_at"], one["id"]))


def pending(log: Log) -> list[dict[str, Any]]:
    """What waits for somebody to decide, the oldest first. It costs what waits, not what was ever proposed."""
    waiting = [{"id": name, **row} for _, rows in log.view(Pending).items() for name, row in rows.items()]
    return sorted(waiting, key=lambda row: (row["proposed_at"], row["id"]))


def sources(log: Log) -> list[dict[str, Any]]:
    """Who takes part, and how much each has done."""
    return [{"source": key, **state} for key, state in log.view(Sources).items()]


def trace(log: Log, session: str) -> list[dict[str, Any]]:
    """The steps of a session, each with the step that caused it and how deep below the first one it is."""
    answer = log.view(Trace).get(session)
    if not answer.found:
        raise NoSuchSubject(
            f"there is no session {session}",
            why="no step has this correlation id",
            hint="everlog agent list --json shows the session of each command",
        )
    steps = answer.state["steps"]
    here = {step["id"] for step in steps}
    effects: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        cause = one_spelling(step["caused_by"])
        effects.setdefault(cause if cause in here else "", []).append(step)
    return _tree(effects.get("", []), lambda step: effects.get(step["id"], []))


def causes(log: Log, event: str) -> list[dict[str, Any]]:
    """The tree of causes that an event is part of, over all streams: from what began it to all that followed.

    The event is named by its id, or by its position as `#12` or `12`.
    """
    place = event.removeprefix("#")
    asked = log.at(int(place)) if place.isdecimal() and len(place) <= POSITION_DIGITS_MAX else log.get(event)
    if asked is None:
        raise NoSuchSubject(
            f"there is no event {event}", why="the log has none at this place", hint="everlog log shows what there is"
        )
    above, _ = causes_of(log, asked)
    root = above[-1] if above else asked
    view = log.view(Causes)
    first = {**step_of(root.event), "asked": root.event.id == asked.event.id}

    def effects(step: dict[str, Any]) -> list[dict[str, Any]]:
        answer = view.get(step["id"], fresh=step is first)
        found = answer.state["effects"] if answer.found else []
        return [{**effect, "asked": effect["id"] == asked.event.id} for effect in found]

    return _tree([first], effects)


# ---- inside


def _tree(roots: list[_Step], below: Callable[[_Step], list[_Step]]) -> list[_Step]:
    """Steps with their depth, each right above what it led to. What claims to have caused itself is met once."""
    found, seen = [], set()
    waiting = [(step, 0) for step in reversed(roots)]
    while waiting:
        step, depth = waiting.pop()
        if step["id"] in seen:
            continue
        seen.add(step["id"])
        found.append({**step, "depth": depth})
        waiting += [(effect, depth + 1) for effect in reversed(below(step))]
    return found


def _step(
    log: Log, command: str, operation: str, asked: Any, by: By, rule: Callable[[Command | None], Iterable[Any]]
) -> Step:
    stream = _stream(command)
    by = _chained(log, stream, by)

    def decision(history: Sequence[Recorded]) -> Iterable[Any]:
        return rule(command_of(command, (recorded.event for recorded in history)))

    done = decide(
        log,
        DOMAIN,
        looks_at=Query(stream=stream),
        stream=stream,
        by=by,
        operation=operation,
        request=asked,
        rule=decision,
    )
    last = done.events[-1]
    return Step(id=last.stream.partition("/")[2], status=rules.status_after(last), done=done)


def _chained(log: Log, stream: str, by: By) -> By:
    """A step follows from the one before it and belongs to the same session, unless it is said otherwise."""
    if by.causation_id and by.correlation_id:
        return by
    before = next(log.read(Query(stream=stream), limit=1, newest_first=True), None)
    if before is None:
        return by
    return msgspec.structs.replace(
        by,
        causation_id=by.causation_id or before.event.id,
        correlation_id=by.correlation_id or before.event.correlation_id,
    )


def _stream(command: str) -> str:
    return f"{KIND}/{command}"
