"""Payloads of work packages: events of spec-kitty's own log are read in the present form."""

from __future__ import annotations

import pytest

from everlog.errors import InvalidPayload
from everlog.programs.workpackages.events import CATALOG
from everlog.testing.builders import event


def test_a_package_of_a_mission_is_named_with_it_and_so_is_what_it_needs() -> None:
    old = {"mission_slug": "025-log", "wp_id": "WP03", "wp_title": "Index", "depends_on": "WP01, WP02"}
    assert CATALOG.upcast(event("WPCreated", payload=old)).payload == {
        "work_package_id": "025-log:WP03",
        "title": "Index",
        "feature_slug": "025-log",
        "dependencies": ["025-log:WP01", "025-log:WP02"],
        "subtasks": [],
    }


def test_our_own_fields_are_taken_as_they_are() -> None:
    old = {"work_package_id": "WP03", "title": "Index", "dependencies": ["WP01"], "mission_slug": ""}
    found = CATALOG.upcast(event("WPCreated", payload=old)).payload
    assert (found["work_package_id"], found["dependencies"]) == ("WP03", ["WP01"])


@pytest.mark.parametrize(
    ("word", "lane"),
    [("planned", "planned"), ("For Review", "for_review"), ("for-review", "for_review"), (None, ""), ("odd", "odd")],
)
def test_a_lane_has_our_name_and_an_unknown_one_stays(word: str | None, lane: str) -> None:
    found = CATALOG.upcast(event("WPStatusChanged", payload={"old_status": "planned", "new_status": word})).payload
    assert found["new_status"] == lane


def test_an_event_of_ours_names_a_lane_that_exists() -> None:
    with pytest.raises(InvalidPayload):
        CATALOG.validate("WPStatusChanged", {"old_status": "planned", "new_status": "odd"})
