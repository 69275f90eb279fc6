"""What happens to a command that an agent wants to run. The stream is `command/ID`, one per command."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from everlog.catalog.catalog import Catalog

CATALOG = Catalog()
KIND = "command"

AgentId = Annotated[str, Meta(min_length=1, max_length=128)]
ToolName = Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128, description="a name, such as run_tests")
]
Reason = Annotated[str, Meta(min_length=1, max_length=2_000)]
Text = Annotated[str, Meta(max_length=2_000)]
Finding = Annotated[str, Meta(max_length=500)]
Seconds = Annotated[float, Meta(ge=0)]
Risk = Literal["low", "medium", "high"]
ValidationStatus = Literal["pending", "approved", "rejected"]


@CATALOG.event("agent.command.proposed", version=1)
class ProposedV1(msgspec.Struct, frozen=True, kw_only=True):
    """An agent wants to run a tool."""

    agent_id: AgentId
    tool_name: ToolName
    tool_input: dict[str, Any] = {}
    validation_status: ValidationStatus = "pending"


@CATALOG.event("agent.command.proposed", version=2)
class Proposed(msgspec.Struct, frozen=True, kw_only=True):
    """An agent wants to run a tool. What was decided elsewhere before it came here is its validation status."""

    agent_id: AgentId
    tool_name: ToolName
    tool_input: dict[str, Any] = {}
    validation_status: ValidationStatus = "pending"
    why: Text = ""
    risk: Risk = "medium"


@CATALOG.upcaster("agent.command.proposed", from_version=1)
def say_nothing_of_why_and_risk(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "why": "", "risk": "medium"}


@CATALOG.event("agent.command.validated")
class Validated(msgspec.Struct, frozen=True, kw_only=True):
    """A validator looked at a command before the decision about it."""

    valid: bool
    findings: list[Finding] = []


@CATALOG.event("agent.command.approved")
class Approved(msgspec.Struct, frozen=True, kw_only=True):
    """An actor lets the command run."""

    note: Text = ""


@CATALOG.event("agent.command.rejected")
class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """An actor decides that the command must not run."""

    reason: Reason


@CATALOG.event("agent.command.executed")
class Executed(msgspec.Struct, frozen=True, kw_only=True):
    """The command has run."""

    exit_code: int = 0
    seconds: Seconds = 0.0
    summary: Text = ""


@CATALOG.event("agent.command.failed")
class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The command could not be completed."""

    error: Reason
    seconds: Seconds = 0.0
