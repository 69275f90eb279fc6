"""The commands of the workpackages program: spec, create, depend, move, subtask, gate, result of a gate, workspace.

perform(log, Create(id="WP03", title="Index", gates=["ci"]), By(actor="user:ada"))
perform(log, Move(id="WP03", to="doing"), By(actor="agent:builder"))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from everlog.core.event import Position
from everlog.core.query import Query
from everlog.programs.command import By, Command, Decision, Plan
from everlog.programs.workpackages import rules
from everlog.programs.workpackages.events import SPEC_KIND, Created, Specified
from everlog.programs.workpackages.package import (
    State,
    lane_of,
    lane_query,
    lanes_of,
    needs_of,
    package_of_records,
    stream_of,
)
from everlog.programs.workpackages.views import Board

if TYPE_CHECKING:
    from everlog.log.log import Log
    from everlog.programs.perform import History

R = TypeVar("R")
Id = Annotated[str, Meta(description="The work package, such as WP03.")]


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """The feature that was described."""

    feature: str


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A work package, and the lane that it is in now."""

    id: str
    lane: str


class PackageSubtask(Package, frozen=True, kw_only=True):
    subtask: int


class PackageGate(Package, frozen=True, kw_only=True):
    gate: str


class PackageWorkspace(Package, frozen=True, kw_only=True):
    path: str


class Labelled(Command[R], frozen=True, kw_only=True):
    """What all commands of this program share."""

    shared = ("scope",)
    judged = True
    scope: Annotated[str, Meta(description="The scope of the events, such as acme/shop/prod.")] = ""


class Spec(Labelled[Feature], frozen=True, kw_only=True):
    """Describe a feature that work packages can be planned for."""

    verb = "spec"
    examples = ('spec 025-event-log "Event log" --mission "Nothing is forgotten"',)
    example: ClassVar[dict[str, Any]] = {
        "slug": "025-event-log",
        "title": "Event log",
        "mission": "Nothing is forgotten",
    }
    slug: Annotated[str, Meta(description="The name of the feature, such as 025-event-log.")]
    title: Annotated[str, Meta(description="The title.")]
    mission: Annotated[str, Meta(description="What it is for.")] = ""

    def stream(self) -> str:
        return f"{SPEC_KIND}/{self.slug}"

    def event(self) -> Specified:
        return Specified(feature_slug=self.slug, title=self.title, mission=self.mission)

    def decide(self, history: History, by: By) -> Iterable[Any]:
        rules.require_id("slug of a feature", self.slug, 'everlog wp spec 025-event-log "TITLE"')
        return rules.specify(bool(history), self.event())

    def fingerprint(self) -> Any:
        return msgspec.to_builtins(self.event())

    def result(self, decision: Decision) -> Feature:
        return Feature(feature=self.slug)


class PackageCommand(Labelled[R], frozen=True, kw_only=True):
    """A command about one work package: it decides from its events, and reads other packages as it needs them."""

    types: ClassVar[frozenset[str]] = frozenset(Board.types)  # of the events that it decides from

    def package(self) -> str:
        return str(getattr(self, "id"))  # noqa: B009 - every command has an id

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        """Return the payloads to record, from the package as its events leave it."""
        raise NotImplementedError

    def wants(self, package: State | None, history: History, by: By) -> Iterable[Any]:
        return self.rule(package, history)

    def answer(self, lane: str) -> Any:
        return Package(id=self.package(), lane=lane)

    def after(self) -> Sequence[str]:
        """Return the packages that this command wants to come first."""
        return ()

    def plan(self, log: Log, by: By) -> Plan[R]:
        stream, seen = stream_of(self.package()), _Seen()

        def decide(history: History) -> Iterable[Any]:
            package = package_of_records(history)
            seen.lane = lane_of(package) or ""
            found = list(self.wants(package, history, by))
            seen.needs = needs_of(history, self.after())
            return found

        return Plan(
            stream=stream,
            looks_at=Query(stream=stream, types=self.types),
            decide=decide,
            result=lambda decision: self.answer(_lane_after(log, self.package(), seen.lane, decision)),
            next=lambda decision: _missing(log, self.after(), seen.needs, decision),
            by=by,
            scope=self.scope,
        )


