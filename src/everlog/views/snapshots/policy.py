"""When a snapshot is due, and which snapshots may be removed: two pure rules.

due       a number of hours, of events, or of bytes of the log since the last snapshot, whichever comes first
thinning  grandfather, father, son: all of the last day, the newest of every day for a month, the newest of every week
          for a year. The newest of a view always stays, and so do protected ones and the bases of those that stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

HOUR_US = 3_600_000_000
MB = 1024 * 1024


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """When a snapshot is made automatically. 0 switches a trigger off."""

    hours: int = 6
    events: int = 10_000
    log_mb: int = 500

    def reason(self, *, age_us: int, events: int, log_bytes: int) -> str:
        """Return why a snapshot is due, or an empty text. Without a new event none is due."""
        if events <= 0:
            return ""
        if self.events and events >= self.events:
            return "events"
        if self.log_mb and log_bytes >= self.log_mb * MB:
            return "size"
        if self.hours and age_us >= self.hours * HOUR_US:
            return "time"
        return ""


class Thinning(msgspec.Struct, frozen=True, kw_only=True):
    all_hours: int = 24
    daily_days: int = 30
    weekly_days: int = 365


class Dated(Protocol):
    """What the rules need to know of a snapshot."""

    @property
    def id(self) -> str: ...

    @property
    def view(self) -> str: ...

    @property
    def base(self) -> str: ...

    @property
    def created_us(self) -> int: ...


def superfluous(
    found: Iterable[Dated], *, now_us: int, protected: frozenset[str] = frozenset(), rule: Thinning | None = None
) -> list[str]:
    """Return the ids that thinning removes, oldest first."""
    rule = rule or Thinning()
    newest_first = sorted(found, key=lambda one: (one.created_us, one.id), reverse=True)
    kept = set(protected)
    for view in {one.view for one in newest_first}:
        kept |= _kept([one for one in newest_first if one.view == view], now_us, rule)
    kept |= {one.base for one in newest_first if one.id in kept}
    return [one.id for one in reversed(newest_first) if one.id not in kept]


def _kept(newest_first: Sequence[Dated], now_us: int, rule: Thinning) -> set[str]:
    kept = {newest_first[0].id}
    taken: set[tuple[int, ...]] = set()
    for one in newest_first:
        age = timedelta(microseconds=now_us - one.created_us)
        day = _day(one.created_us)
        if age <= timedelta(hours=rule.all_hours):
            kept.add(one.id)
        elif age <= timedelta(days=rule.daily_days):
            place: tuple[int, ...] = (day.year, day.month, day.day)
            if place not in taken:
                taken.add(place)
                kept.add(one.id)
        elif age <= timedelta(days=rule.weekly_days):
            place = day.isocalendar()[:2]
            if place not in taken:
                taken.add(place)
                kept.add(one.id)
    return kept


def _day(moment_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment_us)
