"""What may happen to a command, decided from its history alone. Pure: nothing here reads a clock or a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.domains.agents.events import Approved, Executed, Failed, Proposed, Rejected, Validated
from everlog.errors import NoSuchSubject, RuleRefused

NEXT = {
    "pending": ("validated", "invalid", "approved", "rejected"),
    "validated": ("approved", "rejected"),
    "invalid": ("rejected",),
    "approved": ("executed", "failed"),
}
"""What may follow which status. What is not named here is an end."""

WAITING = ("pending", "validated", "invalid")
"""The statuses in which a command waits for somebody to decide."""

_BECOMES = {
    "agent.command.approved": "approved",
    "agent.command.rejected": "rejected",
    "agent.command.executed": "executed",
    "agent.command.failed": "failed",
}


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command as its events leave it."""

    id: str
    status: str
    agent_id: str = ""
    proposed_by: str = ""


def status_after(event: Event) -> str:
    """The status that an event leaves a command in."""
    if event.type == "agent.command.validated":
        return "validated" if event.payload["valid"] else "invalid"
    if event.type == "agent.command.proposed":
        return str(event.payload["validation_status"])
    return _BECOMES[event.type]


def validation_status(status: str) -> str:
    """How the decision about a command stands, in the words of seed 001."""
    return {"rejected": "rejected"}.get(status, "pending" if status in WAITING else "approved")


def command_of(command: str, events: Iterable[Event]) -> Command | None:
    """The command that a history describes; None if there is none.

    It goes by the causal order, as the views do: after two logs came together, everybody sees the same status.
    """
    found: Command | None = None
    for event in sorted(events, key=lambda event: event.causal_order):
        status = status_after(event)
        if event.type == "agent.command.proposed":
            agent = event.payload["agent_id"]
            found = Command(id=command, status=status, agent_id=agent, proposed_by=event.actor)
        else:
            found = msgspec.structs.replace(found or Command(id=command, status=status), status=status)
    return found


def propose(command: Command | None, proposal: Proposed) -> list[Any]:
    if command is not None:
        raise RuleRefused(
            f"the command {command.id} was proposed already",
            rule="a command is proposed once",
            tried=f"propose {command.id}",
            why=f"it is {command.status}",
            hint="leave --id out to get a new one",
        )
    if proposal.validation_status != "pending":
        raise RuleRefused(
            f"a command cannot be proposed as {proposal.validation_status}",
            rule="nobody approves what they proposed",
            tried=f"propose it with the validation status {proposal.validation_status}",
            allowed=["pending"],
            hint="propose it as pending, and let somebody else decide: everlog agent approve ID",
        )
    return [proposal]


def validate(command: Command | None, name: str, *, valid: bool, findings: list[str]) -> list[Any]:
    _require(command, name, "validate", "validated" if valid else "invalid")
    return [Validated(valid=valid, findings=findings)]


def approve(command: Command | None, name: str, *, actor: str, note: str = "") -> list[Any]:
    known = _require(command, name, "approve", "approved")
    if actor in (known.agent_id, f"agent:{known.agent_id}", known.proposed_by):
        raise RuleRefused(
            f"{actor} cannot approve its own command {name}",
            rule="nobody approves what they proposed",
            tried=f"approve {name} as {actor}",
            allowed=["any other actor"],
            hint=f"everlog agent approve {name} --actor user:NAME",
        )
    return [Approved(note=note)]


def reject(command: Command | None, name: str, *, reason: str) -> list[Any]:
    _require(command, name, "reject", "rejected")
    return [Rejected(reason=reason)]


def execute(command: Command | None, name: str, *, exit_code: int, seconds: float, summary: str) -> list[Any]:
    _require(command, name, "execute", "executed")
    return [Executed(exit_code=exit_code, seconds=seconds, summary=summary)]


def fail(command: Command | None, name: str, *, error: str, seconds: float) -> list[Any]:
    _require(command, name, "fail", "failed")
    return [Failed(error=error, seconds=seconds)]


_VERBS = {"approved": "approve", "rejected": "reject", "executed": "execute", "failed": "fail"}


def _require(command: Command | None, name: str, verb: str, becomes: str) -> Command:
    if command is None:
        raise NoSuchSubject(
            f"there is no command {name}",
            why="nothing was proposed under this id",
            hint="everlog agent list",
            rule="a command is proposed before anything else",
            tried=f"{verb} {name}",
        )
    allowed = NEXT.get(command.status, ())
    if becomes not in allowed:
        verbs = sorted({_VERBS.get(state, "validate") for state in allowed})
        raise RuleRefused(
            f"the command {name} cannot be {becomes}",
            rule="proposed, then validated, then approved or rejected, then executed or failed",
            tried=f"{verb} {name}",
            allowed=verbs,
            why=f"it is {command.status}" + ("" if allowed else ", and nothing follows that"),
            hint=f"everlog agent {verbs[0] if verbs else 'show'} {name}"
            + (' --reason "…"' if verbs == ["reject"] else ""),
            current=command.status,
            requested=becomes,
        )
    return command
