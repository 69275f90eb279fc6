"""A member of a group: it takes its share of the partitions, gives out their events, and stores what is finished.

Two locks, always taken in this order: `_contacting` lets one thread at a time write to the group, and whoever waits
for it finds its own work stored by the one before; `_memory` guards the windows, and is never held during a write.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from everlog.consumers import dealing
from everlog.consumers.contact import Ask, Outcome, contact
from everlog.consumers.delivery import Delivery
from everlog.consumers.filling import fill, follow_resets, resets_needed
from everlog.consumers.lease import Lease
from everlog.consumers.states import Place, read_group
from everlog.consumers.window import Entry, Window
from everlog.core.event import Recorded
from everlog.core.query import Cursor, Reset
from everlog.errors import EverlogError, LeaseLost, LogClosed
from everlog.log.letters import read_letters
from everlog.log.pages import newest_purge
from everlog.log.subscribers import POLL_S

if TYPE_CHECKING:
    from everlog.consumers.group import Group

OnReset = Callable[[Reset], "Cursor | int | str | None"]
LOOK_S = 0.5
"""How often a member looks whether its group has changed, at the least."""

_logger = logging.getLogger("everlog")


class Member:
    def __init__(
        self,
        group: Group,
        name: str,
        *,
        in_flight: int,
        ack_batch: int,
        heartbeat: bool,
        handling_s_max: float,
        on_reset: OnReset | None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.group = group
        self.name = name
        self.on_reset = on_reset
        self._log = group.log
        self._in_flight_max = in_flight
        self._ack_batch = ack_batch
        self._handling_s_max = handling_s_max
        self._ticks = ticks
        self._contacting = threading.RLock()
        self._memory = threading.RLock()
        self._windows: dict[int, Window] = {}
        self._lease = Lease(group.settings.lease_us, ticks)
        self._look_s = 0.0
        self._deal_now = False
        self._decisions = -1  # the last one by hand that we have looked at
        self._unstored = 0
        self._marks = 0
        self._stored_marks = 0
        self._turn = 0
        self._left = False
        self._overtaken = False
        self._last: Delivery | None = None
        self._seen: tuple[int, str] | None = None  # the head and the epoch at the last look for resets
        self._beat: threading.Thread | None = None
        self._stop_beating = threading.Event()
        if heartbeat:
            self._beat = threading.Thread(target=self._keep_beating, name=f"everlog-member-{name}", daemon=True)
            self._beat.start()

    # ---- taking events

    def __iter__(self) -> Iterator[Delivery]:
        return self.deliveries()

    def deliveries(self, *, to_end: bool = False, stop: Callable[[], bool] = lambda: False) -> Iterator[Delivery]:
        """Events of this member's share as they come; with `to_end`, until there is nothing more for it now.

        Closing the log ends them. With `to_end` it raises LogClosed instead, unless nothing was left.
        """
        waiters = self._log.waiters
        try:
            while not (self._left or stop()):
                commits = waiters.commits  # before the look, so that a commit during it is not slept over
                delivery = self.take()
                if delivery is not None:
                    yield delivery
                elif (to_end and self.at_end) or (waiters.closed and not to_end):
                    return
                else:
                    waiters.wait(commits, POLL_S)
        except LogClosed:
            if to_end or not waiters.closed:
                raise

    def take(self) -> Delivery | None:
        """The next event that may be handled now, or None. It does not wait.

        With one in flight (the default), whoever asks for the next one without having said what became of the last
        has failed it.
        """
        if self._overtaken:
            raise self._replaced()
        if self._left:
            return None
        if self._in_flight_max == 1 and self._last is not None and not self._last.settled:
            with suppress(LeaseLost):
                self._last.nack("it was neither acknowledged nor refused")
        self._keep_in_touch()
        with self._memory:
            delivery = self._pick()
            if delivery is None:
                fill(self._windows, self._log, self.group)
                delivery = self._pick()
            letters = any(window.letters_to_store for window in self._windows.values())
            watched = delivery is not None and delivery.window.begin(delivery.entry)
        try:
            if letters or watched or (delivery is None and self._unstored):
                self._store()
        except BaseException:
            if delivery is not None:
                delivery.window.give_back(delivery.entry)
            raise
        self._last = delivery
        return None if delivery is not None and delivery.window.lost else delivery

    @property
    def at_end(self) -> bool:
        """Whether nothing is left for this member: all is read and finished, but for what waits for a person."""
        head = self._log.head()
        with self._memory:
            return all(window.looked >= head and not window.unfinished for window in self._windows.values())

    @property
    def left(self) -> bool:
        return self._left

    @property
    def partitions(self) -> list[int]:
        with self._memory:
            return sorted(self._windows)

    def run(self, handler: Callable[[Recorded], Any], *, to_end: bool = False) -> int:
        """Hand every event to a function; returning acknowledges it, raising fails it. How many were acknowledged.

        A handler with a method `on_reset` is told there when history changed.
        """
        self.on_reset = self.on_reset or getattr(handler, "on_reset", None)
        count = 0
        for delivery in self.deliveries(to_end=to_end):
            try:
                try:
                    handler(delivery.recorded)
                except Exception as error:
                    delivery.nack(f"{type(error).__name__}: {error}")
                else:
                    delivery.ack()
                    count += 1
            except LeaseLost as lost:
                delivery.settled = True
                _logger.warning("%s in group %s: %s", self.name, self.group.name, lost)
        return count

    # ---- what became of them

    def ack(self, delivery: Delivery) -> None:
        if delivery.settled and delivery.entry.stored:
            return
        with self._memory:
            self._require_held(delivery)
            if not delivery.entry.finished:
                delivery.window.finish(delivery.entry)
            delivery.settled = True
            self._unstored += 1
            self._marks += 1
            mine = self._marks
            wait = self._unstored < self._ack_batch
        if not wait:
            self._store(mine)
            if not delivery.entry.stored:
                raise self._lost(delivery)

    def nack(self, delivery: Delivery, reason: str, *, retry_in_s: float | None) -> None:
        with self._memory:
            self._require_held(delivery)
            settings = self.group.settings
            wait_s = settings.wait_s(delivery.attempt) if retry_in_s is None else retry_in_s
            delivery.window.fail(
                delivery.entry,
                reason or "the consumer gave no reason",
                again_us=self._lease.store_now_us() + int(wait_s * 1_000_000),
            )
            delivery.settled = True
            self._marks += 1
            mine = self._marks
        self._store(mine)
        if delivery.window.lost:
            raise self._lost(delivery)

    def _require_held(self, delivery: Delivery) -> None:
        window = delivery.window
        if window.lost or self._windows.get(window.partition) is not window or not window.gave_out(delivery.entry):
            delivery.settled = True
            raise self._lost(delivery)

    def _lost(self, delivery: Delivery) -> LeaseLost:
        return LeaseLost(
            f"{self.name} has partition {delivery.partition} of {self.group.name} no more",
            why="its lease ended, somebody joined under its name, or the group was reset: another one goes on there",
            hint="the event at this position is handled again: make effects idempotent, or fence them by the token",
            position=delivery.position,
            partition=delivery.partition,
            token=delivery.token,
        )

    # ---- the group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, EverlogError):
            with self._memory:
                out = [(window, entry) for window in self._windows.values() for entry in window.in_flight]
                for window, entry in out:
                    self._fail_quietly(window, entry, f"{type(error).__name__}: {error}")
        try:
            self.leave()
        except LogClosed:
            if not self._log.waiters.closed:
                raise

    def _fail_quietly(self, window: Window, entry: Entry, reason: str) -> None:
        settings = self.group.settings
        again_us = self._lease.store_now_us() + int(settings.wait_s(entry.attempts + 1) * 1_000_000)
        window.fail(entry, reason, again_us=again_us)

    def leave(self) -> None:
        """Store what is finished and give the seat back, so that others need not wait for the lease to end."""
        self._stop_beating.set()
        with self._contacting:
            if self._left:
                return
            self._left = True
            if self._lease.token:
                self._contact(leave=True)
            self._drop_all()
        if self._beat is not None and self._beat is not threading.current_thread():
            self._beat.join()

    def renew(self) -> None:
        """Make the lease last a whole one from now. The heartbeat does it by itself; long work without one must."""
        with self._contacting:
            if self._lease.token and not self._left:
                self._contact()

    def _keep_in_touch(self) -> None:
        """Join if need be, renew when due, deal when something changed; then see whether history did."""
        now = self._ticks()
        if self._lease.is_due(now) or self._deal_now or self._group_changed(now):
            with self._contacting:
                self._contact(deal=True)
                if not self._lease.token:
                    self._contact(deal=True)  # the lease had ended: join again, with nothing in hand
        self._follow_resets()

    def _group_changed(self, now: float) -> bool:
        if now < self._look_s:
            return False
        self._look_s = now + LOOK_S
        state = read_group(self._log.store, self.group.name)
        if state is None or self.name not in state.seats:
            return True
        if state.decisions != self._decisions:
            with self._memory:
                self._decisions = state.decisions
                for window in self._windows.values():
                    window.take_letters(read_letters(self._log.store, self.group.name, window.partition))
        with self._memory:
            mine = {number: window.token for number, window in self._windows.items()}
        return dealing.is_out_of_step(state, self.name, mine, self._lease.store_now_us())

    def _contact(self, *, deal: bool = False, leave: bool = False, lazy: bool = False) -> None:
        """One write: what is finished, the lease, and with `deal` what is given back and taken."""
        if deal and not self._lease.token:
            self._drop_all()
        with self._memory:
            marks = self._marks
            stored = {number: window.finished(lazy=lazy) for number, window in self._windows.items()}
            idle = tuple(number for number, window in self._windows.items() if deal and not window.in_flight)
            for number in idle:
                self._windows[number].draining = True  # until we know whether it stays ours
        ask = Ask(
            group=self.group.name,
            member=self.name,
            token=self._lease.token,
            lease_us=self.group.settings.lease_us,
            finished={number: finished for number, (finished, _) in stored.items()},
            idle=idle,
            deal=deal,
            leave=leave,
        )
        before_s = self._ticks()
        try:
            outcome = self._log.in_one_write(lambda writer: contact(writer, ask, self.group.agreed))
        except BaseException:
            with self._memory:
                for number in idle:
                    self._windows[number].draining = False
            raise
        with self._memory:
            self._take_in(outcome, stored, before_s, deal)
            self._stored_marks = max(self._stored_marks, marks)
        if outcome.overtaken and not leave:
            self._overtaken = True
            raise self._replaced()

    def _replaced(self) -> LeaseLost:
        return LeaseLost(
            f"another consumer joined {self.group.name} as {self.name}",
            why="a name has one seat, and the one who came last has it",
            hint="give every consumer a name of its own",
            member=self.name,
        )

    def _take_in(self, outcome: Outcome, stored: dict[int, Any], before_s: float, deal: bool) -> None:
        self._lease.take_in(outcome, before_s)
        self._deal_now = False
        for number in list(self._windows):
            window = self._windows[number]
            if not outcome.token or number in outcome.lost or number in outcome.released:
                if number not in outcome.lost and number in stored and not window.lost:
                    window.was_stored(*stored[number])
                window.lost = True
                del self._windows[number]
            elif number in stored:
                window.was_stored(*stored[number])
                window.draining = window.draining and not deal  # dealing says below which ones still have to go
        for number, (token, place, letters) in outcome.taken.items():
            begins = place or Place(cursor=outcome.state.start if outcome.state else "0")
            self._windows[number] = Window(
                self.group.name,
                number,
                token,
                begins,
                letters,
                size=self.group.settings.prefetch,
                holds=self.group.settings.hold,
                attempts_max=self.group.settings.attempts_max,
            )
        if outcome.taken:
            self._seen = None
        if outcome.lost:
            self._look_s = 0.0  # something happened that we have not seen yet
        self._unstored = 0
        if deal:
            self._drain(outcome.surplus)

    def _drain(self, count: int) -> None:
        """Give nothing more out of so many partitions, so that they can be given back once they are finished."""
        for window in sorted(self._windows.values(), key=lambda window: len(window.in_flight))[:count]:
            window.draining = True
        self._deal_now = any(window.draining and not window.in_flight for window in self._windows.values())

    def _store(self, mark: int | None = None) -> None:
        """Store what is finished, unless somebody else has stored it while we waited for our turn."""
        with self._contacting:
            if mark is not None and self._stored_marks >= mark:
                return
            if not self._lease.token:
                return
            draining = any(window.draining and not window.in_flight for window in self._windows.values())
            self._contact(deal=draining, lazy=not draining)

    def _drop_all(self) -> None:
        with self._memory:
            for window in self._windows.values():
                window.lost = True
            self._windows.clear()

    def _keep_beating(self) -> None:
        while not self._stop_beating.wait(self._lease.length_s / 3):
            with self._memory:
                out = [entry.since for window in self._windows.values() for entry in window.in_flight]
            if out and self._ticks() - min(out) > self._handling_s_max:
                continue  # it hangs: let the lease end, so that somebody else goes on
            try:
                if self._lease.runs:
                    self.renew()
            except LogClosed:
                return
            except Exception as error:
                _logger.warning("%s could not renew its lease in %s: %s", self.name, self.group.name, error)

    # ---- reading

    def _pick(self) -> Delivery | None:
        if sum(len(window.in_flight) for window in self._windows.values()) >= self._in_flight_max:
            return None
        numbers = sorted(self._windows)
        for step in range(len(numbers)):
            window = self._windows[numbers[(self._turn + step) % len(numbers)]]
            entry = window.next(self._lease.store_now_us(), self._log.at)
            if entry is not None:
                entry.since = self._ticks()
                self._turn = (self._turn + step + 1) % len(numbers)
                return Delivery(self, window, entry)
        return None

    def _follow_resets(self) -> None:
        """History may have changed under a cursor (G8): tell the consumer once, then go on from the right place."""
        store = self._log.store
        head = store.head()
        epoch = store.identity.epoch
        if self._seen == (head, epoch):
            return
        with self._memory:
            purged = newest_purge(store, self.group.query)
            needed = resets_needed(self._windows, head, purged, epoch)
        if not needed:
            self._seen = (head, epoch)
            return
        told = max(needed.values(), key=lambda reset: (reset.reason == "restored", reset.cursor.position))
        wanted = self.on_reset(told) if self.on_reset is not None else None
        with self._contacting:
            with self._memory:
                follow_resets(self._windows, needed, purged, epoch, wanted=wanted)
            self._contact()
        self._seen = (head, epoch)
