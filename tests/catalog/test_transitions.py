from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from everlog.catalog import Catalog, Transitions
from everlog.errors import InvalidField, SchemaBroken, TransitionRefused

ALLOWED = {"planned": ["doing"], "doing": ["for_review", "planned"], "for_review": ["done", "doing"]}


class Moved(msgspec.Struct):
    went_to: Literal["planned", "doing", "for_review", "done"]


def a_rule() -> Transitions:
    return Catalog().transitions(
        "workpackage", type="workpackage.moved", field="went_to", initial="planned", allowed=ALLOWED
    )


def test_an_allowed_move_passes() -> None:
    for current, targets in ALLOWED.items():
        for requested in targets:
            a_rule().check("workpackage/WP03", current, requested)


def test_a_refused_move_says_what_is_allowed_and_the_way() -> None:
    with pytest.raises(TransitionRefused) as refused:
        a_rule().check("workpackage/WP03", "planned", "done")
    error = refused.value
    assert error.what == "workpackage/WP03 cannot go from planned to done"
    assert error.why == "from planned it may go to doing"
    assert error.hint == "go through doing and for_review first"
    assert error.details["current"] == "planned"
    assert error.details["requested"] == "done"
    assert error.details["valid_transitions"] == ["doing"]


@pytest.mark.parametrize(
    ("current", "requested", "why", "hint"),
    [
        ("done", "doing", "nothing follows done", "no allowed way leads from done to doing"),
        ("doing", "doing", "from doing it may go to for_review or planned", "go through for_review"),
        ("doing", "lost", "from doing it may go to for_review or planned", "the states are doing, done"),
        ("lost", "doing", "from lost it may go to planned", "go through planned first"),
    ],
)
def test_every_refusal_explains_itself(current: str, requested: str, why: str, hint: str) -> None:
    with pytest.raises(TransitionRefused) as refused:
        a_rule().check("workpackage/WP03", current, requested)
    assert refused.value.why == why
    assert refused.value.hint.startswith(hint)


def test_a_stream_in_a_state_of_another_program_can_start_over() -> None:
    a_rule().check("workpackage/WP03", "lost", "planned")


def test_a_rule_is_found_by_kind_and_type_only() -> None:
    catalog = Catalog()
    rule = catalog.transitions(
        "workpackage", type="workpackage.moved", field="went_to", initial="planned", allowed=ALLOWED
    )
    assert catalog.transition_rule("workpackage", "workpackage.moved") is rule
    assert catalog.transition_rule("workpackage", "workpackage.made") is None
    assert catalog.transition_rule("issue", "workpackage.moved") is None
    assert catalog.rules() == [rule]


def test_a_second_rule_for_a_kind_and_type_is_refused_unless_it_is_the_same() -> None:
    catalog = Catalog()
    for _ in range(2):
        catalog.transitions("wp", type="wp.moved", field="to", initial="a", allowed={"a": ["b"]})
    with pytest.raises(SchemaBroken):
        catalog.transitions("wp", type="wp.moved", field="to", initial="a", allowed={"a": ["c"]})


def test_an_initial_state_without_a_way_out_is_refused() -> None:
    with pytest.raises(SchemaBroken):
        Catalog().transitions("wp", type="wp.moved", field="to", initial="x", allowed={"a": ["b"]})


def test_a_kind_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InvalidField):
        Catalog().transitions("Work Package", type="wp.moved", field="to", initial="a", allowed={"a": ["b"]})


def test_check_reports_a_rule_that_does_not_fit_its_model() -> None:
    catalog = Catalog()
    catalog.event("wp.moved")(Moved)
    catalog.transitions("a", type="wp.moved", field="to", initial="planned", allowed=ALLOWED)
    catalog.transitions("b", type="wp.moved", field="went_to", initial="planned", allowed={"planned": ["lost"]})
    catalog.transitions("c", type="wp.made", field="to", initial="planned", allowed=ALLOWED)
    catalog.transitions("d", type="wp.moved", field="went_to", initial="planned", allowed=ALLOWED)
    assert catalog.check() == [
        "the transitions of a by wp.moved: the model has no field to",
        "the transitions of b by wp.moved: the field went_to never says lost",
        "the transitions of c by wp.made: no model is registered for the type",
    ]
