"""Read groups in order of position, and find every position that nothing accounts for.

A position is in a group, purged, or reserved by a purge. A read looks at windows of positions. If the events in a
window are fewer than its positions, purges must explain the rest; otherwise what comes before the gap is delivered,
and then Damaged is raised, with the whole gap. A row with a wrong checksum is no row: its positions are such a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from everlog.core.group import GROUP_MAX
from everlog.errors import Damaged
from everlog.stores.lost import UNACCOUNTED, first_gap, lost
from everlog.stores.sqlite.groups import COLUMNS, BadRow, Fetch, StoredGroup

WINDOW_MAX = 1000
"""How many positions are looked at with one statement. A group at the end of a window is read whole."""

END = 2**62

HEAD = (
    "max(coalesce((SELECT max(first) FROM groups), 0), coalesce((SELECT max(reserved) FROM purges), 0),"
    " coalesce((SELECT position FROM state WHERE name = 'clock'), 0))"
)
"""The last assigned position. The state stores it too: the newest events may be lost."""

_FROM = f"SELECT {COLUMNS} FROM groups WHERE first > ? AND first <= ? ORDER BY first"
# From the group that a position is in.
_WITHIN = (
    f"SELECT {COLUMNS} FROM groups WHERE first >= coalesce((SELECT max(first) FROM groups WHERE first <= ?), 0)"
    " AND first <= ? ORDER BY first"
)
AT = (
    f"SELECT {COLUMNS} FROM groups WHERE first IN"
    " (SELECT (SELECT max(first) FROM groups WHERE first <= value) FROM json_each(?)) ORDER BY first"
)
"""The groups of some positions, as a JSON array."""

_GONE = (
    "SELECT position, hash FROM purged WHERE position > ?1 AND position <= ?2"
    " UNION ALL SELECT reserved, NULL FROM purges WHERE reserved > ?1 AND reserved <= ?2"
)


class Window(NamedTuple):
    """Groups in order of position. They and purges account for all positions above `low` up to `high`.

    At a gap, the last group may have events beyond these.
    """

    groups: list[StoredGroup]
    low: int
    high: int


class Gap(NamedTuple):
    """Positions that nothing accounts for."""

    first: int
    last: int
    why: str
    open: bool  # it may go on after its last position


def head_of(fetch: Fetch) -> int:
    ((found,),) = fetch(f"SELECT {HEAD}", ())
    return int(found)


def windows(
    fetch: Fetch, low: int, high: int, *, size: int = END, newest_first: bool = False, file: str = ""
) -> Iterator[Window]:
    """Return the groups that have positions above `low` up to `high` or the head, window by window.

    The first and the last group may have positions beyond these. `size` is how many positions are looked at first.
    """
    size = max(1, min(size, WINDOW_MAX))
    while low < high:
        # The head before the rows: what is written meanwhile is no gap.
        head = min(high, head_of(fetch))
        if low >= head:
            return
        if newest_first:
            yield from _backward(fetch, low, head, size, file)
            return
        yield from _forward(fetch, low, head, size, file)
        low = head


def _forward(fetch: Fetch, low: int, head: int, size: int, file: str) -> Iterator[Window]:
    within = True  # the first position may be inside of a group
    while low < head:
        end = min(low + size, head)
        try:
            rows = fetch(_WITHIN, (low + 1, end)) if within else fetch(_FROM, (low, end))
        except Damaged as error:
            if size > 1:
                size = max(1, size // 8)  # rows before the damage are readable
                continue
            rows = _row_with(fetch, low + 1)
            if not rows:
                raise lost(*_unreadable(fetch, low, head, newest_first=False), why=error.why, file=file) from error
        window, gap = _window(fetch, rows, low, end, upto=head)
        if window.groups:
            yield window
        if gap is not None:
            raise lost(gap.first, _end_of(fetch, gap, head), why=gap.why, file=file)
        low, within = window.high, False
        size = min(2 * size, WINDOW_MAX)


def _backward(fetch: Fetch, low: int, head: int, size: int, file: str) -> Iterator[Window]:
    high = head
    while low < high:
        start = max(low, high - size)
        try:
            rows = fetch(_WITHIN, (start + 1, high))
        except Damaged as error:
            if size > 1:
                size = max(1, size // 8)
                continue
            rows = _row_with(fetch, high)
            if not rows:
                raise lost(*_unreadable(fetch, low, high, newest_first=True), why=error.why, file=file) from error
        start = min([start, *[row[0] - 1 for row in rows[:1]]])
        window, gap = _window(fetch, rows, start, high, upto=high, newest_first=True)
        if window.groups:
            yield window
        if gap is not None and gap.last > low:
            raise lost(gap.first, gap.last, why=gap.why, file=file)
        high = window.low
        size = min(2 * size, WINDOW_MAX)


def _window(
    fetch: Fetch, rows: list[Any], low: int, high: int, *, upto: int, newest_first: bool = False
) -> tuple[Window, Gap | None]:
    """Return the sound rows, and the first gap in reading order; of the rows only those before it. The window may end
    after `high`, with its last group, but not after `upto`."""
    groups: list[StoredGroup] = []
    bad: dict[int, str] = {}
    for row in rows:
        try:
            group = StoredGroup(row)
        except BadRow as error:
            bad[row[0]] = str(error)
        else:
            if group.last > low:
                groups.append(group)
    if groups:
        high = min(max(high, groups[-1].last), upto)
    if not bad and _tiled(groups, low, high):
        return Window(groups, low, high), None
    # Read after the rows: a purge in between only explains more.
    ends = [low, high, *[group.first - 1 for group in groups], *[group.last for group in groups]]
    gone = dict(fetch(_GONE, (min(ends), max(ends))))  # whole groups: each needs the hashes of all its holes
    holes = {position: digest for position, digest in gone.items() if digest is not None}
    there, sound = set(gone), []
    for row in rows:
        try:
            group = StoredGroup(row, holes)
            if group.last <= low:
                continue
            if group.whole:
                there.update(range(group.first, group.last + 1))
            else:
                there.update([place.position for place in group.places()])
        except BadRow as error:
            bad[row[0]] = str(error)
        else:
            sound.append(group)
    gap = first_gap(there, low, high, newest_first=newest_first)
    if gap is None:
        return Window(sound, low, high), None
    first, last = gap
    row = _row_of(first, last, rows, bad)
    found = Gap(first, last, UNACCOUNTED, last == high)
    if row is not None:  # all of the row is lost, also if some of its positions are purged besides
        found = Gap(min(first, row) if newest_first else first, last, bad[row], not newest_first)
    if newest_first:
        return Window([group for group in sound if group.last > last], last, high), found
    return Window([group for group in sound if group.first < first], low, first - 1), found


def _row_of(first: int, last: int, rows: list[Any], bad: Mapping[int, str]) -> int | None:
    """Return the damaged row that a gap belongs to, if there is one."""
    before = max((row[0] for row in rows if row[0] <= first), default=0)
    return next((place for place in bad if first <= place <= last or place == before), None)


def _tiled(groups: list[StoredGroup], low: int, high: int) -> bool:
    """Return whether groups of which nothing was purged follow each other from the first position to the last."""
    following = low + 1
    for group in groups:
        if group.first > following or not group.whole or (group.first < following and group is not groups[0]):
            return False
        following = group.last + 1
    return following > high


def _end_of(fetch: Fetch, gap: Gap, head: int) -> int:
    """Return the last position of a gap, whatever window it was found in."""
    if not gap.open:
        return gap.last
    ((above,),) = fetch(_ABOVE if gap.why == UNACCOUNTED else _NEXT_ROW, (gap.last,))
    return max(gap.last, head if above is None else above - 1)


_ABOVE = (
    "SELECT min(place) FROM (SELECT min(first) AS place FROM groups WHERE first > ?1 UNION ALL"
    " SELECT min(position) FROM purged WHERE position > ?1 UNION ALL"
    " SELECT min(reserved) FROM purges WHERE reserved > ?1)"
)
_NEXT_ROW = (
    "SELECT min(place) FROM (SELECT min(first) AS place FROM groups WHERE first > ?1 UNION ALL"
    " SELECT min(reserved) FROM purges WHERE reserved > ?1)"
)
_NEXT = f"SELECT {COLUMNS} FROM groups WHERE first > ? AND first <= ? ORDER BY first LIMIT 1"
_LAST = f"SELECT {COLUMNS} FROM groups WHERE first > ? AND first <= ? ORDER BY first DESC LIMIT 1"


def _row_with(fetch: Fetch, position: int) -> list[Any]:
    """Return the row with a position, if it can be read. A page beside it may be one that cannot, so it is looked for
    by its exact key."""
    for first in range(position, max(0, position - GROUP_MAX), -1):
        try:
            rows = fetch(f"SELECT {COLUMNS} FROM groups WHERE first = ?", (first,))
        except Damaged:
            continue
        if rows:
            return [row for row in rows if row[1] >= position]
    return []


def _unreadable(fetch: Fetch, low: int, high: int, *, newest_first: bool) -> tuple[int, int]:
    """Return the positions that SQLite cannot read, from where a reader is. A page holds adjacent groups, so it is
    one range: its end is found by doubling steps, then by bisection."""
    found: list[Any] = []

    def readable(skipped: int) -> bool:
        try:
            rows = fetch(_LAST, (0, high - skipped)) if newest_first else fetch(_NEXT, (low + skipped, high))
        except Damaged:
            return False
        found[:] = rows
        return True

    bad, good, step = -1, high - low, 1  # the whole range, if nothing can be read
    while bad + step < good:
        if readable(bad + step):
            good = bad + step
        else:
            bad, step = bad + step, step * 2
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if readable(middle) else (middle, good)
    if good == high - low or not readable(good) or not found:
        return low + 1, high
    if not newest_first:
        return low + 1, found[0][0] - 1
    try:
        return max(low, StoredGroup(found[0]).last) + 1, high
    except BadRow:
        return max(low, found[0][0]) + 1, high
