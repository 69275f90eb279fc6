"""What can be done with the commands of agents, for whoever serves people: a command line, a server, a program.

proposed = commands.propose(log, Proposed(agent_id="builder", tool_name="pytest"), by=By(actor="agent:builder"))
commands.approve(log, proposed.id, by=By(actor="user:ada"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from everlog.core.event import Recorded
from everlog.core.ids import IdSource
from everlog.core.query import Query
from everlog.domains.agents import DOMAIN, rules
from everlog.domains.agents.events import KIND, Proposed
from everlog.domains.agents.rules import Command, command_of
from everlog.domains.agents.views import Commands, Trace
from everlog.domains.deciding import NOBODY, By, Done, decide
from everlog.errors import NoSuchSubject
from everlog.log.log import Log

_ids = IdSource()


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a command."""

    id: str
    status: str
    done: Done


def propose(log: Log, proposal: Proposed, *, id: str = "", by: By = NOBODY) -> Step:
    """Ask for a tool to be run. The id names the command from then on."""
    name = id or _ids.take(1)[0].lower()
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
    return [one for one in found if not wanted or one["status"] in wanted]


def pending(log: Log) -> list[dict[str, Any]]:
    """What waits for somebody to decide."""
    return listed(log, status=("pending", "validated", "invalid"))


def trace(log: Log, session: str) -> list[dict[str, Any]]:
    """The steps of a session, each with the step that caused it and how deep below the first one it is."""
    answer = log.view(Trace).get(session)
    if not answer.found:
        raise NoSuchSubject(
            f"there is no session {session}",
            why="no step has this correlation id",
            hint="everlog agent list --json shows the session of each command",
        )
    depths: dict[str, int] = {}
    for step in answer.state["steps"]:
        depths[step["id"]] = depths.get(step["caused_by"], -1) + 1
    return [{**step, "depth": depths[step["id"]]} for step in answer.state["steps"]]


# ---- inside


def _step(
    log: Log, command: str, operation: str, asked: Any, by: By, rule: Callable[[Command | None], Iterable[Any]]
) -> Step:
    stream = _stream(command)

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


def _stream(command: str) -> str:
    return f"{KIND}/{command}"
