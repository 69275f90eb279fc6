"""Where a purge was: lines for people between the events of `everlog log`, so that no number is missing in silence.

    #5  11-16 17:50:02  user:ada  purged  note/3  2 events: asked to     the position that the purge keeps
    #3  purged, see #5                                                  a place whose event it removed

Programs read the same of `everlog log --purges`, and their answers have events only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from everlog.core.event import Position, Purge, Purged, Recorded
from everlog.core.query import EVERYTHING, Query, in_scope
from everlog.log.glance import PLACES_MAX
from everlog.log.log import Log


class Hole(NamedTuple):
    """Places next to each other whose events one purge removed."""

    first: int
    last: int
    reserved: int


def purged_places(log: Log, query: Query, *, after: int, upto: int) -> list[Purge | Hole]:
    """What a purge left above `after` and not above `upto`, in order.

    Under a filter only purges of what it speaks of are told: of the single events nothing is known any more.
    """
    purges = matching_purges(log, query, after=after, upto=upto)
    found: list[Purge | Hole] = [*purges]
    if query == EVERYTHING and 0 < upto - after <= PLACES_MAX and log.purges():
        found += _holes(log, after, upto)
    return sorted(found, key=place_of)


def matching_purges(log: Log, query: Query, *, after: int, upto: int) -> list[Purge]:
    return [purge for purge in log.purges() if after < purge.reserved <= upto and _speaks_of(query, purge)]


def place_of(item: Recorded | Purge | Hole) -> int:
    match item:
        case Recorded():
            return item.position
        case Purge():
            return item.reserved
        case Hole():
            return item.first


def _speaks_of(query: Query, purge: Purge) -> bool:
    if query.types or query.correlation_id:  # what the removed events were in this respect nobody knows
        return False
    return (
        query.stream in ("", purge.stream)
        and query.kind in ("", purge.stream.partition("/")[0])
        and query.actor in ("", purge.actor)
        and (not query.scope or any(in_scope(scope, query.scope) for scope in purge.scopes))
        and (query.since is None or purge.purged_at >= query.since)
        and (query.until is None or purge.purged_at < query.until)
    )


def _holes(log: Log, after: int, upto: int) -> Iterator[Hole]:
    run: Hole | None = None
    for place in log.store.packed(after=Position(after)):
        if place.position > upto:
            break
        if not isinstance(place, Purged):
            continue
        if run is not None and (run.last + 1, run.reserved) == (place.position, place.reserved):
            run = run._replace(last=place.position)
            continue
        if run is not None:
            yield run
        run = Hole(place.position, place.position, place.reserved)
    if run is not None:
        yield run
