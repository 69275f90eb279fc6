"""Views of a user: a wrong one is reported, and keeps no other from answering."""

from __future__ import annotations

from typing import Any

import pytest

from everlog.core.event import Event
from everlog.views.builtin import Streams
from everlog.views.user_views import describe, usable_views
from everlog.views.view import View


class Mine(View):
    name = "mine"

    def apply(self, state: Any, event: Event) -> Any:
        return {}


class Broken(View):
    name = "broken"

    def __init__(self) -> None:
        raise ValueError("no database")


class Ends(View):
    name = "ends"

    def __init__(self) -> None:
        raise SystemExit(3)


def usable(*given: object) -> tuple[list[str], list[str]]:
    found, wrong = usable_views(list(given), "shop:VIEWS", lambda name: Streams if name == "streams" else None)
    return [view.name for view in found], [error.why for error in wrong]


def test_a_wrong_view_does_not_take_the_others_along() -> None:
    names, why = usable(Broken, "text", Mine)
    assert names == ["mine"]
    assert why == ["ValueError: no database", "it must be an everlog.View, or a list of them"]


def test_the_same_view_twice_does_no_harm_and_another_of_its_name_is_refused() -> None:
    other = type("Other", (Mine,), {})
    names, why = usable(Mine, Mine(), other)
    assert names == ["mine"]
    assert len(why) == 1
    assert "Mine has the name mine already" in why[0]


@pytest.mark.parametrize("taken", ["streams", "fields"])
def test_a_name_of_a_built_in_view_is_taken(taken: str) -> None:
    names, why = usable(type("Taker", (Mine,), {"name": taken}))
    assert names == []
    assert f"has the name {taken} already" in why[0]


def test_one_view_needs_no_list() -> None:
    found, wrong = usable_views(Mine, "shop:VIEW", lambda name: None)
    assert ([view.name for view in found], wrong) == (["mine"], [])


def test_code_that_ends_the_program_is_obeyed() -> None:
    with pytest.raises(SystemExit):
        usable(Ends)


def test_an_error_that_cannot_be_shown_is_named_by_its_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(Mute()) == "Mute"
    assert describe(ImportError("No module named 'shop'")) == "No module named 'shop'"
