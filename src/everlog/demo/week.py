"""A week that ended last midnight, played in its own order: threads of work that wait for their time.

A thread is a generator. It does something, yields the moment at which it continues, does the next thing; `Week` goes
from moment to moment and continues the thread whose turn it is. So the events of all programs come in the order of
their times, and everything is the same at every run but for the calendar and the ids.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from everlog.programs.command import By

DAYS, WORKING_DAYS = 7, 5
OPENS, CLOSES = 8, 18
"""The hours at which people work. Agents and services know no such hours."""

Thread = Iterator[datetime]

PEOPLE = ("user:ada", "user:grace", "user:linus", "user:margaret")
BUILDER, REVIEWER = "agent:builder", "agent:reviewer"


class Week:
    """The clock of the story, and the threads that wait for it."""

    def __init__(self, today: datetime) -> None:
        self.end = today.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self.begin = self.end - timedelta(days=DAYS)
        self.now = self.begin
        self._waiting: list[tuple[datetime, int, Thread]] = []
        self._threads = 0

    def by(self, actor: str, within: str = "", **more: Any) -> By:
        """Return who acts, at the present moment of the story."""
        return By(actor=actor, within=within, at=self.now, **more)

    def on(self, day: float, hour: float) -> datetime:
        """Return a moment by the day of the story (from 0) and the hour."""
        return self.begin + timedelta(days=day, hours=hour)

    def after(self, minutes: float) -> datetime:
        return self.now + timedelta(minutes=minutes)

    def at_work(self, minutes: float) -> datetime:
        """Return a moment so much later, or the next morning if nobody works then, as on the last two days."""
        then = self.after(minutes)
        if then.hour >= CLOSES:
            then = (then + timedelta(days=1)).replace(hour=OPENS)
        elif then.hour < OPENS:
            then = then.replace(hour=OPENS)
        return then if then < self.on(WORKING_DAYS, 0) else self.end

    def join(self, thread: Thread) -> None:
        """Add a thread: it continues at the moment that it yields first."""
        for then in thread:
            self._threads += 1  # of two at the same moment, the one that came first
            heapq.heappush(self._waiting, (then, self._threads, thread))
            return

    def play(self, until: datetime | None = None) -> None:
        """Continue up to a moment; nothing happens after the end of the week."""
        limit = min(until or self.end, self.end)
        while self._waiting and self._waiting[0][0] < limit:
            then, _, thread = heapq.heappop(self._waiting)
            self.now = max(self.now, then)
            self.join(thread)
        self.now = limit


def chance_of(*names: Any) -> random.Random:
    """Return a source of chance for one thread of the story: the same at every run, whatever the others do."""
    return random.Random(" ".join(map(str, names)))
