"""What may happen to a work package, decided from its history alone. Pure: nothing here reads a clock or a log.

A rule gets the package as `package_of` makes it from its events (None: there is none), and what it must know of other
packages: the lanes of those that it depends on, or the whole graph of dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from everlog.core.text import did_you_mean
from everlog.errors import InvalidField, NoSuchSubject, RuleRefused, TransitionRefused
from everlog.programs.workpackages.events import (
    ID_PATTERN,
    LANES,
    MOVES,
    Completed,
    Created,
    Depended,
    Gated,
    Housed,
    Judged,
    Moved,
    Specified,
    Verdict,
)
from everlog.programs.workpackages.package import State, cycle, last_moves

Needs = Mapping[str, Sequence[str] | None]
"""Which package needs which, as far as it can be followed; None for one that is not there."""


def require_id(what: str, found: str, example: str) -> None:
    """Refuse a name that is not valid, in the words of the command: its caller knows nothing of streams."""
    if re.fullmatch(ID_PATTERN, found) is None:
        raise InvalidField(
            f"the {what} is {found!r:.80}",
            why="it is of letters, digits and ._:@+=~-, begins with one of the first two, and has no spaces",
            hint=example,
            field=what,
        )


def specify(known: bool, spec: Specified) -> list[Any]:
    if known:
        raise RuleRefused(
            f"the feature {spec.feature_slug} is there already",
            rule="a feature is specified once",
            tried=f"spec {spec.feature_slug}",
            hint=f"everlog wp board --feature {spec.feature_slug}",
        )
    return [spec]


def create(package: State | None, created: Created, needs: Needs, *, gates: Iterable[str] = ()) -> list[Any]:
    name = created.work_package_id
    if package is not None:
        raise RuleRefused(
            f"the work package {name} is there already",
            rule="a work package is created once, and its id belongs to it alone",
            tried=f"create {name}",
            why=f"it is {_described(package)}",
            hint=f"everlog wp status {name}, or give the new one another id, such as FEATURE:{name}",
        )
    _refuse_cycle(name, created.dependencies, needs, f"create {name}")
    found = msgspec.structs.replace(created, dependencies=_once(created.dependencies))
    return [found, *(Gated(work_package_id=name, gate_type=gate, gate_id=gate) for gate in _once(gates))]


def depend(package: State | None, name: str, on: Sequence[str], needs: Needs, *, reason: str = "") -> list[Any]:
    known = require_package(package, name, "depend")
    wanted = _once(on)
    if wanted == known["dependencies"]:
        return []
    _refuse_cycle(name, wanted, needs, f"depend {name}")
    return [
        Depended(work_package_id=name, old_dependencies=known["dependencies"], new_dependencies=wanted, reason=reason)
    ]


def move(
    package: State | None,
    name: str,
    to: str,
    lanes: Mapping[str, str | None],
    *,
    reason: str = "",
    circle: Sequence[str] = (),
) -> list[Any]:
    """`lanes` are those of what the package depends on, None for what is not there; `circle` is the way by which it
    depends on itself, if there is one."""
    known = require_package(package, name, f"move to {to}")
    lane = known["lane"]
    _refuse_transition(known, name, to)
    if is_back(lane, to) and not reason.strip():
        raise _refused_move(
            known,
            name,
            to,
            rule="a move back says why",
            why=f"from {lane} to {to} is a way back, and the next one to work on it must know what is missing",
            allowed=["the same move with a reason"],
            hint=f'everlog wp move {name} {to} --reason "…"',
        )
    if to == "doing" and not is_back(lane, to):
        _refuse_unready(known, name, to, lanes, circle)
    if to == "done":
        _refuse_ungated(known, name, to)
    return [
        Moved(
            feature_slug=known["feature"],
            old_status=lane if lane in LANES else "",
            new_status=to,  # type: ignore[arg-type]  # it is one of the lanes: there is a transition to it
            reason=reason,
            after=last_moves(known),
        ),
        *(_asked_again(known) if is_back(lane, to) else ()),
    ]


def _asked_again(package: State) -> list[Judged]:
    """What passed has passed the work before: after rework the gates say something again."""
    return [
        Judged(gate_id=gate, old_status="passed", new_status="pending", result_data={"reason": "rework"})
        for gate, one in sorted(package["gates"].items())
        if one["status"] == "passed"
    ]


def complete(package: State | None, name: str, index: int, *, text: str = "") -> list[Any]:
    known = require_package(package, name, "subtask")
    subtasks = {one["index"]: one for one in known["subtasks"]}
    planned = any(one["planned"] for one in known["subtasks"])
    if index in subtasks:
        if subtasks[index]["done_at"]:
            return []
        text = text or subtasks[index]["text"]
    elif planned or index < 1:
        raise NoSuchSubject(
            f"{name} has no subtask {index}",
            why=f"its subtasks are {', '.join(map(str, sorted(subtasks)))}" if subtasks else "they count from 1",
            hint=f"everlog wp status {name}",
            rule="a subtask that is checked off is one of the planned ones, if any are planned",
            tried=f"subtask {name} {index}",
            allowed=sorted(subtasks),
        )
    return [Completed(work_package_id=name, subtask_index=index, subtask_text=text)]


def gate(package: State | None, name: str, gate_id: str, *, gate_type: str) -> list[Any]:
    known = require_package(package, name, "gate")
    if gate_id in known["gates"]:
        return []
    if known["lane"] == "done":
        raise RuleRefused(
            f"{name} is done and gets no new gate",
            rule="a gate is registered before the package has to pass it",
            tried=f"gate {name} {gate_id}",
            allowed=["a gate on a package that is not done"],
            hint=f'everlog wp move {name} doing --reason "the gate {gate_id} is missing"',
            current_status=known["lane"],
        )
    return [Gated(work_package_id=name, gate_type=gate_type, gate_id=gate_id)]


def judge(
    package: State | None, name: str, gate_id: str, verdict: str, *, data: Mapping[str, Any] | None = None
) -> list[Any]:
    known = require_package(package, name, "gate")
    if verdict not in get_args(Verdict):
        raise RuleRefused(
            f"a gate is not {verdict}",
            rule="a gate is pending, passed or failed",
            tried=f"gate {name} {gate_id} --result {verdict}",
            allowed=list(get_args(Verdict)),
            hint=f"everlog wp gate {name} {gate_id} --result passed",
        )
    if gate_id not in known["gates"]:
        raise NoSuchSubject(
            f"{name} has no gate {gate_id}",
            why=f"its gates are {', '.join(sorted(known['gates']))}" if known["gates"] else "it has no gates",
            hint=f"everlog wp gate {name} {gate_id}",
            rule="a gate is registered before it says anything",
            tried=f"gate {name} {gate_id} --result {verdict}",
            allowed=sorted(known["gates"]),
        )
    before = known["gates"][gate_id]["status"]
    if before == verdict and not data:
        return []
    old = before if before in get_args(Verdict) else "pending"
    return [Judged(gate_id=gate_id, old_status=old, new_status=verdict, result_data=dict(data or {}))]  # type: ignore[arg-type]


def house(package: State | None, name: str, path: str, *, branch: str = "") -> list[Any]:
    known = require_package(package, name, "workspace")
    if known["workspace"] == {"path": path, "branch": branch}:
        return []
    return [Housed(work_package_id=name, worktree_path=path, branch_name=branch)]


# ---- what follows from a package, for callers that check before they act


def next_lanes(package: State) -> tuple[str, ...]:
    """Return the lanes that a package may go to: planned, from a lane that only another program knows."""
    return MOVES.after(package["lane"])


def is_back(lane: str, to: str) -> bool:
    return lane not in LANES or LANES.index(to) < LANES.index(lane)


def waits_for(package: State, lanes: Mapping[str, str | None]) -> list[str]:
    """Return what the package depends on and is not done."""
    return [one for one in package["dependencies"] if lanes.get(one) != "done"]


def closed_gates(package: State) -> dict[str, str]:
    """Return the gates that have not passed, with their results."""
    return {name: one["status"] for name, one in sorted(package["gates"].items()) if one["status"] != "passed"}


# ---- refusals


def require_package(package: State | None, name: str, tried: str) -> State:
    if package is None:
        raise NoSuchSubject(
            f"there is no work package {name}",
            why="nothing was recorded under this id",
            hint=f'everlog wp create {name} "TITLE", or everlog wp board for those that are there',
            rule="a work package is created before anything else",
            tried=f"{tried} {name}",
        )
    return package


def _refuse_cycle(name: str, dependencies: Iterable[str], needs: Needs, tried: str) -> None:
    way = cycle(name, dependencies, needs)
    if way:
        raise RuleRefused(
            f"{name} would wait for itself",
            rule="no work package depends on itself, not by way of others either",
            tried=tried,
            why=" needs ".join(way),
            hint=f"leave {way[1]} out" + (f", or everlog wp depend {way[-2]} --on-nothing" if way[1:-1] else ""),
            cycle=way,
        )


def _refuse_transition(package: State, name: str, to: str) -> None:
    lane, allowed = package["lane"], next_lanes(package)
    if to in allowed:
        return
    if to not in LANES:
        meant = did_you_mean(to, LANES)
        why = f"the lanes are {', '.join(LANES)}{'; ' * bool(meant)}{meant}"
        hint = f"everlog wp move {name} {allowed[0]}"
    elif to == lane:
        why = f"it is there already{_since(package)}"
        hint = f"everlog wp move {name} {allowed[0]}"
    else:
        way = MOVES.way(lane, to)
        through = f" (it goes through {' and '.join(way[1:-1])})" if way[1:-1] else ""
        why = f"from {lane} it may go to {' or '.join(allowed)}{through}"
        hint = f"everlog wp move {name} {way[1]}"
    raise TransitionRefused(
        f"{name} cannot go from {lane} to {to}",
        why=why,
        hint=hint,
        rule="planned, doing, for_review, done; one step at a time",
        tried=f"move {name} {to}",
        allowed=list(allowed),
        **_statuses(package, to),
    )


def _refuse_unready(
    package: State, name: str, to: str, lanes: Mapping[str, str | None], circle: Sequence[str]
) -> None:
    waiting = waits_for(package, lanes)
    if waiting and circle:
        raise _refused_move(
            package,
            name,
            to,
            rule="no work package depends on itself, not by way of others either",
            why=f"{' needs '.join(circle)}: a circle that came with a merge",
            allowed=["another set of dependencies"],
            hint=f"everlog wp depend {name} --on-nothing",
            waits_for=waiting,
            cycle=list(circle),
        )
    if waiting:
        unmet = [f"{one} is {lanes.get(one) or 'not there yet'}" for one in waiting]
        raise _refused_move(
            package,
            name,
            to,
            rule="what it depends on is done first",
            why=", ".join(unmet),
            allowed=[f"{name} to {to} when {', '.join(waiting)} is done"],
            hint=f"everlog wp status {waiting[0]}"
            if lanes.get(waiting[0])
            else f'everlog wp create {waiting[0]} "…"',
            waits_for=waiting,
        )


def _refuse_ungated(package: State, name: str, to: str) -> None:
    closed = closed_gates(package)
    if closed:
        first = next(iter(closed))
        raise _refused_move(
            package,
            name,
            to,
            rule="every gate has passed before a package is done",
            why=", ".join(f"the gate {gate} is {status}" for gate, status in closed.items()),
            allowed=[f"{name} to {to} when {', '.join(closed)} passed"],
            hint=f"everlog wp gate {name} {first} --result passed",
            gates=closed,
        )


def _refused_move(package: State, name: str, to: str, **facts: Any) -> RuleRefused:
    what = f"{name} cannot go from {package['lane']} to {to}"
    return RuleRefused(what, tried=f"move {name} {to}", **facts, **_statuses(package, to))


def _statuses(package: State, to: str) -> dict[str, Any]:
    """The seed's words for a refused move, as they stand in the error log."""
    return {
        "current_status": package["lane"],
        "requested_status": to,
        "valid_transitions": list(next_lanes(package)),
    }


def _since(package: State) -> str:
    return f", since {package['moved_at']} by {package['moved_by']}" if package["moved_at"] else ""


def _described(package: State) -> str:
    of = f" of {package['feature']}" if package["feature"] else ""
    return f"in {package['lane']}{of}"  # without its title: what is remembered of a refusal holds no payload


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
