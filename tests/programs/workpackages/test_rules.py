from __future__ import annotations

from typing import Any

import pytest
from tests.programs.workpackages.happened import created, happened, moved

from everlog.core.event import Event
from everlog.errors import NoSuchSubject, RuleRefused, TransitionRefused
from everlog.programs.workpackages import rules
from everlog.programs.workpackages.events import (
    Completed,
    Created,
    Depended,
    Gated,
    Housed,
    Judged,
    Moved,
    Specified,
)
from everlog.programs.workpackages.package import package_of
from everlog.testing.given_when_then import Given, given

CREATED = created(1, dependencies=["WP01"], subtasks=["write it", "test it"])
GATE = happened("GateCreated", lamport=2, gate_id="ci", gate_type="ci")
DOING = moved("planned", "doing", 3)
REVIEW = moved("doing", "for_review", 4)
DONE = moved("for_review", "done", 5)
PASSED = happened("GateResultChanged", lamport=6, gate_id="ci", new_status="passed")
FAILED = happened("GateResultChanged", lamport=6, gate_id="ci", new_status="failed")


def history(*events: Event) -> Given:
    return given(*events).through(package_of)


def move(past: Given, to: str, lanes: dict[str, str | None] | None = None, **named: Any) -> Any:
    return past.when(rules.move, "WP03", to, {"WP01": "done"} if lanes is None else lanes, **named)


def said(before: str, to: str, after: Event, reason: str = "") -> Moved:
    lane: Any = to
    came_from: Any = before
    return Moved(feature_slug="025-log", old_status=came_from, new_status=lane, reason=reason, after=[after.id])


# ---- lanes


def test_a_package_goes_from_planned_to_done_step_by_step() -> None:
    move(history(CREATED), "doing").then(said("planned", "doing", CREATED))
    move(history(CREATED, DOING), "for_review").then(said("doing", "for_review", DOING))
    move(history(CREATED, DOING, REVIEW), "done").then(said("for_review", "done", REVIEW))


@pytest.mark.parametrize(
    ("past", "to", "fix"),
    [
        ((CREATED,), "done", "doing"),
        ((CREATED,), "for_review", "doing"),
        ((CREATED,), "planned", "doing"),
        ((CREATED, DOING), "done", "for_review"),
        ((CREATED, DOING), "doing", "for_review"),
        ((CREATED, DOING, REVIEW), "planned", "doing"),
        ((CREATED, DOING, REVIEW, DONE), "for_review", "doing"),
        ((CREATED, DOING, REVIEW, DONE), "planned", "doing"),
        ((CREATED,), "finished", "doing"),
    ],
)
def test_every_other_way_is_refused_with_the_next_step_to_type(past: tuple[Event, ...], to: str, fix: str) -> None:
    outcome = move(history(*past), to, reason="because")
    outcome.refused(TransitionRefused)
    assert outcome.error.hint == f"everlog wp move WP03 {fix}"


def test_a_refused_move_has_the_seeds_words_for_the_error_log() -> None:
    error = move(history(CREATED), "done").error
    assert {name: error.details[name] for name in ("current_status", "requested_status", "valid_transitions")} == {
        "current_status": "planned",
        "requested_status": "done",
        "valid_transitions": ["doing"],
    }
    assert (error.details["tried"], error.details["allowed"]) == ("move WP03 done", ["doing"])
    assert "it goes through doing and for_review" in error.why
    assert "did you mean done?" in move(history(CREATED), "dnoe").error.why


@pytest.mark.parametrize(
    ("past", "to"),
    [((CREATED, DOING), "planned"), ((CREATED, DOING, REVIEW), "doing"), ((CREATED, DOING, REVIEW, DONE), "doing")],
)
def test_a_way_back_says_why(past: tuple[Event, ...], to: str) -> None:
    for missing in ("", "   "):
        outcome = move(history(*past), to, reason=missing)
        outcome.refused(RuleRefused)
        assert outcome.error.hint == f'everlog wp move WP03 {to} --reason "…"'
    move(history(*past), to, {}, reason="one case is missing").then(
        said(package_of(past)["lane"], to, past[-1], "one case is missing")  # type: ignore[index]
    )


