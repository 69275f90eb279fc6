"""Bugs planted in the consumers, each of which the world must notice: without this a green run means nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.consumers.world import World

from everlog.consumers import assignment, fetch, member
from everlog.consumers import checkin as checking_in
from everlog.consumers.checkin import CheckIn, CheckInResult, check_in
from everlog.consumers.group import Group
from everlog.consumers.group_state import Grant, GroupState, Progress, keep_progress, read_group
from everlog.consumers.window import Window
from everlog.core.event import Position
from everlog.core.query import Cursor
from everlog.log.log import Log
from everlog.stores.open_write import OpenWrite

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS, STEPS = 60, 150


def nobody_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """A write of somebody who lost its lease is taken as if nothing had happened."""

    def careless(writer: OpenWrite, request: CheckIn, agreed: Any) -> CheckInResult:
        found = agreed(writer, read_group(writer, request.group))
        if request.token and (
            request.member not in found.members or found.members[request.member].until_us <= writer.now_us
        ):
            outcome = CheckInResult(
                now_us=writer.now_us, token=request.token, until_us=writer.now_us + request.lease_us, state=found
            )
            for partition, finished in request.finished.items():
                if finished.progress is not None:
                    keep_progress(writer, request.group, partition, finished.progress)
            return outcome
        return check_in(writer, request, agreed)

    patch.setattr(member, "check_in", careless)


def a_grant_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    """The membership is checked, the partition is not: a group that was reset is written over."""
    patch.setattr(checking_in, "_has", lambda *asked: True)


def the_cursor_passes_what_is_in_flight(patch: pytest.MonkeyPatch) -> None:
    def careless(window: Window) -> Position:
        waiting = [p for p, e in window._entries.items() if not e.finished and not e.in_flight]
        return Position(min(waiting) - 1) if waiting else window.looked

    patch.setattr(Window, "mark", property(careless))


def the_cursor_is_how_far_it_looked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Window, "mark", property(lambda window: window.looked))


def a_failed_event_is_passed_by_its_key(patch: pytest.MonkeyPatch) -> None:
    """While an event waits for its next attempt, the next one of its key is given out."""
    real = Window.next

    def careless(window: Window, now_us: int, read: Any) -> Any:
        for position in sorted(window._entries):
            entry = window._entries[position]
            if not entry.finished and not entry.in_flight and entry.not_before_us <= now_us:
                entry.in_flight = True
                return entry
        return real(window, now_us, read)

    patch.setattr(Window, "next", careless)


def letters_hold_nobody(patch: pytest.MonkeyPatch) -> None:
    real = Window._bury

    def careless(window: Window, entry: Any, what: str, reason: str, *, holds: bool) -> None:
        real(window, entry, what, reason, holds=False)

    patch.setattr(Window, "_bury", careless)


def partitions_are_taken_from_the_living(patch: pytest.MonkeyPatch) -> None:
    """Who has too few takes them at once, and whoever has them goes on: two owners."""
    real = assignment.taking_free

    def careless(state: GroupState, name: str) -> tuple[GroupState, dict[int, int]]:
        return real(
            state.granting({n: Grant("", g.token) for n, g in enumerate(state.grants) if g.member != name}), name
        )

    patch.setattr(assignment, "taking_free", careless)
    patch.setattr(checking_in, "_has", lambda *asked: True)


def what_is_in_flight_is_given_back(patch: pytest.MonkeyPatch) -> None:
    """A partition goes to another member while its old owner still has an event of it in hand, unfenced."""
    real = member.Member._apply

    def careless(self: Any, outcome: CheckInResult, stored: Any, before_s: float, rebalance: bool) -> None:
        kept = {n: self._windows[n] for n in outcome.released if n in self._windows}
        real(self, outcome, stored, before_s, rebalance)
        for number, window in kept.items():
            window.lost = False
            self._windows.setdefault(number, window)

    patch.setattr(member.Member, "_apply", careless)
    patch.setattr(checking_in, "_has", lambda *asked: True)


def done_beyond_the_cursor_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = Window._take_progress

    def careless(window: Window, progress: Progress) -> None:
        real(window, msgspec.structs.replace(progress, done=()))

    patch.setattr(Window, "_take_progress", careless)


def a_purge_moves_the_cursor_to_itself(patch: pytest.MonkeyPatch) -> None:
    """As a reader would that fetches state anew: a consumer loses what lies between."""

    def careless(window: Window, purged: Position, epoch: str) -> None:
        window.cursor = Cursor(purged, Position(0), epoch)
        window.looked = purged
        window._entries = {}

    patch.setattr(Window, "know_of", careless)


def buffered_events_survive_a_purge(patch: pytest.MonkeyPatch) -> None:
    def careless(window: Window, purged: Position, epoch: str) -> None:
        window.cursor = Cursor(window.cursor.position, purged, epoch)

    patch.setattr(Window, "know_of", careless)


def a_full_window_forgets_the_rest_of_its_page(patch: pytest.MonkeyPatch) -> None:
    real = fetch.fetch_events

    def careless(windows: dict[int, Window], log: Log, group: Group) -> None:
        real(windows, log, group)
        for window in windows.values():
            window.looked = log.head()

    patch.setattr(member, "fetch_events", careless)


PLANTS: tuple[Plant, ...] = (
    nobody_is_fenced,
    a_grant_is_not_looked_at,
    the_cursor_passes_what_is_in_flight,
    the_cursor_is_how_far_it_looked,
    a_failed_event_is_passed_by_its_key,
    letters_hold_nobody,
    partitions_are_taken_from_the_living,
    what_is_in_flight_is_given_back,
    done_beyond_the_cursor_is_forgotten,
    a_purge_moves_the_cursor_to_itself,
    buffered_events_survive_a_purge,
    a_full_window_forgets_the_rest_of_its_page,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(SEEDS):
            world = World()
            try:
                world.live(seed, STEPS)
            finally:
                world.close()


def test_without_a_bug_the_same_lives_are_sound() -> None:
    for seed in range(SEEDS):
        world = World()
        world.live(seed, STEPS)
        world.close()
