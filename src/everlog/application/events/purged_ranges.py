"""What purges left in a log, for people who list its events: every position that is shown or explained.

#5  11-16 17:50:02  user:ada  purged  note/3  2 events: asked to     the position that the purge reserves
#3  purged, see #5                                                  a position whose event it removed
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from everlog.core.event import Position, Purge, Purged, Recorded
from everlog.core.query import EVERYTHING, Query, in_scope
from everlog.log.log import Log
from everlog.log.verify.spot_check import PLACES_MAX


class PurgedRange(NamedTuple):
    """Adjacent positions whose events one purge removed."""

    first: int
    last: int
    reserved: int


def purged_ranges(log: Log, query: Query, *, after: int, upto: int) -> list[Purge | PurgedRange]:
    """Return what purges left above `after` and not above `upto`, in order.

    With a filter, only purges that match it are returned: nothing is known of the single events that they removed.
    """
    purges = matching_purges(log, query, after=after, upto=upto)
    found: list[Purge | PurgedRange] = [*purges]
    if query == EVERYTHING and 0 < upto - after <= PLACES_MAX and log.stored.purges():
        found += _ranges(log, after, upto)
    return sorted(found, key=position_of)


def matching_purges(log: Log, query: Query, *, after: int, upto: int) -> list[Purge]:
    """Return the purges whose reserved position is above `after` and not above `upto`, and that match the query."""
    return [purge for purge in log.stored.purges() if after < purge.reserved <= upto and _matches(query, purge)]


def position_of(item: Recorded | Purge | PurgedRange) -> int:
    match item:
        case Recorded():
            return item.position
        case Purge():
            return item.reserved
        case PurgedRange():
            return item.first


def _matches(query: Query, purge: Purge) -> bool:
    if query.types or query.correlation_id:  # nobody knows these of the removed events
        return False
    return (
        query.stream in ("", purge.stream)
        and query.kind in ("", purge.stream.partition("/")[0])
        and query.actor in ("", purge.actor)
        and (not query.scope or any(in_scope(scope, query.scope) for scope in purge.scopes))
        and (query.since is None or purge.purged_at >= query.since)
        and (query.until is None or purge.purged_at < query.until)
    )


def _ranges(log: Log, after: int, upto: int) -> Iterator[PurgedRange]:
    run: PurgedRange | None = None
    for slot in log.stored.slots(after=Position(after)):
        if slot.position > upto:
            break
        if not isinstance(slot, Purged):
            continue
        if run is not None and (run.last + 1, run.reserved) == (slot.position, slot.reserved):
            run = run._replace(last=slot.position)
            continue
        if run is not None:
            yield run
        run = PurgedRange(slot.position, slot.position, slot.reserved)
    if run is not None:
        yield run
