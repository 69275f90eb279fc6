"""The fold: whatever order events arrive in, and whatever they leave out."""

from __future__ import annotations

import random
from typing import Any

from tests.programs.workpackages.happened import created, happened, moved

from everlog.core.event import Event
from everlog.programs.workpackages.package import last_moves, nothing, package_of, story
from everlog.programs.workpackages.views import Board, Specs
from everlog.testing import builders
from everlog.testing.view_contract import ViewContract

CREATED = created(1, dependencies=["WP01"], subtasks=["write it", "test it"])
TAKEN = moved("planned", "doing", 2, after=[CREATED])
ELSEWHERE = moved("planned", "doing", 2, after=[CREATED], origin="b", actor="user:bob")
REVIEWED = moved("doing", "for_review", 3, after=[TAKEN])
GATE = happened("GateCreated", lamport=2, gate_id="ci", gate_type="pipeline")
PASSED = happened("GateResultChanged", lamport=4, gate_id="ci", old_status="pending", new_status="passed")
WRITTEN = happened("SubtaskCompleted", lamport=5, subtask_index=1, subtask_text="written")
HOUSED = happened("WorkspaceCreated", lamport=6, worktree_path="trees/WP03", branch_name="wp03")
FREED = happened("WPDependenciesChanged", lamport=7, old_dependencies=["WP01"], new_dependencies=[])
OLDER = moved("planned", "done", 40, migrated=True)
EVERY = [CREATED, TAKEN, ELSEWHERE, REVIEWED, GATE, PASSED, WRITTEN, HOUSED, FREED, OLDER]
SPECIFIED = builders.event("SpecCreated", stream="featurespec/025-log", payload={"title": "Log", "mission": "all"})


class TestBoard(ViewContract):
    view = Board
    events = EVERY


class TestSpecs(ViewContract):
    view = Specs
    events = (SPECIFIED,)


def package(*events: Event) -> dict[str, Any]:
    found = package_of(events)
    assert found is not None
    return found


def heads(*events: Event) -> list[str]:
    return [head["id"] for head in package(*events)["heads"]]


def test_a_package_is_what_its_events_say() -> None:
    found = package(CREATED, TAKEN, REVIEWED, GATE, PASSED, WRITTEN, HOUSED, FREED)
    assert (found["title"], found["feature"], found["lane"], found["moves"]) == ("Index", "025-log", "for_review", 2)
    assert found["gates"]["ci"] | {"at": ""} == {"type": "pipeline", "status": "passed", "at": "", "by": "user:ada"}
    assert [(one["index"], one["text"], bool(one["done_at"])) for one in found["subtasks"]] == [
        (1, "write it", True),
        (2, "test it", False),
    ]
    assert found["workspace"] == {"path": "trees/WP03", "branch": "wp03"}
    assert found["dependencies"] == []
    assert package_of([]) is None


def test_weak_events_of_the_seeds_own_program_are_taken_for_what_they_say() -> None:
    weak = [
        happened("WPStatusChanged", lamport=1, new_status="doing"),
        happened("WPStatusChanged", lamport=2),
        happened("WPCreated", lamport=3),
        happened("SubtaskCompleted", lamport=4),
        happened("SubtaskCompleted", lamport=4, subtask_index=2, subtask_text="it"),
        happened("GateCreated", lamport=5),
        happened("GateResultChanged", lamport=6, gate_id="ci", new_status="passed"),
        happened("GateResultChanged", lamport=6),
        happened("WorkspaceCreated", lamport=7),
    ]
    found = package(*weak)
    assert (found["lane"], found["moves"], found["title"], found["dependencies"]) == ("doing", 1, "", [])
    assert [(one["index"], one["text"]) for one in found["subtasks"]] == [(2, "it")]
    assert {name: gate["status"] for name, gate in found["gates"].items()} == {"ci": "passed"}


def test_a_subtask_belongs_to_whoever_did_it_first() -> None:
    again = happened("SubtaskCompleted", lamport=9, subtask_index=1, actor="user:bob")
    assert package(CREATED, WRITTEN, again)["subtasks"][0]["done_by"] == "user:ada"


# ---- moves that did not know of each other


def test_moves_that_follow_each_other_are_no_conflict() -> None:
    assert heads(CREATED, TAKEN, REVIEWED) == [REVIEWED.id]
    assert [step["conflicts_with"] for step in story([CREATED, TAKEN, REVIEWED])] == [[], [], []]


def test_two_moves_from_the_same_lane_where_neither_knew_of_the_other_are_a_conflict() -> None:
    assert heads(CREATED, TAKEN, ELSEWHERE) == sorted([TAKEN.id, ELSEWHERE.id])
    assert [step["conflicts_with"] for step in story([CREATED, ELSEWHERE, TAKEN])] == [
        [],
        [ELSEWHERE.id],
        [TAKEN.id],
    ]


