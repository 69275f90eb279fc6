"""What purges left: the ranges that they removed, and the positions that they reserve."""

from __future__ import annotations

import everlog
from everlog.application.events.purged_ranges import PurgedRange, matching_purges, position_of, purged_ranges
from everlog.core.event import Purge
from everlog.core.query import EVERYTHING, Query
from everlog.log.log import Log


def purged_log() -> Log:
    """Return a log with the events 1, 4 and 5; 2, 3 and 6 were of note/3, and 7 is reserved by their purge."""
    log = everlog.open("memory:")
    for number in (1, 3, 3, 2, 1, 3):
        log.append("note.added", stream=f"note/{number}", payload={"text": "hello"})
    log.purge("note/3", reason="requested")
    return log


def test_adjacent_purged_positions_are_one_range() -> None:
    left = purged_ranges(purged_log(), EVERYTHING, after=0, upto=7)
    assert [item for item in left if isinstance(item, PurgedRange)] == [PurgedRange(2, 3, 7), PurgedRange(6, 6, 7)]
    assert [position_of(item) for item in left] == [2, 6, 7]


def test_only_what_lies_between_the_two_positions_is_returned() -> None:
    left = purged_ranges(purged_log(), EVERYTHING, after=3, upto=6)
    assert left == [PurgedRange(6, 6, 7)]


def test_with_a_filter_only_matching_purges_are_returned() -> None:
    log = purged_log()
    (purge,) = purged_ranges(log, Query(stream="note/3"), after=0, upto=7)
    assert isinstance(purge, Purge)
    assert matching_purges(log, Query(stream="note/1"), after=0, upto=7) == []
    assert matching_purges(log, Query(types=frozenset(["note.added"])), after=0, upto=7) == []
