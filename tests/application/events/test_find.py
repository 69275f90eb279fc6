"""One event by its id, a part of its id, or its position."""

from __future__ import annotations

import pytest

import everlog
from everlog.application.events.find import CANDIDATES_MAX, find_event, find_position, find_stored
from everlog.core.ids import id_uuid
from everlog.errors import InvalidField, NotFound
from everlog.log.log import Log


@pytest.fixture
def log() -> Log:
    log = everlog.open("memory:")
    for number in range(CANDIDATES_MAX + 2):
        log.append("note.added", stream=f"note/{number}", payload={"text": "hello"})
    return log


def test_an_event_is_found_by_id_uuid_part_and_position(log: Log) -> None:
    third = list(log.read())[2].event.id
    for name in (third, third.lower(), str(id_uuid(third)), third[-10:], "#3", "3"):
        found = find_event(log, name)
        assert (found.recorded.position, found.problems) == (3, []), name


def test_a_part_that_is_shared_lists_the_candidates(log: Log) -> None:
    shared = next(log.read()).event.id[:6]
    with pytest.raises(NotFound) as refused:
        find_position(log, shared)
    assert len(refused.value.details["candidates"]) == CANDIDATES_MAX
    assert "and 2 more" in refused.value.why


@pytest.mark.parametrize("name", ["abc", "", "two words", "note/1"])
def test_text_that_cannot_be_a_part_of_an_id_is_refused(log: Log, name: str) -> None:
    with pytest.raises(InvalidField):
        find_position(log, name)


def test_a_purged_event_is_reported_as_purged(log: Log) -> None:
    log.purge("note/3", reason="requested")
    for find in (find_event, find_stored):
        with pytest.raises(NotFound, match="it was purged"):
            find(log, "#4")
        with pytest.raises(NotFound, match="reserves this position"):
            find(log, f"#{log.head()}")
        with pytest.raises(NotFound, match="the log's head is"):
            find(log, "#99")


def test_the_stored_bytes_of_an_event_are_sound(log: Log) -> None:
    found = find_stored(log, "2")
    assert found.sound
    assert found.facts["payload"] == '{"text":"hello","topic":""}'
