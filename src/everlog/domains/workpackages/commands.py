"""What can be done with work packages, for whoever serves people: a command line, a server, a program.

commands.create(log, Created(work_package_id="WP03", title="Index", dependencies=["WP01"]), by=By(actor="user:ada"))
commands.move(log, "WP03", "doing", by=By(actor="agent:builder"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from everlog.core.event import Position, Recorded
from everlog.core.query import Query
from everlog.domains.deciding import NOBODY, By, Done, History, decide
from everlog.domains.workpackages import DOMAIN, rules
from everlog.domains.workpackages.events import KIND, SPEC_KIND, Created, Specified
from everlog.domains.workpackages.package import State, package_of, story
from everlog.domains.workpackages.views import Board, Specs
from everlog.errors import NoSuchSubject, ViewStopped
from everlog.log.log import Log
from everlog.views.views import Answer

_MOVES = frozenset(["WPStatusChanged"])
_IMPORTED = frozenset(["workpackage.status_changed"])
_DEPENDENCIES = frozenset(["WPCreated", "WPDependenciesChanged"])
_LATELY = 100
"""Among how many of the newest refusals those about one package are looked for."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a work package."""

    id: str
    lane: str
    done: Done
    missing: tuple[str, ...] = ()  # what it depends on and nobody has planned yet


# ---- doing


def specify(log: Log, spec: Specified, *, by: By = NOBODY) -> Done:
    """Describe a feature."""
    stream = f"{SPEC_KIND}/{spec.feature_slug}"

    def rule(history: History) -> Iterable[Any]:
        rules.require_id("slug of a feature", spec.feature_slug, 'everlog wp spec 025-event-log "TITLE"')
        return rules.specify(bool(history), spec)

    return decide(
        log,
        DOMAIN,
        looks_at=Query(stream=stream),
        stream=stream,
        by=by,
        operation="wp spec",
        request=msgspec.to_builtins(spec),
        rule=rule,
    )


def create(log: Log, created: Created, *, gates: Sequence[str] = (), by: By = NOBODY) -> Step:
    """Plan a work package, with the gates that it has to pass."""
    asked = {"package": msgspec.to_builtins(created), "gates": list(gates)}
    needs: dict[str, list[str] | None] = {}

    def rule(package: State | None, history: History) -> Iterable[Any]:
        rules.require_id("id of a work package", created.work_package_id, 'everlog wp create WP03 "TITLE"')
        for one in created.dependencies:
            rules.require_id("id of a work package", one, 'everlog wp create WP03 "TITLE" --depends-on WP01')
        needs.update(_needs(history, created.dependencies))
        return rules.create(package, created, needs, gates=gates)

    step = _step(log, created.work_package_id, "wp create", asked, by, rule)
    return _with_missing(log, step, created.dependencies, needs)


def depend(log: Log, package: str, on: Sequence[str], *, reason: str = "", by: By = NOBODY) -> Step:
    """Say anew what a work package depends on: these, and nothing else."""
    asked = {"id": package, "on": list(on), "reason": reason}
    needs: dict[str, list[str] | None] = {}

    def rule(found: State | None, history: History) -> Iterable[Any]:
        needs.update(_needs(history, on))
        return rules.depend(found, package, on, needs, reason=reason)

    step = _step(log, package, "wp depend", asked, by, rule)
    return _with_missing(log, step, on, needs)


def move(log: Log, package: str, to: str, *, reason: str = "", by: By = NOBODY) -> Step:
    """Move a work package to another lane."""
    asked = {"id": package, "to": to, "reason": reason}

    def rule(found: State | None, history: History) -> Iterable[Any]:
        needed = found["dependencies"] if found is not None and to == "doing" else []
        lanes = {one: _lane_of(_package(history.also(_lane_query(one)))) for one in needed}
        circle: list[str] = []
        if any(lane != "done" for lane in lanes.values()):
            # None was ever accepted, but two clones may have closed one together.
            circle = rules.cycle(package, needed, _needs(history, needed))
        return rules.move(found, package, to, lanes, reason=reason, circle=circle)

    return _step(log, package, "wp move", asked, by, rule)


