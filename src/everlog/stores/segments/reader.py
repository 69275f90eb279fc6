"""Read records from the blocks that the index selects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TypeVar

from everlog.core.event import START, Position, Purged, Recorded
from everlog.core.group import EventLink, StoredEvent
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.contract import Removable
from everlog.stores.segments.format.frame import ids_of
from everlog.stores.segments.format.frames import Found, Gap
from everlog.stores.segments.format.source import Source
from everlog.stores.segments.groups import group_of, visible, with_group
from everlog.stores.segments.index.lookup import block_end, block_of_id
from everlog.stores.segments.state import LogState
from everlog.stores.segments.stretches import Stretch, damage, frames, holds_any, steps, stretches

_BLOCKS_REMEMBERED_MAX = 256
_NO_RECORD = (b"\xff\xff\xff\xff",)  # no record holds this text: none is decoded
K = TypeVar("K")
V = TypeVar("V")


def records(
    state: LogState, query: Query, after: Position, upto: Position, *, newest_first: bool = False
) -> Iterator[list[Recorded]]:
    """Return the matching records, in one list per frame or block: yielding each would cost as much as decoding
    it."""
    wanted = stretches(state, query, after, upto, whole=not newest_first)
    in_order: Iterable[Stretch] = reversed(list(wanted)) if newest_first else wanted
    for (segment, gap), mine in groupby(in_order, key=lambda stretch: (stretch.segment, stretch.gap)):
        if gap is not None:
            raise damage(state, segment, gap, after)
        with state.source(segment) as source:
            for stretch in mine:
                if newest_first:
                    yield from _newest_first(state, source, stretch, query, after, upto)
                else:
                    yield from _pieces(state, source, stretch, query, after, upto)


def _newest_first(
    state: LogState, source: Source, stretch: Stretch, query: Query, after: Position, upto: Position
) -> Iterator[list[Recorded]]:
    """Return the matching records of a stretch, newest first. Records after damage are returned before it raises."""
    try:
        yield [record for piece in _pieces(state, source, stretch, query, after, upto) for record in piece][::-1]
    except Damaged:
        newer: list[Recorded] = []
        last: Gap | None = None
        for found in steps(state, source, stretch):
            if isinstance(found, Gap):
                newer, last = ([], found) if holds_any(found, after, upto) else (newer, last)
            else:
                newer += _wanted(state, found, query, after, upto)
        yield newer[::-1]
        if last is not None:
            raise damage(state, stretch.segment, last, after) from None


def _pieces(
    state: LogState, source: Source, stretch: Stretch, query: Query, after: Position, upto: Position
) -> Iterator[list[Recorded]]:
    # Matching records contain one of these texts, so others need not be decoded.
    holding = [name.encode() for name in ([query.stream] if query.stream else sorted(query.types))]
    for found in frames(state, source, stretch, after, upto, holding, whole=False):
        yield _wanted(state, found, query, after, upto)


def _wanted(state: LogState, found: Found, query: Query, after: Position, upto: Position) -> list[Recorded]:
    """Return the matching records of a frame, with their group."""
    frame = found.frame
    records = frame.records
    if state.purged_at or state.erased_at:
        records = visible(state, records)
    if frame.before < after or frame.head > upto:
        records = [record for record in records if after < record.position <= upto]
    if query is EVERYTHING or query == EVERYTHING:
        with_group(state, found, records)
        return records
    if query.since is not None or query.until is not None:
        with_group(state, found, records)  # it asks for the time of arrival, which the group has
    records = [record for record in records if query.matches(record)]
    with_group(state, found, records)
    return records


# ---- by id


def find(state: LogState, event_id: EventId) -> Recorded | None:
    """Return the record of an id, or None if it is unknown or purged."""
    for stretch in _stretches_of_id(state, event_id):
        with state.source(stretch.segment) as source:
            for found in frames(state, source, stretch, START, state.head, (event_id.encode(),)):
                records = [one for one in visible(state, found.frame.records) if one.event.id == event_id]
                if records:
                    with_group(state, found, records)
                    return records[0]
    _refuse_lost(state, event_id)
    return None


def hash_of(state: LogState, event_id: EventId) -> bytes | None:
    """Return the hash of an event, or None if it is unknown or purged."""
    for stretch in _stretches_of_id(state, event_id):
        place = (stretch.segment.inode, stretch.start, stretch.end)
        hashes = state.hashes_in.get(place)
        if hashes is None:
            hashes = {}
            for _, stored, link in _linked(state, stretch):
                hashes[stored.recorded.event.id] = link.hash
            _remember(state.hashes_in, place, hashes)
        if event_id in hashes:
            return hashes[event_id]
    _refuse_lost(state, event_id)
    return None


def _refuse_lost(state: LogState, event_id: EventId) -> None:
    if event_id not in state.purged:
        for lost in state.gaps():
            raise damage(state, lost.segment, lost.gap)  # the event may have been in it


def _stretches_of_id(state: LogState, event_id: EventId) -> Iterator[Stretch]:
    """Return the blocks that hold an id."""
    if event_id in state.purged:
        return
    for segment in reversed(state.segments):
        for part in reversed(segment.parts):
            if not part.id_lows or (event_id not in part.strays and not part.id_lows[0] < event_id <= part.id_max):
                continue
            block = block_of_id(part, event_id)
            if block < 0:
                continue
            stretch = Stretch(segment, part.offsets[block], block_end(part, block), Position(part.befores[block]))
            if event_id in _ids_in(state, stretch):
                yield stretch


def _ids_in(state: LogState, stretch: Stretch) -> frozenset[str]:
    """Return the ids in a block. Those of recent blocks are remembered: a caller that looks for many ids, such as an
    import, reaches the same blocks again and rarely finds the id there."""
    place = (stretch.segment.inode, stretch.start, stretch.end)
    found = state.ids_in.get(place)
    if found is None:
        with state.source(stretch.segment) as source:
            walked = frames(state, source, stretch, START, state.head, _NO_RECORD)
            found = frozenset(event_id for one in walked for event_id in ids_of(one.body))
        _remember(state.ids_in, place, found)
    return found


def _remember(holder: dict[K, V], key: K, value: V) -> None:
    if len(holder) >= _BLOCKS_REMEMBERED_MAX:
        holder.clear()
    holder[key] = value


def _linked(state: LogState, stretch: Stretch) -> Iterator[tuple[str, StoredEvent, EventLink]]:
    """Return the events of a stretch with their origins and hashes."""
    if stretch.gap is not None:
        raise damage(state, stretch.segment, stretch.gap)
    with state.source(stretch.segment) as source:
        for found in frames(state, source, stretch, START, state.head):
            if found.frame.facts is not None:
                origin = found.frame.facts.origin
                for stored, _, link in group_of(state, found.frame).linked():
                    yield origin, stored, link


# ---- for a purge


def removable(state: LogState, stream: str) -> Removable:
    """Return what a purge of a stream would remove."""
    removed, scopes = [], set()
    for stretch in stretches(state, Query(stream=stream), START, state.head):
        for origin, stored, link in _linked(state, stretch):
            record, event = stored.recorded, stored.recorded.event
            if event.stream == stream:
                slot = (record.position, record.sequence, event.id, origin, event.origin_seq)
                removed.append(Purged(*slot, link.hash, link.previous, event.lamport))
                scopes.add(event.scope)
    return Removable(removed, tuple(sorted(scopes)))
