"""A look at some few places of a log, for who lists or shows them: are they what was recorded?

It computes the same hashes as `verify`, but only of these places: it finds a payload or a header that was changed, a
link between two of them that is broken, and a position that nothing accounts for. That nothing else is wrong with
the log only `verify` can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile

from everlog.core.codec import Packed, header_hash, pack, unpack
from everlog.core.event import Event, Link, Position, Purged
from everlog.core.group import EventLink, Group, StoredEvent
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.log.verify.audit import content_problems, wrong_link
from everlog.log.verify.stored_groups import group_changed
from everlog.stores.contract import Grouped, Problem, Stored

PLACES_MAX = 1000
"""So many are looked at while somebody waits; more is a matter of `verify`."""


def spot_check(store: Stored, query: Query, *, after: Position, upto: Position) -> list[Problem]:
    """What is wrong with the events that match, above `after` and not above `upto`, which must not be above the head.

    Without a filter every place in between is looked at, so that one that is missing is noticed, too.
    """
    if query == EVERYTHING:
        problems = [*_changed_groups(store, after, upto), *_every_place(store, after, upto)]
        return sorted(problems, key=lambda problem: problem.position)
    records = list(store.read(query, after=after, upto=upto))
    problems = [problem for recorded in records for problem in _content(store, pack(recorded))]
    groups = {id(group): group for recorded in records if (group := recorded.event.group) is not None}
    return [*problems, *_changed(groups.values())]


def spot_check_at(store: Stored, position: Position) -> list[Problem]:
    """What is wrong with one event. Its header is held against the hash that the next event carries."""
    places = store.slots(after=Position(position - 1))
    place, following = next(places, None), next(places, None)
    if not isinstance(place, Packed) or place.position != position:
        return []  # there is nothing to look at
    problems = list(_content(store, place))
    changed = list(_changed_groups(store, Position(position - 1), position))
    this, after = _link(place), None if following is None else _link(following)
    if this is not None and after is not None:
        event, digest = this
        follows = (after[0].origin, after[0].origin_seq) == (event.origin, event.origin_seq + 1)
        if follows and after[0].previous != digest and not changed:
            reason = "its header is not the one whose hash the next event carries"
            problems.append(Problem(position, "header_changed", reason))
    return [*problems, *changed]


def _changed_groups(store: Stored, after: Position, upto: Position) -> Iterator[Problem]:
    """Return the groups with one of these positions that are not as they were recorded."""
    if isinstance(store, Grouped):
        groups = (item for item in store.groups(after=after, upto=upto) if not isinstance(item, Purged))
        yield from takewhile(lambda problem: problem.position <= upto, _changed(_up_to(groups, upto)))


def _up_to(groups: Iterable[Group], upto: Position) -> Iterator[Group]:
    for group in groups:
        yield group
        if any(stored.recorded.position >= upto for stored, _ in _linked(group)):
            return


def _changed(groups: Iterable[Group]) -> Iterator[Problem]:
    for group in groups:
        found = group_changed(group.facts, _linked(group))
        if found is not None:
            yield found


def _linked(group: Group) -> list[tuple[StoredEvent, EventLink]]:
    """Return the events of a group with their hashes, as far as they can be computed; the slots show the rest."""
    found: list[tuple[StoredEvent, EventLink]] = []
    with suppress(Damaged):
        found.extend((stored, link) for stored, _, link in group.linked())
    return found


def _every_place(store: Stored, after: Position, upto: Position) -> Iterator[Problem]:
    reserved = {purge.reserved for purge in store.purges(after=after)}
    links: dict[str, Link] = {}
    following = after + 1
    for place in store.slots(after=after):
        if place.position > upto:
            break
        missing = list(_missing(following, place.position, reserved))
        yield from missing
        if missing:
            links.clear()  # it breaks the chain, and is reported already
        following = place.position + 1
        if isinstance(place, Packed):
            yield from _content(store, place)
        link = _link(place)
        if link is None:
            links.clear()
            continue
        header, digest = link
        seen = links.get(header.origin)
        if seen is not None:
            own = header.origin == store.identity.origin
            wrong = wrong_link(place.position, header.origin_seq, header.previous, seen, own=own)
            if wrong is not None and store.identity.made(header.origin):  # else it is a fault of its origin
                yield wrong
        links[header.origin] = Link(header.origin_seq, digest)
    yield from _missing(following, upto + 1, reserved)


def _link(place: Packed | Purged) -> tuple[Event | Purged, bytes] | None:
    """What of a place is in its origin's chain, and its hash; None if it cannot be read."""
    if isinstance(place, Purged):
        return place, place.hash
    try:
        return unpack(place).event, header_hash(place.header)
    except Damaged:
        return None


def _content(store: Stored, place: Packed) -> Iterator[Problem]:
    try:
        event = unpack(place).event
    except Damaged as error:
        yield Problem(place.position, "unreadable", error.why)
        return
    for code, reason in content_problems(place, event, own=store.identity.made(event.origin)):
        yield Problem(place.position, code, reason)


def _missing(first: int, end: int, reserved: set[Position]) -> Iterator[Problem]:
    for position in range(first, end):
        if position not in reserved:
            yield Problem(Position(position), "position_missing", "no event and no purge accounts for it")