def complete(log: Log, package: str, index: int, *, text: str = "", by: By = NOBODY) -> Step:
    """Check a subtask off."""
    asked = {"id": package, "index": index, "text": text}
    return _step(
        log, package, "wp subtask", asked, by, lambda found, _: rules.complete(found, package, index, text=text)
    )


def gate(log: Log, package: str, gate_id: str, *, gate_type: str = "", by: By = NOBODY) -> Step:
    """Register a gate that a work package has to pass before it is done."""
    kind = gate_type or gate_id
    asked = {"id": package, "gate": gate_id, "type": kind}
    return _step(
        log, package, "wp gate", asked, by, lambda found, _: rules.gate(found, package, gate_id, gate_type=kind)
    )


def judge(
    log: Log,
    package: str,
    gate_id: str,
    verdict: str,
    *,
    data: Mapping[str, Any] | None = None,
    by: By = NOBODY,
) -> Step:
    """Record what a gate says: pending, passed or failed."""
    asked = {"id": package, "gate": gate_id, "verdict": verdict, "data": dict(data or {})}
    return _step(
        log,
        package,
        "wp gate --result",
        asked,
        by,
        lambda found, _: rules.judge(found, package, gate_id, verdict, data=data),
    )


def house(log: Log, package: str, path: str, *, branch: str = "", by: By = NOBODY) -> Step:
    """Record where a work package is worked on."""
    asked = {"id": package, "path": path, "branch": branch}
    return _step(
        log, package, "wp workspace", asked, by, lambda found, _: rules.house(found, package, path, branch=branch)
    )


# ---- asking


def status(log: Log, package: str) -> dict[str, Any]:
    """One work package as it stands, with what follows from it: where it may go, and what keeps it from there."""
    state = _state(log, package)
    if state is None:
        raise NoSuchSubject(
            f"there is no work package {package}",
            why="nothing was recorded under this id",
            hint=f'everlog wp board, or everlog wp create {package} "TITLE"',
        )
    lanes = {one: _lane_of(_state(log, one)) for one in state["dependencies"]}
    return {
        **_shown(package, state),
        "depends_on": [{"id": one, "lane": lanes[one]} for one in state["dependencies"]],
        "waits_for": rules.waits_for(state, lanes),
        "valid_transitions": list(rules.next_lanes(state)),
        "refused": _refused_lately(log, package),
    }


def board(log: Log, *, feature: str | None = None) -> list[dict[str, Any]]:
    """Every work package, or those of a feature, by feature and id; with what keeps each from going on."""
    rows = {_id(key): state for key, state in log.view(Board).items()}
    lanes = {package: state["lane"] for package, state in rows.items()}
    return [
        {**_shown(package, state), "waits_for": rules.waits_for(state, lanes)}
        for package, state in sorted(rows.items(), key=_by_feature)
        if feature is None or state["feature"] == feature
    ]


def _by_feature(row: tuple[str, State]) -> tuple[bool, str, str]:
    """What is for no feature comes last."""
    return (not row[1]["feature"], row[1]["feature"], row[0])


def specs(log: Log) -> dict[str, dict[str, Any]]:
    """The features, by their slug."""
    return {_id(key): state for key, state in log.view(Specs).items()}


def history(log: Log, package: str) -> list[dict[str, Any]]:
    """What happened to a work package, in the order that is the same in every clone."""
    found = [recorded.event for recorded in log.read(Query(stream=_stream(package), types=frozenset(Board.types)))]
    if not found:
        status(log, package)  # says that there is none
    return story(found)


# ---- inside


def _step(
    log: Log,
    package: str,
    operation: str,
    asked: Any,
    by: By,
    rule: Callable[[State | None, History], Iterable[Any]],
) -> Step:
    stream = _stream(package)
    lane = ""

    def decision(history: History) -> Iterable[Any]:
        nonlocal lane
        found = _package(history)
        lane = _lane_of(found) or ""
        return rule(found, history)

    done = decide(
        log,
        DOMAIN,
        looks_at=Query(stream=stream, types=frozenset(Board.types)),
        stream=stream,
        by=by,
        operation=operation,
        request=asked,
        rule=decision,
    )
    if done.replayed:  # nothing was decided here; the answer is the one of that time
        lane = _lane_of(_package(log.read(_lane_query(package), upto=_before(done)))) or ""
    for event in done.events:
        lane = event.payload["new_status"] if event.type in _MOVES else lane or "planned"
    return Step(id=package, lane=lane, done=done)


