"""What may happen to a command, decided from its history alone. Pure: nothing here reads a clock or a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused
from everlog.programs.agents.events import KIND, Approved, Executed, Failed, Proposed, Rejected, Validated
from everlog.programs.program import guard_of_stream

NEXT = {
    "pending": ("validated", "invalid", "approved", "rejected"),
    "validated": ("approved", "rejected"),
    "invalid": ("rejected",),
    "approved": ("executed", "failed"),
}
"""What may follow which status. Nothing follows a status that is not listed."""

WAITING = ("pending", "validated", "invalid")
"""The statuses in which a command waits for a decision."""

_BECOMES = {
    "agent.command.approved": "approved",
    "agent.command.rejected": "rejected",
    "agent.command.executed": "executed",
    "agent.command.failed": "failed",
}


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A command as its events leave it. Without a status, nothing was recorded under this id."""

    id: str
    status: str = ""
    agent_id: str = ""
    proposed_by: str = ""


def status_after(event: Event) -> str:
    """Return the status that an event leaves a command in."""
    if event.type == "agent.command.validated":
        return "validated" if event.payload["valid"] else "invalid"
    if event.type == "agent.command.proposed":
        return str(event.payload["validation_status"])
    return _BECOMES[event.type]


def validation_status(status: str) -> str:
    """Return the state of the decision about a command, in the words of seed 001."""
    return {"rejected": "rejected"}.get(status, "pending" if status in WAITING else "approved")


def command_of(name: str, events: Iterable[Event]) -> State:
    """Return the command that a history describes.

    It goes by the causal order, as the views do: after two logs were merged, everyone sees the same status. Events of
    other programs on the stream do not count.
    """
    found = State(id=name)
    for event in sorted(events, key=lambda event: event.causal_order):
        if event.type == "agent.command.proposed":
            agent = event.payload["agent_id"]
            found = State(id=name, status=status_after(event), agent_id=agent, proposed_by=event.actor)
        elif event.type in _BECOMES or event.type == "agent.command.validated":
            found = msgspec.structs.replace(found, status=status_after(event))
    return found


def judge(command: State, payload: Any, actor: str) -> None:
    """Refuse an event that must not follow the history of a command."""
    match payload:
        case Proposed():
            _judge_proposed(command, payload)
        case Validated():
            _require_next(command, "validate", "validated" if payload.valid else "invalid")
        case Approved():
            _require_next(command, "approve", "approved")
            _refuse_own(command, actor)
        case Rejected():
            _require_next(command, "reject", "rejected")
        case Executed():
            _require_next(command, "execute", "executed")
        case Failed():
            _require_next(command, "fail", "failed")


GUARD = guard_of_stream(KIND, command_of, judge)


def _judge_proposed(command: State, proposal: Proposed) -> None:
    if command.status:
        raise RuleRefused(
            f"the command {command.id} was already proposed",
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
            hint="propose it as pending, and let another actor decide: everlog agent approve ID",
        )


def _refuse_own(command: State, actor: str) -> None:
    if actor in (command.agent_id, f"agent:{command.agent_id}", command.proposed_by):
        raise RuleRefused(
            f"{actor} cannot approve its own command {command.id}",
            rule="nobody approves what they proposed",
            tried=f"approve {command.id} as {actor}",
            allowed=["any other actor"],
            hint=f"everlog agent approve {command.id} --actor user:NAME",
        )


_VERBS = {"approved": "approve", "rejected": "reject", "executed": "execute", "failed": "fail"}


def _require_next(command: State, verb: str, becomes: str) -> None:
    name = command.id
    if not command.status:
        raise NoSuchSubject(
            f"there is no command {name}",
            why="nothing was proposed under this id",
            hint="everlog agent list",
            rule="a command is proposed before anything else",
            tried=f"{verb} {name}",
        )
    allowed = NEXT.get(command.status, ())
    if becomes in allowed:
        return
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
