"""Read the log for the windows of a member: one page for many partitions, and resets when history changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlog.consumers.assignment import partition_of
from everlog.consumers.window import Window
from everlog.core.event import START, Position, Recorded
from everlog.core.query import Cursor, Reset
from everlog.errors import Damaged
from everlog.log.log import Log
from everlog.log.read.pages import PAGE_LIMIT
from everlog.log.read.resets import find_reset
from everlog.stores.contract import Stored

if TYPE_CHECKING:
    from everlog.consumers.group import Group


def fetch_events(windows: dict[int, Window], log: Log, group: Group) -> None:
    """Read one page for all partitions that have room, starting at the one that is farthest behind.

    A page ends before a damaged position. The page that would begin with it raises Damaged, so no cursor passes it.
    """
    roomy = {number: window for number, window in windows.items() if window.room > 0}
    if not roomy:
        return
    low = min(window.looked for window in roomy.values())
    head = log.head()
    if low >= head:
        return
    events: list[Recorded] = []
    try:
        events.extend(log.read(group.query, after=low, upto=head, limit=PAGE_LIMIT))
        upto = events[-1].position if len(events) >= PAGE_LIMIT else head
    except Damaged as error:
        upto = Position(error.details.get("position", low + 1) - 1)
        if upto <= low:
            raise
    for recorded in events:
        key, defect = group.key_and_defect(recorded.event)
        number = partition_of(key, group.partitions)
        window = roomy.get(number)
        if window is None or recorded.position <= window.looked:
            continue
        if window.room <= 0:
            window.looked = Position(recorded.position - 1)
            del roomy[number]  # The rest of the page is read again when there is room.
            continue
        window.add(recorded, key, defect)
    for window in roomy.values():
        window.looked = max(window.looked, upto)


def resets_needed(windows: dict[int, Window], store: Stored, head: Position, purged: Position) -> dict[int, Reset]:
    """Return the partitions under whose cursor history changed (G8), by the same rule as for every other reader."""
    needed: dict[int, Reset] = {}
    for number, window in windows.items():
        reset = find_reset(store, window.cursor, head, purged)
        if reset is None and purged > max(window.cursor.position, window.cursor.knows):
            # A cursor at the start has finished nothing, but may have events of the purged stream in its window.
            reset = Reset(Cursor(purged, START, store.identity.epoch), "purged")
        if reset is not None:
            needed[number] = reset
    return needed


def follow_resets(
    windows: dict[int, Window],
    needed: dict[int, Reset],
    purged: Position,
    epoch: str,
    *,
    wanted: Cursor | int | str | None = None,
) -> None:
    """Continue each window where the consumer wants to, or where its reset says."""
    for number, reset in needed.items():
        window = windows.get(number)
        if window is None:
            continue
        if wanted is not None:
            window.restart(Cursor(Cursor.of(wanted).position, purged, epoch))
        elif reset.reason == "purged":
            window.know_of(purged, epoch)
        else:
            window.restart(Cursor(START, purged, epoch))
