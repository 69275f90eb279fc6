"""Read a damaged database: find the positions that nothing accounts for, and return the rows around them.

A normal read is fast and detects signs of damage: SQLite reports a malformed page, an index points to a missing row,
or there are fewer rows than positions. After such a sign the rest is read here, in order of positions and without any
index. So damage of an index costs time but no event, and damage of an event is located exactly.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from operator import lt
from typing import Any

from everlog.errors import Damaged
from everlog.stores.lost import first_gap, lost

Fetch = Callable[[str, tuple[Any, ...]], list[Any]]
"""Run one statement to its end on some connection, so that no read holds a connection while its caller works."""

_ROWS = 1000
_RANGES_MAX = 10_000

HEAD = (
    "max(coalesce((SELECT max(position) FROM events), 0), coalesce((SELECT max(reserved) FROM purges), 0),"
    " coalesce((SELECT position FROM state WHERE name = 'clock'), 0))"
)
"""The last assigned position. The state stores it too: the newest events may be lost."""

# One statement sees one state: the log may be written meanwhile.
_GONE = (
    "SELECT (SELECT count(*) FROM purged WHERE position > ?1 AND position <= ?2)"
    " + (SELECT count(*) FROM purges WHERE reserved > ?1 AND reserved <= ?2)"
)
_ACCOUNTED = _GONE + " + (SELECT count(*) FROM events WHERE position > ?1 AND position <= ?2)"


class Suspicion(Exception):
    """A sign of damage: the rest must be read by `careful_rows`."""


class Accounted:
    """The positions that an open store has found to be accounted for.

    A position that is accounted for stays so, whatever other processes append or purge, so each range is counted
    once. Rows that are lost later are noticed by a read without a filter or of a stream, and when the log is opened
    again.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._lows: list[int] = []  # of ranges (low, high], in order and not adjacent
        self._highs: list[int] = []
        self.indexed: int | None = None  # the index of streams ends here; it only grows

    def all_there(self, fetch: Fetch, low: int, high: int) -> bool:
        """Return whether each position above `low` up to `high` or the head has an event, a purged slot or a
        purge."""
        low = self.known_from(low)
        if low >= high:
            return True
        ((head,),) = fetch(f"SELECT {HEAD}", ())
        high = min(high, head)
        if low >= high:
            return True
        ((accounted,),) = fetch(_ACCOUNTED, (low, high))
        if accounted != high - low:
            return False
        self._remember(low, high)
        return True

    def known_from(self, low: int) -> int:
        """Return up to which position all from `low` on are known to be accounted for."""
        with self._lock:
            place = bisect_right(self._lows, low) - 1
            return max(low, self._highs[place]) if place >= 0 else low

    def _remember(self, low: int, high: int) -> None:
        with self._lock:
            first, last = bisect_left(self._highs, low), bisect_right(self._lows, high)
            if first < last:  # merge with the ranges that it touches
                low, high = min(low, self._lows[first]), max(high, self._highs[last - 1])
            self._highs[first:last] = [high]
            self._lows[first:last] = [low]
            del self._lows[_RANGES_MAX:], self._highs[_RANGES_MAX:]


def in_order(rows: list[Any]) -> bool:
    """Return whether positions only grow or only shrink: a damaged row may have the position of another."""
    places = [row[0] for row in rows]
    if len(places) > 1 and places[0] > places[-1]:
        places.reverse()
    return all(map(lt, places, places[1:]))


def nothing_missing(fetch: Fetch, rows: list[Any], low: int, high: int) -> bool:
    """Return whether these rows are all events above `low` up to `high` or the head, and purges explain the rest. A
    purge in between may make this False; the careful read then returns the right result, too."""
    places = [row[0] for row in rows]
    if len(places) > 1 and places[0] > places[-1]:
        places.reverse()
    first, last = (places[0], places[-1]) if places else (low + 1, low)
    if places != list(range(first, last + 1)):
        if not in_order(rows):
            return False
        ((gone,),) = fetch(_GONE, (first - 1, last))
        if gone != last - first + 1 - len(rows):
            return False
    fresh = Accounted("")  # cached ranges do not show rows that were lost since
    return (low + 1 == first or fresh.all_there(fetch, low, first - 1)) and fresh.all_there(fetch, last, high)


def careful_rows(
    fetch: Fetch, select: str, low: int, high: int, *, newest_first: bool, file: str
) -> Iterator[list[Any]]:
    """Return the rows of `select` above `low` up to `high` or the head, in lists. Raise Damaged at a position that
    nothing accounts for, or at an unreadable row."""
    select += " ORDER BY position DESC LIMIT ?" if newest_first else " ORDER BY position LIMIT ?"
    ((head,),) = fetch(f"SELECT {HEAD}", ())
    high, size = min(high, head), _ROWS
    while low < high:
        try:
            rows = fetch(select, (low, high, size))
        except Damaged as error:
            if size == 1:
                first, last = _unreadable(fetch, select, low, high, newest_first=newest_first)
                raise lost(first, last, why=error.why, file=file) from error
            size = max(1, size // 8)  # rows before the damage are readable
            continue
        seen_low, seen_high = low, high  # the rows are complete between these
        if len(rows) == size and newest_first:
            seen_low = rows[-1][0] - 1
        elif len(rows) == size:
            seen_high = rows[-1][0]
        gap = _gap(fetch, rows, seen_low, seen_high, newest_first=newest_first)
        if gap is not None:
            rows = [row for row in rows if (row[0] > gap[1] if newest_first else row[0] < gap[0])]
        if rows:
            yield rows
        if gap is not None:
            raise lost(*gap, file=file)
        if newest_first:
            high = seen_low
        else:
            low = seen_high


def _gap(fetch: Fetch, rows: list[Any], low: int, high: int, *, newest_first: bool) -> tuple[int, int] | None:
    """Return the first positions above `low` up to `high`, in reading order, that nothing accounts for."""
    there = {row[0] for row in rows}
    if len(there) == high - low:
        return None
    # Read after the rows: a purge in between only explains more.
    for sql in (
        "SELECT position FROM purged WHERE position > ? AND position <= ?",
        "SELECT reserved FROM purges WHERE reserved > ? AND reserved <= ?",
    ):
        there.update(place for (place,) in fetch(sql, (low, high)))
    return first_gap(there, low, high, newest_first=newest_first)


def _unreadable(fetch: Fetch, select: str, low: int, high: int, *, newest_first: bool) -> tuple[int, int]:
    """Return the range of unreadable rows from the position of a reader. A page holds adjacent positions, so it is
    one range: its end is found by doubling steps, then by bisection."""

    def readable(skipped: int) -> bool:
        try:
            fetch(select, (low, high - skipped, 1) if newest_first else (low + skipped, high, 1))
        except Damaged:
            return False
        return True

    bad, good, step = 0, high - low, 1  # the whole range, if nothing can be read
    while bad + step < good:
        if readable(bad + step):
            good = bad + step
        else:
            bad, step = bad + step, step * 2
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if readable(middle) else (middle, good)
    return (high - good + 1, high) if newest_first else (low + 1, low + good)