def test_from_a_lane_of_another_program_a_package_can_be_planned_anew() -> None:
    blocked = history(CREATED, moved("planned", "blocked", 3))
    move(blocked, "doing").refused(TransitionRefused, saying="from blocked it may go to planned")
    made = move(blocked, "planned", reason="unblocked")
    assert made.error is None
    made.then(Moved(**{**_fields(made), "old_status": "", "new_status": "planned", "reason": "unblocked"}))


def _fields(outcome: Any) -> dict[str, Any]:
    return {"feature_slug": "025-log", "after": outcome._made[0].after}


def test_nothing_can_be_done_with_a_package_that_is_not_there() -> None:
    move(history(), "doing").refused(NoSuchSubject)
    history().when(rules.complete, "WP03", 1).refused(NoSuchSubject)
    history().when(rules.gate, "WP03", "ci", gate_type="ci").refused(NoSuchSubject)
    history().when(rules.judge, "WP03", "ci", "passed").refused(NoSuchSubject)
    history().when(rules.house, "WP03", "trees").refused(NoSuchSubject)
    history().when(rules.depend, "WP03", [], {}).refused(NoSuchSubject)


# ---- dependencies


@pytest.mark.parametrize("lane", ["planned", "doing", "for_review", None])
def test_work_does_not_begin_before_what_it_depends_on_is_done(lane: str | None) -> None:
    outcome = move(history(CREATED), "doing", {"WP01": lane})
    outcome.refused(RuleRefused, saying=f"WP01 is {lane or 'not there yet'}")
    assert outcome.error.details["waits_for"] == ["WP01"]
    assert outcome.error.details["current_status"] == "planned"
    assert outcome.error.hint == ("everlog wp status WP01" if lane else 'everlog wp create WP01 "…"')


def test_rework_does_not_wait_for_a_dependency_that_was_taken_back() -> None:
    move(history(CREATED, DOING, REVIEW), "doing", {"WP01": "doing"}, reason="again").then(
        said("for_review", "doing", REVIEW, "again")
    )


def test_a_circle_that_came_with_a_merge_is_told_as_one() -> None:
    outcome = move(history(CREATED), "doing", {"WP01": "planned"}, circle=["WP03", "WP01", "WP03"])
    outcome.refused(RuleRefused, saying="WP03 needs WP01 needs WP03")
    assert outcome.error.hint == "everlog wp depend WP03 --on-nothing"


def made(*dependencies: str) -> Created:
    return Created(work_package_id="WP03", title="Index", dependencies=list(dependencies))


def test_a_package_is_created_once() -> None:
    history().when(rules.create, made("WP01", "WP01"), {}).then(made("WP01"))
    history().when(rules.create, made(), {}, gates=["ci", "ci"]).then(
        made(), Gated(work_package_id="WP03", gate_type="ci", gate_id="ci")
    )
    history(CREATED).when(rules.create, made(), {}).refused(RuleRefused, saying="there already")


@pytest.mark.parametrize(
    ("needs", "way"),
    [
        ({}, ["WP03", "WP03"]),
        ({"WP01": ["WP03"]}, ["WP03", "WP01", "WP03"]),
        ({"WP01": ["WP05", "WP02"], "WP02": ["WP04"], "WP04": ["WP03"]}, ["WP03", "WP01", "WP02", "WP04", "WP03"]),
    ],
)
def test_cycles_are_refused_when_a_package_is_created_and_when_it_is_changed(
    needs: dict[str, list[str]], way: list[str]
) -> None:
    for outcome in (
        history().when(rules.create, made(way[1]), needs),
        history(created(1)).when(rules.depend, "WP03", [way[1]], needs),
    ):
        outcome.refused(RuleRefused, saying=" needs ".join(way))
        assert isinstance(outcome.error, RuleRefused)
        assert outcome.error.details["cycle"] == way


def test_packages_that_are_needed_twice_or_need_each_other_elsewhere_are_no_cycle() -> None:
    needs = {"WP01": ["WP04"], "WP02": ["WP04"], "WP04": None, "WP08": ["WP09"], "WP09": ["WP08"]}
    history().when(rules.create, made("WP01", "WP02", "WP08"), needs).then(made("WP01", "WP02", "WP08"))


def test_what_a_package_depends_on_can_be_said_anew() -> None:
    history(CREATED).when(rules.depend, "WP03", ["WP02"], {}, reason="split").then(
        Depended(work_package_id="WP03", old_dependencies=["WP01"], new_dependencies=["WP02"], reason="split")
    )
    history(CREATED).when(rules.depend, "WP03", ["WP01"], {}).then_nothing()


