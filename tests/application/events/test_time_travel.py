"""The state of a stream now and then, what changed, and why."""

from __future__ import annotations

import pytest

import everlog
from everlog.application.events.time_travel import change_between, describe, reasons_for, state_then
from everlog.errors import InvalidField, NotFound
from everlog.views.as_of import Version


@pytest.fixture
def log() -> everlog.Log:
    log = everlog.open("memory:")
    for text in ("one", "two", "three"):
        log.append("note.added", stream="note/1", payload={"text": text}, actor="user:ada")
    log.append("note.added", stream="note/2", payload={"text": "other"})
    return log


def test_the_state_of_a_stream_is_that_of_the_moment(log: everlog.Log) -> None:
    now, then = state_then(log, "note/1"), state_then(log, "note/1", moment=2)
    assert (now.state["text"], now.events, now.incomplete) == ("three", 3, False)
    assert (then.state["text"], then.events, describe(then.at)) == ("two", 2, "as of #2")


def test_a_change_has_the_fields_and_the_events_in_between(log: everlog.Log) -> None:
    found = change_between(log, "note/1", Version(1))
    assert [(one.path, one.was, one.now) for one in found.changed] == [("$.text", "one", "three")]
    assert [recorded.position for recorded in found.events] == [2, 3]
    back = change_between(log, "note/1", Version(3), Version(1))
    assert (back.backwards, [recorded.position for recorded in back.events]) == (True, [2, 3])


def test_the_reasons_for_a_value_are_the_events_that_set_it_newest_first(log: everlog.Log) -> None:
    found = reasons_for(log, "note/1", "text", limit=2)
    assert (found.path, [(one.was, one.now) for one in found.events]) == (
        "$.text",
        [("two", "three"), ("one", "two")],
    )
    with pytest.raises(NotFound, match=r"no event of note/1 sets \$\.colour"):
        reasons_for(log, "note/1", "colour")


def test_a_stream_that_never_existed_hints_at_a_similar_one(log: everlog.Log) -> None:
    log.append("note.added", stream="note/kitchen", payload={"text": "x"})
    with pytest.raises(NotFound) as refused:
        state_then(log, "note/kitchn")
    assert "note/kitchen" in refused.value.hint


def test_a_purged_stream_is_reported_as_purged(log: everlog.Log) -> None:
    log.purge("note/2", reason="requested")
    with pytest.raises(NotFound, match=r"it was purged \(requested\)"):
        state_then(log, "note/2")


def test_a_view_needs_a_key(log: everlog.Log) -> None:
    with pytest.raises(InvalidField, match="one state per key"):
        state_then(log, "streams")
