"""Three ways to a view's state: they agree for a sound view, and one that depends on chance is found."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import everlog
from everlog import programs
from everlog.core.event import Event
from everlog.demo.truth import every_view, follow, together, truths
from everlog.log.log import Log
from everlog.views.builtin import Streams
from everlog.views.view import View

_calls = count()


class Chance(View):
    """Gives another state at every call."""

    name = "chance"

    def apply(self, state: Any, event: Event) -> Any:
        return {"number": next(_calls)}


@pytest.fixture
def log() -> Iterator[Log]:
    with everlog.open("memory:", actor="user:ada") as log:
        for number in range(3):
            log.append("note.added", stream=f"note/{number}", payload={"text": "x"})
        yield log


def test_a_sound_view_is_the_same_by_all_three_ways(log: Log) -> None:
    (found,) = truths(log, [Streams])
    assert (found.view, found.rows, found.one) == ("streams", 3, True)


def test_a_view_that_depends_on_chance_is_found(log: Log) -> None:
    (found,) = truths(log, [Chance])
    assert not found.one
    assert len({found.live, found.rebuilt, found.as_of_head}) == 3


def test_every_view_of_every_program_is_followed(log: Log) -> None:
    names = {view.name for view in every_view()}
    assert names == {view.name for name in programs.TYPES for view in programs.load(name).views}
    follow(log)
    assert {one.view for one in log.views.overviews() if one.state == "ok"} >= names


def test_the_digest_of_all_covers_each(log: Log) -> None:
    found = truths(log, [Streams, Streams])
    assert together(found) != together(found[:1])
