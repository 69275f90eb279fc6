"""Commands and questions as values: one struct for each, from which every surface is built.

    class Reject(AgentCommand, frozen=True, kw_only=True):
        \"\"\"Reject a proposed command, so that it never runs.\"\"\"    # help text, OpenAPI summary, tool

        verb = "reject"
        examples = ('reject c1 --reason "not on a Friday"',)
        reason: Annotated[Reason, Meta(description="Why the command is rejected.")]  # option, JSON field, tool input

        def event(self) -> Rejected:
            return Rejected(reason=self.reason)

A command names its stream, what it looks at, and which events it wants to record; the guard of its
program judges them, as it judges every local writer. Everything here is light to import: `everlog agent --help` loads
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from everlog.core.event import Event, Recorded
from everlog.core.query import Looks, Query
from everlog.errors import EverlogError
from everlog.programs.policy import Policy

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.log.write.draft import Draft, Receipt
    from everlog.programs.perform import History

R = TypeVar("R")


class By(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs a command, what connects it to others, and what the caller may see and touch. All of it is optional.

    `within` is set by the surface (command line, server), never by the request.
    """

    actor: str = ""
    within: str = ""  # a scope: what is outside of it does not exist for this caller
    key: str = ""  # makes a retry safe
    at: datetime | None = None  # when it happened, if not now
    request_id: str = ""
    causation_id: str = ""
    correlation_id: str = ""
    tags: Mapping[str, str] = {}  # of every event that the command records
    dry_run: bool = False


NOBODY = By()


class On(msgspec.Struct, frozen=True):
    """A payload for another stream than the one that the command is about."""

    stream: str
    payload: Any


class CarryOut(Protocol):
    """Records drafts, and does what must happen in the same write, such as a purge."""

    def __call__(
        self, drafts: Sequence[Draft], *, key: str, operation: str, request: Any, key_scope: str
    ) -> Receipt: ...


class Decision(msgspec.Struct, frozen=True):
    """What was recorded. `replayed`: an earlier attempt under the same key had recorded it."""

    records: Sequence[Recorded]
    replayed: bool = False
    dry_run: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(recorded.event for recorded in self.records)


class Outcome(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """The result of a command.

    `status` is recorded, unchanged (there was nothing to do) or dry_run; `next` says what is worth doing now.
    """

    result: R
    status: str
    records: Sequence[Recorded]
    next: tuple[str, ...] = ()
    replayed: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(recorded.event for recorded in self.records)


class Plan(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """How a command is decided: where it records, what it looks at, what it wants to record, what it answers."""

    stream: str
    looks_at: Looks | Sequence[Looks]
    decide: Callable[[History], Iterable[Any]]
    result: Callable[[Decision], R]
    by: By
    scope: str = ""  # the label on its events
    key_scope: str | None = None  # where a key names one request, if that is not `scope`
    confined: bool = True  # False: the plan keeps to `within` itself, and must see more to decide
    carry_out: CarryOut | None = None
    request: Any = None  # what makes two requests the same, if only the plan knows it
    next: Callable[[Decision], tuple[str, ...]] = lambda decision: ()


class Command(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A request to change something. The docstring is the help text; a field's description explains it."""

    verb: ClassVar[str] = ""  # how it is typed, after the name of the program's group
    operation: ClassVar[str] = ""  # the name in keys and refusals; "GROUP VERB" if empty
    examples: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[Mapping[str, Any]] = {}  # the first of the examples, as JSON
    shared: ClassVar[tuple[str, ...]] = ()  # the fields that all commands of the program have
    policy: ClassVar[Policy] = Policy(role="append", scope="within", idempotent=False)
    problems: ClassVar[tuple[str, ...]] = ()  # codes of refusals, beside those that every command may report
    judged: ClassVar[bool] = False  # True: its rules are part of `decide`, so the guard does not judge it again

    def check(self) -> None:
        """Refuse fields that contradict each other, before anything is read."""

    def stream(self) -> str:
        """Return the stream on which the command records. Called once."""
        raise NotImplementedError

    def label(self) -> str:
        """Return the scope on the events of this command; empty if there is none."""
        return str(getattr(self, "scope", ""))

    def looks_at(self, stream: str) -> Looks | Sequence[Looks]:
        """Return what must not change between the decision and its record."""
        return Query(stream=stream)

    def event(self) -> Any:
        """Return the payload of the one event that this command records."""
        raise NotImplementedError

    def decide(self, history: History, by: By) -> Iterable[Any]:
        """Return the payloads to record; none, if there is nothing to do."""
        return [self.event()]

    def fingerprint(self) -> Any:
        """Return what makes two requests under one key the same. It never changes: old keys must still replay."""
        return msgspec.to_builtins(self)

    def result(self, decision: Decision) -> R:
        """Return the answer. Reading the log again for it would be a race."""
        raise NotImplementedError

    def plan(self, log: Log, by: By) -> Plan[R]:
        """Return how this command is decided. Only a command that must look something up overrides this."""
        stream = self.stream()
        return Plan(
            stream=stream,
            looks_at=self.looks_at(stream),
            decide=lambda history: self.decide(history, by),
            result=self.result,
            by=by,
            scope=self.label(),
        )

    def refused(self, log: Log, error: EverlogError) -> EverlogError:
        """Return a refusal as its caller gets it; it may know more than the recorded one."""
        return error

    def subject(self) -> str:
        """Return the stream to name in a refusal that comes before there is a plan."""
        return ""


class Question(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A request for information. `columns` are those of its rows in a table or a pipe, if it answers with rows."""

    verb: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[Mapping[str, Any]] = {}
    shared: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[tuple[str, ...]] = ()
    waits: ClassVar[bool] = False  # True: it may wait for something to happen
    policy: ClassVar[Policy] = Policy(role="read", scope="within")
    problems: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Refuse fields that contradict each other."""

    def answer(self, log: Log, within: str) -> R:
        """Return the answer. What is outside of `within` does not exist."""
        raise NotImplementedError


class Action(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A request that changes something or takes long, and that no rule of a program decides: an append, a purge, the
    rebuild of a view."""

    verb: ClassVar[str] = ""
    example: ClassVar[Mapping[str, Any]] = {}
    policy: ClassVar[Policy] = Policy(role="admin", scope="log", idempotent=False)
    keyed: ClassVar[bool] = False  # True: it takes a key, which makes a retry safe
    long: ClassVar[bool] = False  # True: it may take minutes, so a server answers with a job
    waits: ClassVar[bool] = False  # True: it may wait for something to happen
    problems: ClassVar[tuple[str, ...]] = ()

    def check(self) -> None:
        """Refuse fields that contradict each other."""

    def run(self, log: Log, by: By, progress: Callable[[int], None] = lambda position: None) -> Done[R]:
        """Do it. What is outside of `by.within` does not exist."""
        raise NotImplementedError


class Done(msgspec.Struct, Generic[R], frozen=True):
    """The result of an action. `replayed`: an earlier attempt under the same key did it."""

    result: R
    replayed: bool = False


class PerformsElsewhere:
    """A log behind a server: commands are carried out, and questions are answered, where it is."""

    def perform(self, command: Command[R], by: By = NOBODY) -> Outcome[R]:
        raise NotImplementedError

    def ask(self, question: Question[R], *, within: str = "") -> R:
        raise NotImplementedError


def facts_of(result: Any) -> dict[str, Any]:
    """Return a result as JSON shows it."""
    found: dict[str, Any] = result.facts() if hasattr(result, "facts") else msgspec.to_builtins(result)
    return found
