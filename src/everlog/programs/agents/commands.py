"""The commands of the agents program: propose, validate, approve, reject, execute, fail.

perform(log, Propose(agent_id="builder", tool_name="pytest", id="c1"), By(actor="agent:builder"))
perform(log, Approve(id="c1"), By(actor="user:ada"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from everlog.core.ids import new_id
from everlog.core.query import Query
from everlog.programs.agents.events import (
    KIND,
    AgentId,
    Approved,
    Executed,
    Failed,
    Finding,
    Proposed,
    Reason,
    Rejected,
    Risk,
    Seconds,
    Text,
    ToolName,
    Validated,
)
from everlog.programs.agents.rules import status_after
from everlog.programs.command import By, Command, Decision, Plan

if TYPE_CHECKING:
    from everlog.log.log import Log

Id = Annotated[str, Meta(description="The command's id.")]


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """A command, and the status that it has now."""

    id: str
    status: str = msgspec.field(name="becomes")


class AgentCommand(Command[CommandResult], frozen=True, kw_only=True):
    """What all commands of this program share: the stream of the command, its session, and the label."""

    shared = ("scope",)
    scope: Annotated[str, Meta(description="The scope of the events, such as acme/shop/prod.")] = ""

    def stream(self) -> str:
        return f"{KIND}/{getattr(self, 'id') or new_id().lower()}"  # noqa: B009 - every command has an id

    def fingerprint(self) -> Any:
        found: dict[str, Any] = msgspec.to_builtins(self)
        del found["scope"]  # the key is looked up in the scope
        return found

    def result(self, decision: Decision) -> CommandResult:
        last = decision.events[-1]
        return CommandResult(id=last.stream.partition("/")[2], status=status_after(last))

    def plan(self, log: Log, by: By) -> Plan[CommandResult]:
        plan = Command.plan(self, log, by)
        return msgspec.structs.replace(plan, by=_chained(log, plan.stream, by))


class Propose(AgentCommand, frozen=True, kw_only=True):
    """Ask for a tool to be run, with its input as a JSON object."""

    verb = "propose"
    examples = ('propose run_tests \'{"path": "tests"}\' --agent-id builder --correlation session-7',)
    example: ClassVar[dict[str, Any]] = {
        "tool_name": "run_tests",
        "tool_input": {"path": "tests"},
        "agent_id": "builder",
    }
    tool_name: Annotated[ToolName, Meta(description="The tool to run, such as run_tests.")]
    tool_input: Annotated[dict[str, Any], Meta(description="The input of the tool, an object.")] = msgspec.field(
        default_factory=dict
    )
    agent_id: Annotated[AgentId, Meta(description="The agent that asks.")]
    why: Annotated[Text, Meta(description="What the command is for.")] = ""
    risk: Annotated[Risk, Meta(description="How much can go wrong.")] = "medium"
    id: Annotated[str, Meta(description="The command's id (default: a new one).")] = ""

    def event(self) -> Proposed:
        return Proposed(
            agent_id=self.agent_id,
            tool_name=self.tool_name,
            tool_input=self.tool_input,
            why=self.why,
            risk=self.risk,
        )

    def fingerprint(self) -> Any:
        return {"id": self.id, "proposal": msgspec.to_builtins(self.event())}


class Validate(AgentCommand, frozen=True, kw_only=True):
    """Record what a validator found."""

    verb = "validate"
    examples = ('validate c1 --invalid --finding "it deletes the database"',)
    example: ClassVar[dict[str, Any]] = {"id": "c1", "valid": False, "findings": ["it deletes the database"]}
    id: Id
    valid: Annotated[bool, Meta(description="Whether the command may be approved.")] = True
    findings: Annotated[list[Finding], Meta(description="What was found; may be repeated.")] = msgspec.field(
        default_factory=list
    )

    def event(self) -> Validated:
        return Validated(valid=self.valid, findings=list(self.findings))


class Approve(AgentCommand, frozen=True, kw_only=True):
    """Approve a proposed command, so that it may run."""

    verb = "approve"
    examples = ("approve c1 --actor user:ada",)
    example: ClassVar[dict[str, Any]] = {"id": "c1"}
    id: Id
    note: Annotated[Text, Meta(description="A note for the record.")] = ""

    def event(self) -> Approved:
        return Approved(note=self.note)


class Reject(AgentCommand, frozen=True, kw_only=True):
    """Reject a proposed command, so that it never runs."""

    verb = "reject"
    examples = ('reject c1 --reason "not on a Friday"',)
    example: ClassVar[dict[str, Any]] = {"id": "c1", "reason": "not on a Friday"}
    id: Id
    reason: Annotated[Reason, Meta(description="Why the command is rejected.")]

    def event(self) -> Rejected:
        return Rejected(reason=self.reason)


class Execute(AgentCommand, frozen=True, kw_only=True):
    """Record that a command has run."""

    verb = "execute"
    examples = ("execute c1 --exit-code 0 --seconds 12.5",)
    example: ClassVar[dict[str, Any]] = {"id": "c1", "exit_code": 0, "seconds": 12.5}
    id: Id
    exit_code: Annotated[int, Meta(description="The exit code of the tool.")] = 0
    seconds: Annotated[Seconds, Meta(description="How long it took.")] = 0.0
    summary: Annotated[Text, Meta(description="The result in a few words.")] = ""

    def event(self) -> Executed:
        return Executed(exit_code=self.exit_code, seconds=self.seconds, summary=self.summary)


class Fail(AgentCommand, frozen=True, kw_only=True):
    """Record that a command could not be completed."""

    verb = "fail"
    examples = ('fail c1 --error "the machine was restarted"',)
    example: ClassVar[dict[str, Any]] = {"id": "c1", "error": "the machine was restarted"}
    id: Id
    error: Annotated[Reason, Meta(description="What went wrong.")]
    seconds: Annotated[Seconds, Meta(description="How long it took.")] = 0.0

    def event(self) -> Failed:
        return Failed(error=self.error, seconds=self.seconds)


COMMANDS = (Propose, Validate, Approve, Reject, Execute, Fail)


def _chained(log: Log, stream: str, by: By) -> By:
    """Let a step follow from the one before it and belong to the same session, unless the caller says otherwise."""
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
