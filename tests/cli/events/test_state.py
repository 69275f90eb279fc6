"""`everlog state`, `diff` and `why`."""

from __future__ import annotations

import pytest
from tests.cli.conftest import Run


def test_the_state_of_a_stream_is_the_last_value_of_every_field(notes: Run) -> None:
    assert notes("state", "note/1").rows == [["$.text", "note 4"], ["$.topic", ""]]
    data = notes("state", "note/1", "--json").data
    assert (data["state"], data["events"], data["position"]) == ({"text": "note 4", "topic": ""}, 4, 5)


@pytest.mark.parametrize(
    ("moment", "text"), [("#2", "note 2"), ("v3", "note 3"), ("lamport:1", "note 1"), ("0s", "note 4")]
)
def test_a_state_of_the_past(notes: Run, moment: str, text: str) -> None:
    assert notes("state", "note/1", "--as-of", moment, "--json").data["state"]["text"] == text


def test_a_time_names_the_event_that_comes_next(notes: Run) -> None:
    found = notes("log", "--json").data
    third = found[2]["received_at"]
    data = notes("state", "note/1", "--as-of", third, "--json").data
    assert (data["next"], data["position"]) == (3, 2)
    assert data["state"]["text"] == "note 2"


@pytest.mark.parametrize("moment", ["-1h", "-2h", "-10m"])
def test_so_long_ago_is_not_an_option(notes: Run, moment: str) -> None:
    found = notes("state", "note/1", "--as-of", moment)
    assert found.code == 4
    assert "has no state" in found.err
    assert notes("state", "note/1", "--as-of", moment, "--missing-ok").code == 0
    assert notes("diff", "note/1", moment, "--json").data["changes"] == [
        {"path": "$.text", "now": "note 4"},
        {"path": "$.topic", "now": ""},
    ]


def test_a_moment_that_is_none_is_refused_with_what_would_do(notes: Run) -> None:
    assert notes("state", "note/1", "--as-of", "yesterday").code == 2
    assert notes("state", "note/1", "--as-of", "#99").code == 3
    assert notes("state", "note/1", "--as-of", "v9").code == 4
    assert notes("state", "note/none").code == 4
    assert notes("state", "no-such-view", "key").code == 4
    assert notes("state", "fields").code == 3


def test_a_key_of_a_view_by_its_name(notes: Run) -> None:
    assert notes("state", "fields", "note/2", "--json").data["state"]["text"] == "other"


def test_a_diff_shows_changed_paths_and_the_events_between(notes: Run) -> None:
    assert notes("diff", "note/1", "v1", "v3").rows == [["$.text", '"note 1"', '"note 3"']]
    data = notes("diff", "note/1", "v1", "v3", "--json").data
    assert data["changes"] == [{"path": "$.text", "was": "note 1", "now": "note 3"}]
    assert [event["position"] for event in data["events"]] == [2, 3]
    assert notes("diff", "note/1", "v2", "v2", "--json").data["changes"] == []
    backwards = notes("diff", "note/1", "v3", "v1", "--json").data
    assert backwards["changes"] == [{"path": "$.text", "was": "note 3", "now": "note 1"}]
    assert [event["payload"]["text"] for event in backwards["events"]] == ["note 2", "note 3"]
    assert notes("diff", "note/none", "#1", "#2").code == 4
    assert notes("diff", "note/1", "#2", "--view", "fields", "--json").data["to"]["position"] == 5


def test_why_shows_the_events_behind_a_value_and_their_causes(notes: Run) -> None:
    cause = notes("show", "#5", "--json").data["id"]
    notes("append", "note.added", "-s", "note/1", "text=final", "--causation", cause)
    data = notes("why", "note/1", "text", "--json").data
    assert [event["now"] for event in data["events"]] == ["note 1", "note 2", "note 3", "note 4", "final"]
    assert data["events"][-1]["causes"][0]["id"] == cause
    assert notes("why", "note/1", "text", "-n", "1").rows[0][-1] == "#5"
    assert len(notes("why", "note/1", "topic", "--json").data["events"]) == 1
    assert notes("why", "note/1", "nothing").code == 4
    assert notes("why", "note/1", "a..b").code == 3
    assert notes("why", "note/1", "text", "--as-of", "v2", "-q").out.count("\n") == 2


def test_the_state_of_a_stream_that_is_not_there_leads_to_one_that_is(notes: Run) -> None:
    for stream, hint in (
        ("note/11", "did you mean note/1? everlog log --kind note"),
        ("note/77", "everlog log --kind note"),
        ("memo/1", "everlog log"),
    ):
        error = notes("state", stream, "--json").error
        assert error["hint"] == hint
        assert notes(*hint.partition("everlog ")[2].split()).rows
    assert notes("state", "actors", "user:eve", "--json").error["hint"] == "everlog views get actors"
    assert notes("state", "note/2", "--as-of", "#1", "--json").error["hint"] == "everlog log --stream note/2"
    notes("purge", "note/2", "--reason", "asked to", "--confirm", "purge note/2")
    error = notes("state", "note/2", "--json").error
    assert (error["why"], error["hint"]) == ("it was purged (asked to)", "everlog log --purges")
