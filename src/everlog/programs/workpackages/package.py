"""The state of a work package, folded from its events: the one fold that rules, views and the history share.

Events are applied in causal order, so that every clone of a log gets the same state. The lane is that of the last
move, which is the one with the greatest `(lamport, id)`. `heads` are the moves that no other move has followed yet:
one, or several after a merge of clones that moved the package differently. That is a conflict until a move follows
all of them.

What was migrated from older files (tag `migrated`) has made-up clocks: it counts until a real event replaces it.
So does what was imported from spec-kitty, whose lines are ordered by their time and their id, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everlog.core.event import Event, Recorded, imported_order
from everlog.core.query import Query
from everlog.programs.workpackages.events import KIND, LANES

if TYPE_CHECKING:
    from everlog.log.write.guard import DecisionHistory

State = dict[str, Any]
_NOTED_AT = "said_at"  # the name in the rows of existing logs: when an annotation gave the status of a subtask
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


def nothing() -> State:
    """A work package before its first event."""
    return {
        "feature": "",
        "title": "",
        "lane": LANES[0],
        "dependencies": [],
        "subtasks": [],
        "gates": {},
        "workspace": None,
        "moves": 0,
        "moved_at": "",
        "moved_by": "",
        "reason": "",
        "heads": [],
        "start": "",
        "created_at": "",
        "created_by": "",
        "changed_at": "",
        "real": [],
        "imported": "",
    }


def after(state: State, event: Event) -> State:
    """The package after an event."""
    step, at = _STEPS.get(event.type), moment(event)
    changed = step(state, event, at) if step is not None else {}
    return {**state, "changed_at": at, **changed}


def package_of(events: Iterable[Event]) -> State | None:
    """The package that a history describes, in whatever order its events come; None if there is none."""
    state: State | None = None
    for event in sorted(events, key=lambda event: event.causal_order):
        state = after(nothing() if state is None else state, event)
    return state


def story(events: Iterable[Event]) -> list[dict[str, Any]]:
    """The steps of a history in causal order, with the moves that did not know of each other."""
    state = nothing()
    steps: dict[str, dict[str, Any]] = {}
    for event in sorted(events, key=lambda event: event.causal_order):
        state = after(state, event)
        steps[event.id] = step = {
            "id": event.id,
            "at": moment(event),
            "actor": event.actor,
            "type": event.type,
            "payload": event.payload,
            "migrated": migrated(event),
            "lane": state["lane"],  # in which it leaves the package: not always the one that it names
            "conflicts_with": [],
        }
        heads = [head["id"] for head in state["heads"]]
        if event.id in heads:
            step["conflicts_with"] = [head for head in heads if head != event.id]
            for other in step["conflicts_with"]:
                steps[other]["conflicts_with"].append(event.id)
    return list(steps.values())


def last_moves(state: State) -> list[str]:
    """What the lane rests on, for the next move to say that it knew of it."""
    return [head["id"] for head in state["heads"]] or ([state["start"]] if state["start"] else [])


def migrated(event: Event) -> bool:
    return event.tags.get("migrated") == "true"


def moment(event: Event) -> str:
    return event.occurred_at.isoformat().replace("+00:00", "Z")


# ---- packages out of a log


def stream_of(package: str) -> str:
    return f"{KIND}/{package}"


def package_of_records(records: Iterable[Recorded]) -> State | None:
    return package_of(recorded.event for recorded in records)


def lane_query(package: str) -> Query:
    """Return what decides the lane of a package, and what it depends on."""
    return Query(stream=stream_of(package), types=_LANE_TYPES)


_LANE_TYPES = frozenset(["WPStatusChanged", "workpackage.status_changed", "WPCreated", "WPDependenciesChanged"])


def lane_of(package: State | None) -> str | None:
    return None if package is None else str(package["lane"])


def needs_of(history: DecisionHistory, names: Iterable[str]) -> dict[str, list[str] | None]:
    """Return which package needs which, from some on, as far as it goes; None for one that is not there."""
    needs: dict[str, list[str] | None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in needs:
            found = package_of_records(history.also(lane_query(name)))
            needs[name] = None if found is None else found["dependencies"]
            waiting += needs[name] or ()
    return needs


def lanes_of(
    package: State | None, name: str, to: str, history: DecisionHistory
) -> tuple[dict[str, str | None], list[str]]:
    """Return the lanes of what a package depends on, if a move looks at them, and the circle that it is part of."""
    needed = package["dependencies"] if package is not None and to == "doing" else []
    lanes = {one: lane_of(package_of_records(history.also(lane_query(one)))) for one in needed}
    if all(lane == "done" for lane in lanes.values()):
        return lanes, []
    # None was ever accepted, but two clones may have closed one together.
    return lanes, cycle(name, needed, needs_of(history, needed))


def cycle(name: str, dependencies: Iterable[str], needs: Mapping[str, Sequence[str] | None]) -> list[str]:
    """Return the way that leads from a package back to itself; empty when there is none."""
    ways = [[name, one] for one in dependencies]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == name:
            return way
        if way[-1] not in seen:
            seen.add(way[-1])
            ways.extend([*way, further] for further in needs.get(way[-1]) or ())
    return []


# ---- one step for each type: what changes


def _created(state: State, event: Event, at: str) -> State:
    payload = event.payload
    start = {} if state["start"] else {"start": event.id}
    return start | _unless_beaten(
        state,
        event,
        "created",
        {
            "title": _text(payload, "title"),
            "feature": _text(payload, "feature_slug") or state["feature"],
            "subtasks": _planned_subtasks(state, payload.get("subtasks") or []),
            "created_at": at,
            "created_by": event.actor,
        }
        | _depended_on(state, event, payload.get("dependencies") or []),
    )


def _depended(state: State, event: Event, at: str) -> State:
    return _depended_on(state, event, event.payload.get("new_dependencies") or [])


def _depended_on(state: State, event: Event, dependencies: list[str]) -> State:
    return _unless_beaten(state, event, "dependencies", {"dependencies": list(dependencies)})


def _moved(state: State, event: Event, at: str) -> State:
    lane = _text(event.payload, "new_status")
    if not lane:
        return {}
    feature = state["feature"] or _text(event.payload, "feature_slug")
    changed = {
        "lane": lane,
        "feature": feature,
        "moves": state["moves"] + 1,
        "moved_at": at,
        "moved_by": event.actor,
        "reason": _text(event.payload, "reason"),
        "heads": _heads(state, event, lane, at),
    }
    return _unless_beaten(state, event, "lane", changed) or {"feature": feature}


def _heads(state: State, event: Event, lane: str, at: str) -> list[State]:
    head = {
        "id": event.id,
        "lane": lane,
        "from": _text(event.payload, "old_status"),
        "by": event.actor,
        "at": at,
        "origin": event.origin,
    }
    if migrated(event):
        return [{**head, "migrated": True}]
    made_up = ("migrated", "imported")
    real = [other for other in state["heads"] if not any(other.get(mark) for mark in made_up)]
    return [*(other for other in real if not _knew(event, other)), head]


def _knew(event: Event, other: State) -> bool:
    """Return whether the author of a move knew of another one."""
    known = event.payload.get("after")
    if known:
        return other["id"] in known
    # An event of the seed's own program, or one that was appended by hand, does not say what it followed.
    came_from = _text(event.payload, "old_status")
    return event.origin == other["origin"] or came_from in ("", other["lane"])


def _status_changed(state: State, event: Event, at: str) -> State:
    """A line of spec-kitty's: its lanes are shown as it calls them."""
    lane, order = _text(event.payload, "to_lane"), "{:020d} {}".format(*imported_order(event))
    found: State = {"feature": state["feature"] or event.scope}
    if not lane or "lane" in state["real"]:
        return found
    found["moves"] = state["moves"] + 1
    if order <= state["imported"]:
        return found
    head = {
        "id": event.id,
        "lane": lane,
        "from": _text(event.payload, "from_lane"),
        "by": event.actor,
        "at": at,
        "origin": event.origin,
        "imported": True,
    }
    return {
        **found,
        "lane": lane,
        "moved_at": at,
        "moved_by": event.actor,
        "reason": _text(event.payload, "reason"),
        "heads": [head],
        "imported": order,
    }


