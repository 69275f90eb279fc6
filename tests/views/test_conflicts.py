"""The view `conflicts` and the folds of types that merge."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from everlog.catalog.builtin import DETECTED, KNOWS, RESOLVED
from everlog.core.canonical import NUMBER_MAX
from everlog.core.event import Position, Recorded
from everlog.testing.builders import event
from everlog.testing.view_contract import ViewContract
from everlog.views.conflicts import (
    Conflict,
    Conflicts,
    _Change,
    changes_in,
    concurrent,
    conflicts_of,
    with_records,
)
from everlog.views.fold import fold_all
from everlog.views.merge import counter, keep_both, union


class TestConflicts(ViewContract):
    view = Conflicts
    events = (
        event("note.added", stream="note/1", lamport=1, origin="A", origin_seq=1),
        event("note.added", stream="note/1", lamport=2, origin="A", origin_seq=2),
        event("note.added", stream="note/1", lamport=2, origin="B", origin_seq=1),
        event(KNOWS, stream="origin/A", payload={"ends": {"B": 1}}, lamport=3, origin="A", origin_seq=3),
        event("note.added", stream="note/1", lamport=4, origin="A", origin_seq=4),
        event(DETECTED, stream="conflict/1-2", lamport=5, origin="B", origin_seq=2),
        event(RESOLVED, stream="conflict/1-2", payload={"winner": "1"}, lamport=6, origin="A", origin_seq=5),
        event("stream.purged", stream="purges/all", lamport=7, origin="A", origin_seq=6),
    )


def test_a_statement_of_any_shape_does_not_stop_the_view() -> None:
    """Other nodes send what they like."""
    shapes: list[dict[str, object]] = [
        {},
        {"ends": 7},
        {"ends": {"B": "x", "C": -1, "D": True}},
        {"ends": {"B": 1}, "since": "x"},
    ]
    events = [
        event(KNOWS, stream="origin/A", payload=payload, lamport=number, origin="A", origin_seq=number)
        for number, payload in enumerate(shapes, start=1)
    ]
    recorded = [Recorded(Position(place), place, 0, each) for place, each in enumerate(events, start=1)]
    assert fold_all(Conflicts(), recorded) == {"origin/A": {"knows": {"B": [[4, 1]]}}}


def test_the_folds_of_types_that_merge_do_not_depend_on_the_order() -> None:
    tags, amounts = ["b", "a", "b", {"x": 1}, 3], [4, -1, 7]
    for _ in range(5):
        random.shuffle(tags)
        random.shuffle(amounts)
        found: list[object] = []
        for tag in tags:
            found = union(found, tag)
        assert found == ["a", "b", 3, {"x": 1}]
        total = 0
        for amount in amounts:
            total = counter(total, amount)
        assert total == 10
    one = event("note.added")
    assert keep_both([], one, "yes") == [{"id": one.id, "value": "yes"}]


def test_a_stream_that_one_node_changes_keeps_its_last_change_only() -> None:
    """Most streams are such. Two nodes: every change since the other's first one is kept."""
    events = [event("note.added", stream="note/1", lamport=n, origin="A", origin_seq=n) for n in range(1, 6)]
    recorded = [Recorded(Position(place), place, 0, each) for place, each in enumerate(events, start=1)]
    state = fold_all(Conflicts(), recorded)["note/1"]
    assert state == {"changes": {"A": {"note.added": [[5, 5, events[-1].id]]}}}
    other = event("note.added", stream="note/1", lamport=3, origin="B", origin_seq=1)
    after = event("note.added", stream="note/1", lamport=6, origin="A", origin_seq=6)
    recorded += [Recorded(Position(6), 6, 0, other), Recorded(Position(7), 7, 0, after)]
    changes = fold_all(Conflicts(), recorded)["note/1"]["changes"]
    assert {origin: len(some["note.added"]) for origin, some in changes.items()} == {"A": 4, "B": 1}


# ---- what is in conflict


def learned(*stated: dict[str, Any], origin: str = "A") -> dict[str, list[list[int]]]:
    """Return what the row of an origin says it knew after it stated this, at its numbers 10, 20, …"""
    events = [
        event(KNOWS, stream=f"origin/{origin}", payload=payload, lamport=place, origin="A", origin_seq=10 * place)
        for place, payload in enumerate(stated, start=1)
    ]
    recorded = [Recorded(Position(place), place, 0, each) for place, each in enumerate(events, start=1)]
    rows = fold_all(Conflicts(), recorded)
    found: dict[str, list[list[int]]] = rows.get(f"origin/{origin}", {}).get("knows", {})
    return found


