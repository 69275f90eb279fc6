"""The promises of every view, as a test suite for your own views.

    class TestBoard(ViewContract):
        view = Board
        events = [moved("WP01", "doing"), moved("WP01", "done")]

`events` are some that the view takes, made with `everlog.testing.builders.event` and at best of every kind that it
knows. The suite then proves that the view is pure, that its states are JSON, that a replay gives the same, that it
can be stopped and continue at any event, and, for a causal view, that the order of arrival never shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from everlog.core.event import Event, Position, Recorded, whole
from everlog.views.builds.rows import Row, row_bytes, row_of
from everlog.views.fold import fold, fold_all, fold_rows
from everlog.views.view import Order, View, digest, view_of

SHUFFLES = 20


class ViewContract:
    """The suite. Its name does not start with Test, so pytest collects only its subclasses."""

    view: ClassVar[type[View] | View]
    events: ClassVar[Sequence[Event]]

    def test_the_view_can_be_run(self) -> None:
        view_of(self.view)

    def test_the_events_are_for_this_view(self) -> None:
        """A suite without events would prove nothing."""
        assert self._states(), "none of the events is for this view"

    def test_replaying_twice_gives_the_same_state(self) -> None:
        assert digest(self._states().items()) == digest(self._states().items())

    def test_the_initial_state_is_a_new_one_every_time(self) -> None:
        view = view_of(self.view)
        before = json.dumps(view.initial(), sort_keys=True)
        fold_all(view, self._records())
        assert json.dumps(view.initial(), sort_keys=True) == before, "initial() hands out what apply() changes"

    def test_every_state_is_json(self) -> None:
        view, rows = view_of(self.view), dict[str, Row]()
        for recorded in self._in_order():
            self._fold(view, rows, [recorded])
            for row in rows.values():
                again = row_of(row_bytes(row)).state
                assert again == row.state, f"after {recorded.event.type} the state is not what JSON makes of it"

    def test_it_can_be_stopped_and_go_on_at_any_event(self) -> None:
        """The snapshot round trip: states are saved and read back between any two events."""
        view, records = view_of(self.view), self._in_order()
        whole = {key: row.state for key, row in fold_rows(view, records).items()}
        for place in range(len(records) + 1):
            rows = fold_rows(view, records[:place])
            kept = {key: row_of(row_bytes(row)) for key, row in rows.items()}
            self._fold(view, kept, records[place:])
            assert {key: row.state for key, row in kept.items()} == whole, f"it differs when stopped after {place}"

    def test_an_event_is_not_changed_by_being_applied(self) -> None:
        records = self._records()
        before = [msgspec.json.encode(whole(recorded.event)) for recorded in records]
        fold_all(view_of(self.view), records)
        assert [msgspec.json.encode(whole(recorded.event)) for recorded in records] == before

    def test_the_order_of_arrival_and_duplicates_do_not_show(self) -> None:
        """For a causal view; a view in order of position may depend on the order of arrival."""
        view, chance = view_of(self.view), random.Random(7)
        if view.order is not Order.CAUSAL:
            return
        expected = digest(self._states().items())
        for _ in range(SHUFFLES):
            arriving = [*self.events, *chance.sample(list(self.events), min(2, len(self.events)))]
            chance.shuffle(arriving)
            found = fold_all(view, _recorded(arriving))
            assert digest(found.items()) == expected, [event.id for event in arriving]

    def _records(self) -> list[Recorded]:
        return _recorded(self.events)

    def _in_order(self) -> list[Recorded]:
        records = [recorded for recorded in self._records() if view_of(self.view).query.matches(recorded)]
        if view_of(self.view).order is Order.CAUSAL:
            records.sort(key=lambda recorded: recorded.event.causal_order)
        return records

    def _states(self) -> dict[str, Any]:
        return fold_all(view_of(self.view), self._records())

    def _fold(self, view: View, rows: dict[str, Row], records: Sequence[Recorded]) -> None:
        done = fold(view, rows, records)
        for failed in (done.stopped, *done.failures):
            if failed is not None:
                raise failed.error


def _recorded(events: Sequence[Event]) -> list[Recorded]:
    return [Recorded(Position(place), place, 0, event) for place, event in enumerate(events, start=1)]