def _described(state: State, event: Event, at: str) -> State:
    """Return the subtasks that an annotation names, such as {"T007": "done"}; of two, the later one counts."""
    found: State = {"feature": state["feature"] or event.scope}
    delta = event.payload.get("delta")
    statuses = delta.get("subtasks") if isinstance(delta, dict) else None
    if not isinstance(statuses, dict):
        return found
    known = {one["index"]: one for one in state["subtasks"]}
    for name, status in statuses.items():
        digits = name.lstrip(_LETTERS)
        if not (digits.isascii() and digits.isdigit() and len(digits) < 6):
            continue
        before = known.get(int(digits), {})
        if before.get(_NOTED_AT, "") > at or (before and _NOTED_AT not in before):
            continue
        done = {"done_at": at, "done_by": event.actor} if status == "done" else {"done_at": "", "done_by": ""}
        known[int(digits)] = {"index": int(digits), "text": name, "planned": True, _NOTED_AT: at, **done}
    return {**found, "subtasks": [known[index] for index in sorted(known)]}


def _housed(state: State, event: Event, at: str) -> State:
    payload = event.payload
    place = {"path": _text(payload, "worktree_path"), "branch": _text(payload, "branch_name")}
    return _unless_beaten(state, event, "workspace", {"workspace": place})


