"""A member of a group: it takes its share of the partitions, delivers their events, and stores what is finished.

There are two locks, always taken in this order. `_checking_in` lets one thread at a time write to the group; a thread
that waits for it often finds its own work stored by the thread before. `_memory` guards the windows, and is never
held during a write.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from everlog.consumers import assignment
from everlog.consumers.checkin import CheckIn, CheckInResult, Lease, check_in
from everlog.consumers.delivery import Delivery
from everlog.consumers.fetch import fetch_events, follow_resets, resets_needed
from everlog.consumers.group_state import Progress, read_group
from everlog.consumers.settings import CHECK_S
from everlog.consumers.window import PendingEvent, Window
from everlog.core.event import Recorded
from everlog.core.query import Cursor, Reset
from everlog.errors import EverlogError, LeaseLost, LogClosed
from everlog.log.dead_letters import read_letters
from everlog.log.read.follow import POLL_S
from everlog.log.read.resets import newest_purge, proof_at

if TYPE_CHECKING:
    from everlog.consumers.group import Group

OnReset = Callable[[Reset], "Cursor | int | str | None"]
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
        self._checking_in = threading.RLock()
        self._memory = threading.RLock()
        self._windows: dict[int, Window] = {}
        self._lease = Lease(group.settings.lease_us, ticks)
        self._check_group_s = 0.0
        self._rebalance_now = False
        self._decisions = -1  # the last decision of a person that this member has read
        self._unstored = 0
        self._marks = 0
        self._stored_marks = 0
        self._turn = 0
        self._left = False
        self._overtaken = False
        self._last: Delivery | None = None
        self._seen: tuple[int, str] | None = None  # the head and the epoch at the last check for resets
        self._beat: threading.Thread | None = None
        self._stop_beating = threading.Event()
        if heartbeat:
            self._beat = threading.Thread(target=self._keep_beating, name=f"everlog-member-{name}", daemon=True)
            self._beat.start()

    # ---- taking events

    def __iter__(self) -> Iterator[Delivery]:
        return self.deliveries()

    def deliveries(self, *, to_end: bool = False, stop: Callable[[], bool] = lambda: False) -> Iterator[Delivery]:
        """Yield the events of this member's share as they come; with `to_end`, stop when nothing is left for it now.

        Closing the log ends the iteration. With `to_end` it raises LogClosed instead, unless nothing was left.
        """
        waiters = self._log.writer.waiters
        try:
            while not (self._left or stop()):
                commits = waiters.commits  # read before the check, so that a commit during it is not missed
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
        """Return the next event that may be handled now, or None, without waiting.

        With one in flight (the default), a caller that neither acknowledged nor refused the last event has failed it.
        """
        if self._overtaken:
            raise self._replaced()
        if self._left:
            return None
        if self._in_flight_max == 1 and self._last is not None and not self._last.settled:
            with suppress(LeaseLost):
                self._last.nack("it was neither acknowledged nor refused")
        self._check_in_when_due()
        with self._memory:
            delivery = self._pick()
            if delivery is None:
                fetch_events(self._windows, self._log, self.group)
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
        """Whether nothing is left for this member: all is read and finished, except what waits for a person."""
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
        """Call a function with every event: returning acknowledges it, raising fails it. Return the number
        acknowledged.

        If the handler has a method `on_reset`, it is called when history changed.
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

    # ---- outcomes

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
            f"{self.name} no longer has partition {delivery.partition} of {self.group.name}",
            why="its lease ended, another consumer joined under its name, or the group was reset",
            hint="the event is delivered again to the new owner: make effects idempotent, or fence them by the token",
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
            if not self._log.writer.waiters.closed:
                raise

    def _fail_quietly(self, window: Window, entry: PendingEvent, reason: str) -> None:
        settings = self.group.settings
        again_us = self._lease.store_now_us() + int(settings.wait_s(entry.attempts + 1) * 1_000_000)
        window.fail(entry, reason, again_us=again_us)

    def leave(self) -> None:
        """Store what is finished and end the lease, so that other members need not wait for it to expire."""
        self._stop_beating.set()
        with self._checking_in:
            if self._left:
                return
            self._left = True
            if self._lease.token:
                self._check_in(leave=True)
            self._drop_all()
        if self._beat is not None and self._beat is not threading.current_thread():
            self._beat.join()

    def renew(self) -> None:
        """Renew the lease. The heartbeat does this; long work without a heartbeat must call it."""
        with self._checking_in:
            if self._lease.token and not self._left:
                self._check_in()

    def _check_in_when_due(self) -> None:
        """Join if necessary, renew when due, rebalance when the group changed; then check for resets."""
        now = self._ticks()
        if self._lease.is_due(now) or self._rebalance_now or self._group_changed(now):
            with self._checking_in:
                self._check_in(rebalance=True)
                if not self._lease.token:
                    self._check_in(rebalance=True)  # the lease had ended: join again, without partitions
        self._follow_resets()

    def _group_changed(self, now: float) -> bool:
        if now < self._check_group_s:
            return False
        self._check_group_s = now + CHECK_S
        state = read_group(self._log.writer.small_state, self.group.name)
        if state is None or self.name not in state.members:
            return True
        if state.decisions != self._decisions:
            with self._memory:
                self._decisions = state.decisions
                for window in self._windows.values():
                    window.take_letters(read_letters(self._log.writer.small_state, self.group.name, window.partition))
        with self._memory:
            mine = {number: window.token for number, window in self._windows.items()}
        return assignment.is_out_of_step(state, self.name, mine, self._lease.store_now_us())

    def _check_in(self, *, rebalance: bool = False, leave: bool = False, lazy: bool = False) -> None:
        """Store what is finished and renew the lease in one write; with `rebalance`, also release and take
        partitions."""
        if rebalance and not self._lease.token:
            self._drop_all()
        with self._memory:
            marks = self._marks
            stored = {number: window.finished(lazy=lazy) for number, window in self._windows.items()}
            idle = tuple(number for number, window in self._windows.items() if rebalance and not window.in_flight)
            for number in idle:
                self._windows[number].draining = True  # until it is known whether it stays with this member
        request = CheckIn(
            group=self.group.name,
            member=self.name,
            token=self._lease.token,
            lease_us=self.group.settings.lease_us,
            finished={number: finished for number, (finished, _) in stored.items()},
            idle=idle,
            rebalance=rebalance,
            leave=leave,
        )
        before_s = self._ticks()
        try:
            outcome = self._log.writer.write(lambda writer: check_in(writer, request, self.group.agreed))
        except BaseException:
            with self._memory:
                for number in idle:
                    self._windows[number].draining = False
            raise
        with self._memory:
            self._apply(outcome, stored, before_s, rebalance)
            self._stored_marks = max(self._stored_marks, marks)
        if outcome.overtaken and not leave:
            self._overtaken = True
            raise self._replaced()

    def _replaced(self) -> LeaseLost:
        return LeaseLost(
            f"another consumer joined {self.group.name} as {self.name}",
            why="a name belongs to the consumer that joined last",
            hint="give every consumer a different name",
            member=self.name,
        )

    def _apply(self, outcome: CheckInResult, stored: dict[int, Any], before_s: float, rebalance: bool) -> None:
        self._lease.update(outcome, before_s)
        self._rebalance_now = False
        for number in list(self._windows):
            window = self._windows[number]
            if not outcome.token or number in outcome.lost or number in outcome.released:
                if number not in outcome.lost and number in stored and not window.lost:
                    window.was_stored(*stored[number])
                window.lost = True
                del self._windows[number]
            elif number in stored:
                window.was_stored(*stored[number])
                # `_drain` below decides which ones still have to go.
                window.draining = window.draining and not rebalance
        for number, (token, progress, letters) in outcome.taken.items():
            begins = progress or Progress(cursor=outcome.state.start if outcome.state else "0")
            self._windows[number] = Window(
                self.group.name,
                number,
                token,
                begins,
                letters,
                proof_at=lambda position: proof_at(self._log.stored, position),
                life_at=lambda position: self._log.identity.life_at(position),
                size=self.group.settings.prefetch,
                holds=self.group.settings.hold,
                attempts_max=self.group.settings.attempts_max,
            )
        if outcome.taken:
            self._seen = None
        if outcome.lost:
            self._check_group_s = 0.0  # the group changed in a way that this member has not read yet
        self._unstored = 0
        if rebalance:
            self._drain(outcome.surplus)

    def _drain(self, count: int) -> None:
        """Deliver nothing more from this many partitions, so that they can be released once they are finished."""
        for window in sorted(self._windows.values(), key=lambda window: len(window.in_flight))[:count]:
            window.draining = True
        self._rebalance_now = any(window.draining and not window.in_flight for window in self._windows.values())

    def _store(self, mark: int | None = None) -> None:
        """Store what is finished, unless another thread has stored it meanwhile."""
        with self._checking_in:
            if mark is not None and self._stored_marks >= mark:
                return
            if not self._lease.token:
                return
            draining = any(window.draining and not window.in_flight for window in self._windows.values())
            self._check_in(rebalance=draining, lazy=not draining)

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
                continue  # it hangs: let the lease end, so that another member continues
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
            entry = window.next(self._lease.store_now_us(), self._log.get)
            if entry is not None:
                entry.since = self._ticks()
                self._turn = (self._turn + step + 1) % len(numbers)
                return Delivery(self, window, entry)
        return None

    def _follow_resets(self) -> None:
        """Report to the consumer, once, that history changed under a cursor (G8), then continue from the right
        cursor."""
        store = self._log.stored
        head = store.head()
        epoch = store.identity.epoch
        if self._seen == (head, epoch):
            return
        with self._memory:
            purged = newest_purge(store, self.group.query)
            needed = resets_needed(self._windows, store, head, purged)
        if not needed:
            self._seen = (head, epoch)
            return
        reset = max(needed.values(), key=lambda reset: (reset.reason == "restored", reset.cursor.position))
        wanted = self.on_reset(reset) if self.on_reset is not None else None
        with self._checking_in:
            with self._memory:
                follow_resets(self._windows, needed, purged, epoch, wanted=wanted)
            self._check_in()
        self._seen = (head, epoch)