def _needs(history: History, names: Iterable[str]) -> dict[str, list[str] | None]:
    """Which package needs which, from some on, as far as it goes; None for what is not there."""
    needs: dict[str, list[str] | None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needs:
            found = _package(history.also(_lane_query(name)))
            needs[name] = None if found is None else found["dependencies"]
            waiting += needs[name] or ()
    return needs


def _with_missing(log: Log, step: Step, names: Iterable[str], needs: Mapping[str, list[str] | None]) -> Step:
    """The step with those of the names that nobody has planned yet, or had not when it was recorded."""
    wanted = tuple(dict.fromkeys(names))
    if step.done.replayed:
        upto = _before(step.done)
        return msgspec.structs.replace(
            step, missing=tuple(one for one in wanted if _package(log.read(_lane_query(one), upto=upto)) is None)
        )
    return msgspec.structs.replace(
        step, missing=tuple(name for name in wanted if name in needs and needs[name] is None)
    )


def _before(done: Done) -> Position | None:
    """The last position before what was recorded; None if nothing was."""
    return Position(done.records[0].position - 1) if done.records else None


def _package(records: Iterable[Recorded]) -> State | None:
    return package_of(recorded.event for recorded in records)


def _lane_query(package: str) -> Query:
    """What decides the lane of a package, and what it depends on."""
    return Query(stream=_stream(package), types=_MOVES | _IMPORTED | _DEPENDENCIES)


def _lane_of(package: State | None) -> str | None:
    return None if package is None else str(package["lane"])


def _state(log: Log, package: str) -> State | None:
    """A package as it stands, without keeping anything: from the board's row if its stream has not grown since that
    was kept, else from the stream alone. So the answer is quick in a long log, and with a long stream too."""
    view, stream = log.view(Board), _stream(package)
    kept = view.build()
    if kept is not None and kept.complete and kept.version == Board.version and not kept.stopped_at:
        since = log.page_after(kept.reached, Query(stream=stream), limit=1)
        if since.reset is None and not since.events:
            return _found(view.get(stream, fresh=False))
    return _found(view.get(stream, as_of=log.head()))


def _found(answer: Answer) -> State | None:
    if answer.parked:
        raise ViewStopped(
            f"{answer.key} goes no further than an event that cannot be read",
            why="what came after it is not in the answer",
            hint=f"everlog views dead-letters {Board.name}",
            view=Board.name,
        )
    state: State | None = answer.state
    return state


def _shown(package: str, state: State) -> dict[str, Any]:
    """What a state says, without what only the fold needs."""
    heads = [{name: head[name] for name in ("id", "lane", "from", "by", "at")} for head in state["heads"]]
    shown = {name: value for name, value in state.items() if name not in ("heads", "start", "real")}
    return {
        "id": package,
        **shown,
        "conflict": heads if len(heads) > 1 else None,
        "migrated": bool(state["heads"]) and bool(state["heads"][-1].get("migrated")),
        "closed_gates": rules.closed_gates(state),
    }


def _refused_lately(log: Log, package: str) -> list[dict[str, Any]]:
    """What was tried with a package and refused, each mistake once, the latest first: to look at before the next."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for one in log.refusals(limit=_LATELY):
        if one.stream == _stream(package):
            first = {
                "actor": one.actor,
                "operation": one.operation,
                "reason": one.reason,
                "hint": one.hint,
                "last_at": one.refused_at.isoformat(timespec="seconds").replace("+00:00", "Z"),
                "times": 0,
            }
            found.setdefault((one.actor, one.operation, one.reason), first)["times"] += 1
    return list(found.values())


def _stream(package: str) -> str:
    return f"{KIND}/{package}"


def _id(stream: str) -> str:
    return stream.partition("/")[2]
