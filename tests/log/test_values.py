"""What a writer gets back is what every reader gets, in the types too: 1.0 is stored as 1, and -0.0 as 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.conftest import Clock

from everlog.errors import EverlogError, NotCanonical
from everlog.log.log import Log
from everlog.views.live import Mode
from everlog.views.view import View

SAID = {"whole": 1.0, "zero": -0.0, "half": 0.5, "deep": [{"x": 2.0}, [3.0, -7.0, 1e15]], "int": 4, "small": 1e-7}
STORED = {"whole": 1, "zero": 0, "half": 0.5, "deep": [{"x": 2}, [3, -7, 10**15]], "int": 4, "small": 1e-7}


def exactly(value: Any) -> Any:
    """The value with its types and signs, which Python's == does not look at."""
    match value:
        case dict():
            return {key: exactly(item) for key, item in sorted(value.items())}
        case list():
            return [exactly(item) for item in value]
        case _:
            return (type(value).__name__, repr(value))


class Last(View):
    name = "test.last"
    types = ("thing.said",)

    def key(self, event: Any) -> str:
        return "all"

    def initial(self) -> Any:
        return []

    def apply(self, state: Any, event: Any) -> Any:
        return [*state, repr(exactly(event.payload["value"]))]


def test_floats_come_back_as_their_canonical_form_everywhere(log: Log) -> None:
    log.views.register(Last, mode=Mode.INLINE)
    follower = log.subscribe(0, to_end=True)
    receipt = log.append("thing.said", stream="thing/1", payload={"value": SAID}, key="k")
    replay = log.append("thing.said", stream="thing/1", payload={"value": SAID}, key="k")
    (read,) = log.read()
    followed: Any = next(follower)
    got = log.get(receipt.event.id)
    page = log.page_after(0).events[0]
    assert got is not None
    for one in (receipt, replay, read, followed, got, page):
        assert exactly(one.event.payload["value"]) == exactly(STORED)
    assert receipt == replay == read
    assert log.view(Last).get("all").state == [repr(exactly(STORED))]


def test_an_event_from_another_log_comes_back_as_its_canonical_form(
    log: Log, make_log: Callable[..., Log], clock: Clock
) -> None:
    made = make_log("memory", now_us=clock).append("thing.said", stream="thing/1", payload={"value": SAID})
    # As a program might build it that has floats where JSON has whole numbers: the same bytes, the same commitment.
    (admitted,) = log.admit([msgspec.structs.replace(made.event, payload={"value": SAID})])
    (read,) = log.read()
    for one in (admitted, read):
        assert exactly(one.event.payload["value"]) == exactly(STORED)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused_by_the_log(log: Log, number: float) -> None:
    with pytest.raises(EverlogError):
        log.append("thing.said", stream="thing/1", payload={"value": number})
    assert log.head() == 0


def test_colliding_keys_are_refused_by_the_log(log: Log) -> None:
    with pytest.raises(NotCanonical):
        log.append("thing.said", stream="thing/1", payload={"value": {"1": 1, 1: 2}})
    assert log.head() == 0
