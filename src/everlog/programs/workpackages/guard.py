"""The guard of the workpackages program: every event of a package or a feature meets the rules of its command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from everlog.core.event import Event
from everlog.core.query import Query
from everlog.errors import RuleRefused
from everlog.programs.command import By
from everlog.programs.program import Guard, require_kind
from everlog.programs.workpackages import rules
from everlog.programs.workpackages.claiming import attempt
from everlog.programs.workpackages.events import (
    CLAIMS,
    KIND,
    SPEC_KIND,
    Claimed,
    Completed,
    Created,
    Depended,
    Described,
    Gated,
    Housed,
    Judged,
    Moved,
    Released,
    Specified,
    StatusChanged,
)
from everlog.programs.workpackages.package import State, lanes_of, needs_of, package_of_records
from everlog.programs.workpackages.views import Board

if TYPE_CHECKING:
    from everlog.programs.perform import History


def _looks_at(event: Event) -> Query:
    types = (*Board.types, *CLAIMS.types) if event.type in CLAIMS.types else Board.types
    return Query(stream=event.stream, types=frozenset(types if event.kind == KIND else ()))


def _judge(history: History, event: Event, payload: Any, by: By) -> None:
    name = event.stream.partition("/")[2]
    if isinstance(payload, Specified):
        require_kind(event, SPEC_KIND)
        _require_same(event, name, payload.feature_slug)
        rules.specify(bool(history), payload)
        return
    require_kind(event, KIND)
    named = getattr(payload, "work_package_id", name)
    _require_same(event, name, named)
    package = package_of_records(history)
    match payload:
        case Claimed() | Released():
            attempt(name, history, by.actor).judge(payload)
        case Created():
            rules.create(package, payload, needs_of(history, payload.dependencies))
        case Depended():
            wanted = payload.new_dependencies
            rules.depend(package, name, wanted, needs_of(history, wanted))
        case Moved():
            _judge_move(history, package, name, payload)
        case StatusChanged():
            _judge_imported(package, name, payload)
        case Described():
            rules.require_package(package, name, "describe")
        case Completed():
            rules.complete(package, name, payload.subtask_index)
        case Gated():
            rules.gate(package, name, payload.gate_id, gate_type=payload.gate_type)
        case Judged():
            rules.judge(package, name, payload.gate_id, payload.new_status)
        case Housed():
            rules.house(package, name, payload.worktree_path, branch=payload.branch_name)


def _judge_move(history: History, package: State | None, name: str, moved: Moved) -> None:
    to = moved.new_status
    lanes, circle = lanes_of(package, name, to, history)
    made = rules.move(package, name, to, lanes, reason=moved.reason, circle=circle)
    assert package is not None, "a package that is not there cannot be moved"
    if moved.old_status not in ("", package["lane"]):
        raise RuleRefused(
            f"{name} is not in {moved.old_status}",
            rule="a move names the lane that the package is in",
            tried=f"move {name} from {moved.old_status} to {to}",
            allowed=[package["lane"]],
            why=f"it is in {package['lane']}",
            hint=f"everlog wp move {name} {to}",
        )
    if made[1:]:
        gates = ", ".join(one.gate_id for one in made[1:])
        raise RuleRefused(
            f"{name} cannot be moved back by one event",
            rule="a move back asks the gates again that have passed",
            tried=f"move {name} {to}",
            why=f"{gates} passed before the rework; only the command records both at once",
            hint=f'everlog wp move {name} {to} --reason "…"',
        )


def _judge_imported(package: State | None, name: str, changed: StatusChanged) -> None:
    if package is not None and "lane" in package["real"]:
        raise RuleRefused(
            f"{name} cannot be moved by an imported line",
            rule="a work package that was moved here is moved by its command",
            tried=f"set the imported lane {changed.to_lane} of {name}",
            allowed=list(rules.next_lanes(package)),
            why=f"it is in {package['lane']}, and an imported line would not count",
            hint=f"everlog wp move {name} {rules.next_lanes(package)[0]}",
        )


def _require_same(event: Event, name: str, named: str) -> None:
    if named != name:
        raise RuleRefused(
            f"{event.type} of {named} cannot be recorded on {event.stream}",
            rule="an event is recorded on the stream of its subject",
            tried=f"append {event.type} to {event.stream}",
            allowed=[f"{event.kind}/{named}"],
            why=f"its payload names {named}",
            hint=f"everlog append {event.type} -s {event.kind}/{named}",
        )


GUARD = Guard(looks_at=_looks_at, judge=_judge)
