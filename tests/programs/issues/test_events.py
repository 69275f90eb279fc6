"""Payloads of issues: those of the tracker that came before are read in the present form."""

from __future__ import annotations

from typing import Any

import pytest

from everlog.errors import InvalidPayload
from everlog.programs.issues.events import CATALOG
from everlog.testing.builders import event

UID = "01M7Q2X4T9ZK3V5B8N6WA0HRAC"


def test_an_issue_that_had_a_number_has_no_short_id_yet() -> None:
    found = CATALOG.upcast(
        event("issue.created", payload={"number": 7, "title": "The door squeaks", "labels": ["p1", "bug"]})
    ).payload
    assert found == {
        "short_id": "",
        "title": "The door squeaks",
        "body": "",
        "owner": "",
        "labels": ["bug", "p1"],
    }


def test_an_export_of_that_tracker_may_have_a_short_id_and_lack_the_rest() -> None:
    found = CATALOG.upcast(
        event("issue.created", payload={"short_id": "hrac", "title": None, "labels": "none"})
    ).payload
    assert (found["short_id"], found["title"], found["labels"]) == ("hrac", "(no title)", [])


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("issue.created", {"short_id": "ilou", "title": "x"}),  # signs that are easily misread
        ("issue.created", {"short_id": "hrac", "title": ""}),
        ("issue.edited", {"changes": {}}),
        ("issue.edited", {"changes": {"status": {"from": "open", "to": "closed"}}}),
        ("issue.labeled", {"label": "two words"}),
        ("issue.linked", {"kind": "eats", "source": {}, "target": {}}),
        (
            "issue.linked",
            {
                "kind": "blocks",
                "source": {"uid": UID, "short_id": "0000"},  # not the end of the uid
                "target": {"uid": UID, "short_id": "hrac"},
            },
        ),
        ("issue.purged", {"uid": UID, "short_id": "hrac", "events": -1}),
    ],
)
def test_a_payload_of_another_shape_is_refused(event_type: str, payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        CATALOG.validate(event_type, payload)
