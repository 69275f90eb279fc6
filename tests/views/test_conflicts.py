"""The view `conflicts` and the folds of types that merge."""

from __future__ import annotations

import random

from everlog.catalog.builtin import DETECTED, KNOWS, RESOLVED
from everlog.core.event import Position, Recorded
from everlog.testing.builders import event
from everlog.testing.view_contract import ViewContract
from everlog.views.conflicts import Conflicts
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