class _Seen(msgspec.Struct):
    """What a decision was based on; nothing, if it was a replay."""

    lane: str = ""
    needs: Mapping[str, Sequence[str] | None] = {}


class Create(PackageCommand[Package], frozen=True, kw_only=True):
    """Plan a work package."""

    verb = "create"
    examples = ('create WP03 "Index" --feature 025-event-log --depends-on WP01 --subtask "write it" --gate ci',)
    example: ClassVar[dict[str, Any]] = {
        "id": "WP03",
        "title": "Index",
        "feature": "025-event-log",
        "depends_on": ["WP01"],
        "subtasks": ["write it"],
        "gates": ["ci"],
    }
    id: Id
    title: Annotated[str, Meta(description="The title.")]
    feature: Annotated[str, Meta(description="The feature that it is for.")] = ""
    depends_on: Annotated[list[str], Meta(description="A package that must be done first; may be repeated.")] = (
        msgspec.field(default_factory=list)
    )
    subtasks: Annotated[list[str], Meta(description="A part of the work; may be repeated.")] = msgspec.field(
        default_factory=list
    )
    gates: Annotated[list[str], Meta(description="A gate that it must pass, such as ci; may be repeated.")] = (
        msgspec.field(default_factory=list)
    )

    def event(self) -> Created:
        return Created(
            work_package_id=self.id,
            title=self.title,
            feature_slug=self.feature,
            dependencies=list(self.depends_on),
            subtasks=list(self.subtasks),
        )

    def after(self) -> Sequence[str]:
        return self.depends_on

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        rules.require_id("id of a work package", self.id, 'everlog wp create WP03 "TITLE"')
        for one in self.depends_on:
            rules.require_id("id of a work package", one, 'everlog wp create WP03 "TITLE" --depends-on WP01')
        return rules.create(package, self.event(), needs_of(history, self.depends_on), gates=self.gates)

    def fingerprint(self) -> Any:
        return {"package": msgspec.to_builtins(self.event()), "gates": list(self.gates)}


class Depend(PackageCommand[Package], frozen=True, kw_only=True):
    """Replace the packages that a work package depends on."""

    verb = "depend"
    examples = ("depend WP03 --on WP01 --on WP02",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "on": ["WP01", "WP02"]}
    id: Id
    on: Annotated[list[str], Meta(description="A package that must be done first; may be repeated.")]
    reason: Annotated[str, Meta(description="Why the dependencies changed.")] = ""

    def after(self) -> Sequence[str]:
        return self.on

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        return rules.depend(package, self.id, self.on, needs_of(history, self.on), reason=self.reason)

    def fingerprint(self) -> Any:
        return {"id": self.id, "on": list(self.on), "reason": self.reason}


class Move(PackageCommand[Package], frozen=True, kw_only=True):
    """Move a work package to another lane: planned, doing, for_review or done."""

    verb = "move"
    examples = ("move WP03 doing", 'move WP03 planned --reason "one case is missing"')
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "to": "doing"}
    id: Id
    to: Annotated[str, Meta(description="The lane: planned, doing, for_review or done.")]
    reason: Annotated[str, Meta(description="Why; required for a move back.")] = ""

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        lanes, circle = lanes_of(package, self.id, self.to, history)
        return rules.move(package, self.id, self.to, lanes, reason=self.reason, circle=circle)

    def fingerprint(self) -> Any:
        return {"id": self.id, "to": self.to, "reason": self.reason}


class Subtask(PackageCommand[PackageSubtask], frozen=True, kw_only=True):
    """Check off a subtask. Subtasks are numbered from 1."""

    verb = "subtask"
    examples = ("subtask WP03 1",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "index": 1}
    id: Id
    index: Annotated[int, Meta(description="The number of the subtask.")]
    text: Annotated[str, Meta(description="Its text, if it was not planned.")] = ""

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        return rules.complete(package, self.id, self.index, text=self.text)

    def answer(self, lane: str) -> PackageSubtask:
        return PackageSubtask(id=self.id, lane=lane, subtask=self.index)

    def fingerprint(self) -> Any:
        return {"id": self.id, "index": self.index, "text": self.text}