def test_what_an_origin_knew_only_grows() -> None:
    assert learned({"ends": {"B": 3}}, {"ends": {"B": 3, "C": 1}}, {"ends": {"B": 2}}, {"ends": {"B": 4}}) == {
        "B": [[10, 3], [40, 4]],
        "C": [[20, 1]],
    }
    assert learned(
        {"ends": {"B": 3}, "since": 4}, {"ends": {"B": 5}, "since": 4}, {"ends": {"B": 6}, "since": 3}
    ) == {"B": [[4, 3], [4, 5]]}
    assert learned({"ends": {"B": NUMBER_MAX}}) == {"B": [[10, NUMBER_MAX]]}
    assert learned({"ends": {"B": 1}, "since": 0}, {"ends": {"B": 2}, "since": 99}) == {"B": [[10, 1], [20, 2]]}
    assert learned({"ends": {"B": 3}}, origin="other") == {}, "nobody speaks for another origin"


def chain(*numbers: int, lamport: int = 0) -> list[_Change]:
    return [_Change(number, lamport or number, f"{number:02}") for number in numbers]


@pytest.mark.parametrize(
    ("ours", "theirs", "we_knew", "they_knew", "pairs"),
    [
        ([1, 2, 3], [1, 2], [], [], [(3, 2)]),
        ([1, 2], [1], [[2, 1]], [], [(1, 1)]),
        ([1, 2], [1], [[1, 1]], [], []),
        ([1], [1, 2], [], [[2, 1]], [(1, 1)]),
        ([1, 2], [1, 2], [], [[2, 1]], [(2, 2)]),
        ([1], [1], [], [[1, 1]], []),
        ([1, 5], [1, 5], [[5, 1]], [[5, 1]], [(1, 1), (5, 5)]),
        ([1, 5, 9], [1, 5], [[9, 5]], [], [(5, 5)]),
        ([3], [3, 7], [[3, 3]], [[7, 3]], []),
        ([3], [3, 7], [[3, 3]], [], [(3, 7)]),
        ([], [1], [], [], []),
        ([1], [], [], [], []),
    ],
)
def test_the_last_changes_that_were_made_without_knowing_of_each_other_are_concurrent(
    ours: list[int],
    theirs: list[int],
    we_knew: list[list[int]],
    they_knew: list[list[int]],
    pairs: list[tuple[int, int]],
) -> None:
    found = concurrent(chain(*ours), chain(*theirs), we_knew, they_knew)
    assert [(one.number, other.number) for one, other in found] == pairs


def test_of_two_concurrent_changes_the_one_with_the_greater_clock_wins_and_then_the_greater_id() -> None:
    changes = {"A": [_Change(1, 5, "a")], "B": [_Change(1, 6, "b")], "C": [_Change(1, 5, "c")]}
    found = list(conflicts_of("note/1", changes, {}))
    assert [(one.conflict, one.winner, one.winner_origin, one.loser, one.loser_origin) for one in found] == [
        ("a-b", "b", "B", "a", "A"),
        ("a-c", "c", "C", "a", "A"),
        ("b-c", "b", "B", "c", "C"),
    ]
    assert {one.stream for one in found} == {"note/1"}
    knows = {"A": {"B": [[1, 1]]}, "C": {"B": [[1, 1]]}}
    assert [one.conflict for one in conflicts_of("note/1", changes, knows)] == ["a-c"]
    assert [one.conflict for one in conflicts_of("note/1", changes, {"B": {"A": [[1, 1]]}})] == ["a-c", "b-c"]


def test_changes_of_one_origin_and_of_types_that_merge_are_in_no_conflict() -> None:
    kept: dict[str, Any] = {
        "B": {"note.added": [[3, 4, "c"]], "tag.added": [[4, 5, "d"]]},
        "A": {"tag.added": [[1, 1, "a"]], "note.added": [[2, 2, "b"], [1, 1, "x"]]},
    }
    assert changes_in({"changes": {"A": kept["A"]}}, lambda name: "") == {}
    assert changes_in({}, lambda name: "") == {}
    every = changes_in({"changes": kept}, lambda name: "")
    assert [*every] == ["A", "B"]
    assert [one.id for one in every["A"]] == ["a", "x", "b"]
    tags_merge = changes_in({"changes": kept}, lambda name: "union" if name == "tag.added" else "")
    assert {origin: [one.id for one in some] for origin, some in tags_merge.items()} == {"A": ["x", "b"], "B": ["c"]}
    assert changes_in({"changes": kept}, lambda name: "union") == {}


def test_what_was_recorded_about_a_conflict_decides_it() -> None:
    one = Conflict(conflict="a-b", stream="note/1", winner="b", loser="a", winner_origin="B", loser_origin="A")
    assert with_records(one, {}) == one
    assert with_records(one, {"detected": True}) == msgspec.structs.replace(one, detected=True)
    assert with_records(one, {"winner": "somebody else"}) == one
    assert with_records(one, {"winner": "b"}) == msgspec.structs.replace(one, resolved=True)
    turned = with_records(one, {"winner": "a", "detected": True})
    assert (turned.winner, turned.winner_origin, turned.loser, turned.loser_origin) == ("a", "A", "b", "B")
    assert (turned.resolved, turned.detected) == (True, True)
