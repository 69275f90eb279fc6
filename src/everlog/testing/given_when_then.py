"""Test rules and views without a log: given events, when a rule is called, then events, a state or a refusal.

    given(created(), moved("doing")).when(move, to="done").then(Moved(came_from="doing", went_to="done"))
    given(created()).when(move, to="done").refused(ForbiddenMove)
    given(created(), moved("doing")).view(Board).shows("workpackage/WP03", {"lane": "doing"})

A rule is a function from a history and further arguments to what should be recorded. Its history is the list of
events, or the result of `through`: `given(…).through(lane_of).when(move, …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from everlog.core.event import Event, Position, Recorded
from everlog.views.fold import fold_all
from everlog.views.view import State, View, view_of


def given(*events: Any) -> Given:
    return Given(list(events), None)


class Given:
    """A history of events."""

    def __init__(self, events: list[Any], fold: Callable[[list[Any]], Any] | None) -> None:
        self.events = events
        self._fold = fold

    def through(self, fold: Callable[[list[Any]], Any]) -> Given:
        """Pass the result of a function of the history to the rule, such as a state."""
        return Given(self.events, fold)

    def when(self, rule: Callable[..., Any], *arguments: Any, **named: Any) -> Outcome:
        """Call a rule; its answer or refusal is checked afterwards."""
        history = self.events if self._fold is None else self._fold(self.events)
        try:
            made = rule(history, *arguments, **named)
        except Exception as error:
            return Outcome(rule, None, error)
        return Outcome(rule, made, None)

    def view(self, view: type[View] | View) -> Seen:
        """Return the states of a view after the history."""
        records = [
            Recorded(Position(place), place, 0, event)
            for place, event in enumerate((event for event in self.events if isinstance(event, Event)), start=1)
        ]
        assert len(records) == len(self.events), "a view takes events: see everlog.testing.builders.event"
        return Seen(fold_all(view_of(view), records))


class Outcome:
    """The answer of a rule."""

    def __init__(self, rule: Callable[..., Any], made: Any, error: Exception | None) -> None:
        self._rule = getattr(rule, "__name__", repr(rule))
        self._made = made
        self.error = error

    def then(self, *expected: Any) -> None:
        """Check that the rule returned exactly these, in this order."""
        if self.error is not None:
            raise AssertionError(f"{self._rule} refused: {self.error}") from self.error
        made = list(self._made) if isinstance(self._made, Iterable) else [self._made]
        assert made == list(expected), f"{self._rule} made {made}, not {list(expected)}"

    def then_nothing(self) -> None:
        self.then()

    def accepted(self) -> None:
        """Check that a judge, which returns nothing, did not refuse."""
        if self.error is not None:
            raise AssertionError(f"{self._rule} refused: {self.error}") from self.error

    def refused(self, kind: type[Exception] = Exception, *, saying: str = "") -> None:
        """Check that the rule refused, with this error and this text in its message."""
        if self.error is None:
            raise AssertionError(f"{self._rule} did not refuse: it made {self._made!r}")
        if not isinstance(self.error, kind):
            raise AssertionError(f"{self._rule} raised {self.error!r}, not {kind.__name__}") from self.error
        assert saying in str(self.error), f"{self._rule} refused with {str(self.error)!r}, not {saying!r}"


class Seen:
    """The states of a view."""

    def __init__(self, states: dict[str, State]) -> None:
        self.states = states

    def shows(self, key: str, state: State) -> None:
        assert self.states.get(key) == state, f"{key} is {self.states.get(key)!r}, not {state!r}"

    def shows_nothing_of(self, key: str) -> None:
        assert key not in self.states, f"{key} is {self.states[key]!r}"