class Gate(PackageCommand[PackageGate], frozen=True, kw_only=True):
    """Register a gate that a work package must pass before it is done."""

    verb = "gate"
    examples = ("gate WP03 lint",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "gate": "lint"}
    id: Id
    gate: Annotated[str, Meta(description="The gate, such as ci.")]
    type: Annotated[str, Meta(description="The kind of gate (default: its id).")] = ""

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        return rules.gate(package, self.id, self.gate, gate_type=self.type or self.gate)

    def answer(self, lane: str) -> PackageGate:
        return PackageGate(id=self.id, lane=lane, gate=self.gate)

    def fingerprint(self) -> Any:
        return {"id": self.id, "gate": self.gate, "type": self.type or self.gate}


class GateResult(PackageCommand[PackageGate], frozen=True, kw_only=True):
    """Record the result of a gate: pending, passed or failed."""

    verb = "gate_result"
    operation = "wp gate --result"
    examples = ("gate WP03 ci --result passed --data '{\"run\": 17}'",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "gate": "ci", "verdict": "passed", "data": {"run": 17}}
    id: Id
    gate: Annotated[str, Meta(description="The gate, such as ci.")]
    verdict: Annotated[str, Meta(description="The result: pending, passed or failed.")]
    data: Annotated[dict[str, Any], Meta(description="Facts about the result, as a JSON object.")] = msgspec.field(
        default_factory=dict
    )

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        return rules.judge(package, self.id, self.gate, self.verdict, data=self.data)

    def answer(self, lane: str) -> PackageGate:
        return PackageGate(id=self.id, lane=lane, gate=self.gate)

    def fingerprint(self) -> Any:
        return {"id": self.id, "gate": self.gate, "verdict": self.verdict, "data": dict(self.data)}


class Workspace(PackageCommand[PackageWorkspace], frozen=True, kw_only=True):
    """Record the folder in which a work package is worked on."""

    verb = "workspace"
    examples = ("workspace WP03 ../trees/WP03 --branch wp03-index",)
    example: ClassVar[dict[str, Any]] = {"id": "WP03", "path": "../trees/WP03", "branch": "wp03-index"}
    id: Id
    path: Annotated[str, Meta(description="The folder of the working tree.")]
    branch: Annotated[str, Meta(description="The branch that is checked out there.")] = ""

    def rule(self, package: State | None, history: History) -> Iterable[Any]:
        return rules.house(package, self.id, self.path, branch=self.branch)

    def answer(self, lane: str) -> PackageWorkspace:
        return PackageWorkspace(id=self.id, lane=lane, path=self.path)

    def fingerprint(self) -> Any:
        return {"id": self.id, "path": self.path, "branch": self.branch}


COMMANDS = (Spec, Create, Depend, Move, Subtask, Gate, GateResult, Workspace)


def _lane_after(log: Log, package: str, lane: str, decision: Decision) -> str:
    """Return the lane that a decision leaves a package in; of a replay, the lane of that time."""
    if decision.replayed:
        lane = lane_of(package_of_records(log.read(lane_query(package), upto=_before(decision)))) or ""
    for event in decision.events:
        lane = event.payload["new_status"] if event.type == "WPStatusChanged" else lane or "planned"
    return lane


def _missing(
    log: Log, names: Iterable[str], needs: Mapping[str, Sequence[str] | None], decision: Decision
) -> tuple[str, ...]:
    """Return what to do about those of the names that nobody has planned yet, or had not when it was recorded."""
    wanted = list(dict.fromkeys(names))
    if decision.replayed:
        upto = _before(decision)
        missing = [one for one in wanted if package_of_records(log.read(lane_query(one), upto=upto)) is None]
    else:
        missing = [one for one in wanted if one in needs and needs[one] is None]
    return tuple(f"{one} is not there yet: everlog wp create {one} …" for one in missing)


def _before(decision: Decision) -> Position | None:
    """Return the last position before what was recorded; None if nothing was."""
    return Position(decision.records[0].position - 1) if decision.records else None
