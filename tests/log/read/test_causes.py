"""What caused an event: the chain of causation ids, as far as the log knows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import everlog
from everlog.core.event import Recorded
from everlog.core.ids import id_uuid
from everlog.log.log import Log
from everlog.log.read.causes import CAUSES_MAX, causes_of


@pytest.fixture
def log() -> Iterator[Log]:
    with everlog.open("memory:") as opened:
        yield opened


def note(log: Log, **more: str) -> Recorded:
    return log.append("note.added", stream="note/1", payload={"text": "x"}, **more)  # type: ignore[arg-type]


def test_a_chain_is_followed_from_the_event_to_its_first_cause(log: Log) -> None:
    first = note(log)
    second = note(log, causation_id=first.event.id)
    third = note(log, causation_id=str(id_uuid(second.event.id)))
    assert causes_of(log.get, third) == ((second, first), "")


def test_a_long_chain_is_followed_only_so_far(log: Log) -> None:
    last = note(log)
    for _ in range(CAUSES_MAX + 1):
        last = note(log, causation_id=last.event.id)
    found, unknown = causes_of(log.get, last)
    assert (len(found), unknown) == (CAUSES_MAX, "")


@pytest.mark.parametrize("name", ["request-17", "0190163d-8694-739b-aea5-966c26f8ad91"])
def test_a_cause_that_names_no_event_here_is_returned_as_it_was_given(log: Log, name: str) -> None:
    assert causes_of(log.get, note(log, causation_id=name)) == ((), name)


def test_an_event_that_names_itself_has_no_cause(log: Log) -> None:
    itself = "01K00000000000000000000000"
    assert causes_of(log.get, note(log, id=itself, causation_id=str(id_uuid(itself)))) == ((), "")


def test_causes_that_go_round_in_a_circle_are_each_returned_once(log: Log) -> None:
    first, second = "01K00000000000000000000000", "01K00000000000000000000001"
    circle = note(log, id=first, causation_id=second), note(log, id=second, causation_id=first)
    assert causes_of(log.get, note(log, causation_id=second)) == ((circle[1], circle[0]), "")