def test_the_greater_clock_and_then_the_greater_id_wins() -> None:
    late = moved("planned", "doing", 9, after=[CREATED], origin="b")
    assert package(CREATED, late, TAKEN, REVIEWED)["lane"] == "doing"
    assert package(CREATED, TAKEN, REVIEWED, ELSEWHERE)["lane"] == "for_review"
    back = moved("doing", "planned", 3, after=[TAKEN], origin="b", reason="no")
    assert package(CREATED, TAKEN, REVIEWED, back)["lane"] == ("planned" if back.id > REVIEWED.id else "for_review")


def test_a_conflict_lasts_until_a_move_follows_all_of_its_sides() -> None:
    one_side = moved("doing", "for_review", 5, after=[ELSEWHERE], origin="b")
    assert len(heads(CREATED, TAKEN, ELSEWHERE, one_side)) == 2
    both = moved("for_review", "done", 6, after=[TAKEN, one_side])
    assert heads(CREATED, TAKEN, ELSEWHERE, one_side, both) == [both.id]


def test_a_move_that_follows_what_was_followed_already_is_a_conflict_though_the_lanes_fit() -> None:
    """Lanes alone would not tell: doing, for_review, doing; and from an earlier doing to planned."""
    reworked = moved("for_review", "doing", 4, after=[REVIEWED])
    stale = moved("doing", "planned", 8, after=[TAKEN], origin="b")
    assert heads(CREATED, TAKEN, REVIEWED, reworked, stale) == [reworked.id, stale.id]


def test_moves_that_do_not_say_what_they_followed_are_judged_by_the_lane_they_came_from() -> None:
    first = moved("planned", "doing", 4, origin="x")
    assert heads(first, moved("doing", "for_review", 5, origin="y")) != [first.id]
    assert len(heads(first, moved("doing", "for_review", 5, origin="y"))) == 1
    assert len(heads(first, moved("", "for_review", 5, origin="y"))) == 1
    assert len(heads(first, moved("planned", "doing", 5, origin="y"))) == 2
    assert len(heads(first, moved("planned", "doing", 5, origin="x"))) == 1, "one log knows its own moves"


def test_the_next_move_says_which_moves_it_knows() -> None:
    assert last_moves(nothing()) == []
    assert last_moves(package(CREATED)) == [CREATED.id]
    assert last_moves(package(CREATED, TAKEN, ELSEWHERE)) == sorted([TAKEN.id, ELSEWHERE.id])


# ---- what was migrated


def test_what_was_migrated_counts_until_something_real_is_said_whatever_its_clock() -> None:
    synthetic = [
        created(1, title="Old", dependencies=["WP09"], migrated=True),
        moved("planned", "for_review", 2, migrated=True),
        moved("for_review", "done", 50, migrated=True),
        happened("GateResultChanged", lamport=51, gate_id="ci", new_status="failed", migrated=True),
        happened("WorkspaceCreated", lamport=52, worktree_path="old", migrated=True),
    ]
    old = package(*synthetic)
    assert (old["lane"], old["title"], old["dependencies"]) == ("done", "Old", ["WP09"])
    real = [
        created(3, title="New", dependencies=["WP01"]),
        moved("planned", "doing", 4, origin="b"),
        happened("GateResultChanged", lamport=5, gate_id="ci", new_status="passed"),
        happened("WorkspaceCreated", lamport=6, worktree_path="new"),
    ]
    both = package(*synthetic, *real)
    assert (both["lane"], both["title"], both["dependencies"]) == ("doing", "New", ["WP01"])
    assert both["gates"]["ci"]["status"] == "passed"
    assert both["workspace"]["path"] == "new"
    assert len(both["heads"]) == 1, "a synthetic move is never one side of a conflict"


def test_the_first_real_move_follows_the_migrated_one_and_two_such_are_a_conflict() -> None:
    synthetic = moved("planned", "doing", 2, migrated=True)
    assert last_moves(package(synthetic)) == [synthetic.id]
    here = moved("doing", "for_review", 3, after=[synthetic], origin="a")
    there = moved("doing", "planned", 3, after=[synthetic], origin="b")
    assert heads(synthetic, here) == [here.id]
    assert heads(synthetic, here, there) == sorted([here.id, there.id])


# ---- any order


def test_any_set_of_events_in_any_order_gives_one_package_and_one_story() -> None:
    chance = random.Random(11)
    for _ in range(200):
        some = chance.sample(EVERY, chance.randrange(1, len(EVERY) + 1))
        expected, told = package_of(some), story(some)
        chance.shuffle(some)
        assert package_of(some) == expected
        assert story(some) == told
        assert told[-1]["lane"] == package(*some)["lane"]