def _completed(state: State, event: Event, at: str) -> State:
    index = event.payload.get("subtask_index")
    if type(index) is not int:
        return {}
    known = {one["index"]: one for one in state["subtasks"]}
    before = known.get(index, {"index": index, "text": "", "planned": False, "done_at": ""})
    if before["done_at"]:
        return {}  # the first one counts
    text = before["text"] or _text(event.payload, "subtask_text")
    known[index] = {**before, "text": text, "done_at": at, "done_by": event.actor}
    return {"subtasks": [known[index] for index in sorted(known)]}


def _planned_subtasks(state: State, texts: list[str]) -> list[State]:
    """The planned ones, with what is known of those that were done before this was heard of."""
    known = {one["index"]: one for one in state["subtasks"]}
    for index, text in enumerate(texts, start=1):
        before = known.get(index, {"index": index, "done_at": "", "done_by": ""})
        known[index] = {**before, "text": str(text), "planned": True}
    return [known[index] for index in sorted(known)]


def _gated(state: State, event: Event, at: str) -> State:
    name, kind = _text(event.payload, "gate_id"), _text(event.payload, "gate_type")
    if not name:
        return {}
    known = state["gates"].get(name, {"status": "pending", "at": "", "by": ""})
    gates = {**state["gates"], name: {**known, "type": kind}}
    return _unless_beaten(state, event, f"gate {name}", {"gates": gates})


def _judged(state: State, event: Event, at: str) -> State:
    name, status = _text(event.payload, "gate_id"), _text(event.payload, "new_status")
    if not name:
        return {}
    known = state["gates"].get(name, {"type": ""})
    gates = {**state["gates"], name: {**known, "status": status, "at": at, "by": event.actor}}
    return _unless_beaten(state, event, f"verdict {name}", {"gates": gates})


_STEPS = {
    "WPCreated": _created,
    "WPDependenciesChanged": _depended,
    "WPStatusChanged": _moved,
    "workpackage.status_changed": _status_changed,
    "workpackage.annotated": _described,
    "WorkspaceCreated": _housed,
    "SubtaskCompleted": _completed,
    "GateCreated": _gated,
    "GateResultChanged": _judged,
}


def _unless_beaten(state: State, event: Event, part: str, changed: State) -> State:
    """A change, with the note that a real event set this part; nothing for a migrated one after that."""
    if migrated(event):
        return {} if part in state["real"] else changed
    known: list[str] = changed.get("real") or state["real"]
    return changed if part in known else {**changed, "real": sorted([*known, part])}


def _text(payload: dict[str, Any], name: str) -> str:
    value = payload.get(name)
    return "" if value is None else str(value)
