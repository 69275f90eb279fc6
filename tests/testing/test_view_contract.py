"""The contract of a view: it passes what is right, and catches what is wrong."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from everlog.core.event import Event
from everlog.testing.builders import event
from everlog.testing.view_contract import ViewContract
from everlog.views.builtin import Actors, Streams, Types
from everlog.views.view import CAUSAL, View

EVENTS = [
    event(payload={"text": str(number)}, stream=f"note/{number % 2}", lamport=number, actor=f"user:u{number % 2}")
    for number in range(1, 7)
]


class TestStreams(ViewContract):
    view = Streams
    events = EVENTS


class TestTypes(ViewContract):
    view = Types
    events = EVENTS


class TestActors(ViewContract):
    view = Actors
    events = EVENTS


# ---- wrong views are caught


class Shared(View):
    """Hands out one initial state, and changes it."""

    name = "shared"
    one: ClassVar[dict[str, Any]] = {"count": 0}

    def initial(self) -> dict[str, Any]:
        return self.one

    def apply(self, state: dict[str, Any], event: Event) -> dict[str, Any]:
        state["count"] += 1
        return state


class Tuples(View):
    name = "tuples"

    def apply(self, state: Any, event: Event) -> Any:
        return {"pair": (1, 2)}


class Impure(View):
    name = "impure"

    def __init__(self) -> None:
        self.seen = 0

    def apply(self, state: Any, event: Event) -> Any:
        Impure.total = getattr(Impure, "total", 0) + 1  # type: ignore[attr-defined]
        return {"seen": Impure.total}  # type: ignore[attr-defined]


class Scribbler(View):
    name = "scribbler"

    def apply(self, state: Any, event: Event) -> Any:
        event.payload["read"] = True
        return {}


class Arrival(View):
    """Says that it is causal and asks for the place of arrival by remembering it outside."""

    name = "arrival"
    order = CAUSAL

    def key(self, event: Event) -> str:
        return "all"

    def apply(self, state: Any, event: Event) -> Any:
        return {"last": event.payload["text"]}


def contract(view: type[View], events: list[Event] | None = None) -> ViewContract:
    made = type("Contract", (ViewContract,), {"view": view, "events": EVENTS if events is None else events})
    found: ViewContract = made()
    return found


@pytest.mark.parametrize(
    ("view", "promise"),
    [
        (Shared, "test_the_initial_state_is_a_new_one_every_time"),
        (Tuples, "test_every_state_is_json"),
        (Impure, "test_replaying_twice_gives_the_same_state"),
        (Scribbler, "test_an_event_is_not_changed_by_being_applied"),
    ],
)
def test_a_wrong_view_is_caught(view: type[View], promise: str) -> None:
    events = [event(payload={"text": str(number)}, lamport=number) for number in range(1, 4)]
    with pytest.raises(AssertionError):
        getattr(contract(view, events), promise)()


def test_a_suite_without_events_for_the_view_is_caught() -> None:
    with pytest.raises(AssertionError):
        contract(Streams, []).test_the_events_are_for_this_view()


def test_a_causal_view_is_tried_in_many_orders() -> None:
    contract(Arrival).test_the_order_of_arrival_and_duplicates_do_not_show()