# ---- gates


def test_a_package_is_done_only_when_every_gate_has_passed() -> None:
    past = (CREATED, GATE, DOING, REVIEW)
    move(history(*past), "done").refused(RuleRefused, saying="the gate ci is pending")
    outcome = move(history(*past, FAILED), "done")
    outcome.refused(RuleRefused, saying="the gate ci is failed")
    assert outcome.error.hint == "everlog wp gate WP03 ci --result passed"
    assert (outcome.error.details["gates"], outcome.error.details["current_status"]) == (
        {"ci": "failed"},
        "for_review",
    )
    move(history(*past, PASSED), "done").then(said("for_review", "done", REVIEW))
    other = happened("GateCreated", lamport=7, gate_id="security", gate_type="scan")
    move(history(*past, PASSED, other), "done").refused(RuleRefused, saying="the gate security is pending")


def test_after_rework_a_gate_that_had_passed_is_asked_again() -> None:
    reviewed = (CREATED, GATE, DOING, REVIEW)
    again = Judged(gate_id="ci", old_status="passed", new_status="pending", result_data={"reason": "rework"})
    back = said("for_review", "doing", REVIEW, "a case is missing")
    move(history(*reviewed, PASSED), "doing", reason="a case is missing").then(back, again)
    move(history(*reviewed, FAILED), "doing", reason="a case is missing").then(back)


def test_a_gate_is_registered_once_and_before_the_end() -> None:
    history(CREATED).when(rules.gate, "WP03", "ci", gate_type="pipeline").then(
        Gated(work_package_id="WP03", gate_type="pipeline", gate_id="ci")
    )
    history(CREATED, GATE).when(rules.gate, "WP03", "ci", gate_type="ci").then_nothing()
    history(CREATED, DOING, REVIEW, DONE).when(rules.gate, "WP03", "ci", gate_type="ci").refused(RuleRefused)


def test_a_gate_that_is_there_says_what_it_says() -> None:
    judge = rules.judge
    history(CREATED, GATE).when(judge, "WP03", "ci", "passed", data={"run": 1}).then(
        Judged(gate_id="ci", old_status="pending", new_status="passed", result_data={"run": 1})
    )
    history(CREATED, GATE, PASSED).when(judge, "WP03", "ci", "passed").then_nothing()
    history(CREATED, GATE).when(judge, "WP03", "ci", "perhaps").refused(RuleRefused, saying="not perhaps")
    history(CREATED).when(judge, "WP03", "ci", "passed").refused(NoSuchSubject, saying="it has no gates")


# ---- the rest


def test_a_subtask_is_one_of_the_planned_ones_if_any_are_planned() -> None:
    history(CREATED).when(rules.complete, "WP03", 2).then(
        Completed(work_package_id="WP03", subtask_index=2, subtask_text="test it")
    )
    history(CREATED).when(rules.complete, "WP03", 3).refused(NoSuchSubject, saying="its subtasks are 1, 2")
    twice = happened("SubtaskCompleted", lamport=9, subtask_index=2)
    history(CREATED, twice).when(rules.complete, "WP03", 2).then_nothing()
    history(CREATED, twice).when(rules.complete, "WP03", 3).refused(NoSuchSubject)
    history(created(1)).when(rules.complete, "WP03", 3, text="tidy up").then(
        Completed(work_package_id="WP03", subtask_index=3, subtask_text="tidy up")
    )
    history(created(1)).when(rules.complete, "WP03", 0).refused(NoSuchSubject, saying="they count from 1")


def test_a_workspace_is_recorded_when_it_is_another() -> None:
    history(CREATED).when(rules.house, "WP03", "trees/WP03", branch="b").then(
        Housed(work_package_id="WP03", worktree_path="trees/WP03", branch_name="b")
    )
    there = happened("WorkspaceCreated", lamport=2, worktree_path="trees/WP03", branch_name="b")
    history(CREATED, there).when(rules.house, "WP03", "trees/WP03", branch="b").then_nothing()


def test_a_feature_is_specified_once() -> None:
    spec = Specified(feature_slug="025-log", title="Log")
    given().when(lambda events: rules.specify(bool(events), spec)).then(spec)
    given(CREATED).when(lambda events: rules.specify(bool(events), spec)).refused(RuleRefused)
