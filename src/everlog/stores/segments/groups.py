"""The events of frames as a reader gets them, and what their groups compute for them.

A record leaves out what follows from its group. So each record that is returned has its group, and the group needs
the bytes of the whole frame when it is asked for a commitment or a hash. It holds them if most of the frame is
returned; otherwise it reads them again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from heapq import merge
from operator import attrgetter
from typing import Any

from msgspec.structs import astuple, force_setattr, replace

from everlog.core.codec import Packed
from everlog.core.event import EVENT_FIELDS, Event, Position, Purged, Recorded
from everlog.core.group import Group, GroupFacts, StoredEvent
from everlog.core.query import EVERYTHING
from everlog.errors import AlreadyPurged
from everlog.stores.contract import Erasure
from everlog.stores.segments.format.frame import Frame, stored_events, texts_of
from everlog.stores.segments.format.frames import Found
from everlog.stores.segments.index.lookup import block_end, block_of_position
from everlog.stores.segments.loading import SegmentReplaced
from everlog.stores.segments.state import LogState
from everlog.stores.segments.stretches import Stretch, frames, steps, stretches

HELD_PER_RECORD = 16
"""So many records of a frame are held in memory at the most for each one that is returned."""

_position = attrgetter("position")


def visible(state: LogState, records: list[Recorded]) -> list[Recorded]:
    """Return the records of a frame without those that were purged, and without payloads that were erased: until a
    sweep has ended, the bytes of both are still there."""
    if state.purged_at:
        records = [record for record in records if record.position not in state.purged_at]
    if state.erased_at:
        records = [_as_left(record, state.erased_at.get(record.position)) for record in records]
    return records


def _as_left(record: Recorded, erasure: Erasure | None) -> Recorded:
    if erasure is None or not record.event.salt:
        return record
    event = erased_event(record.event, erasure)
    return Recorded(record.position, record.sequence, 0, event)


def erased_event(event: Event, erasure: Erasure) -> Event:
    """Return a stored event as its erasure leaves it. What it leaves out still follows from its group."""
    values: list[Any] = list(astuple(event)[: len(EVENT_FIELDS)])  # as they are stored
    for name, value in (
        ("commitment", erasure.commitment),
        ("payload", {}),
        ("salt", b""),
        ("erased_by", erasure.by),
    ):
        values[EVENT_FIELDS.index(name)] = value
    return Event(*values)


def with_group(state: LogState, found: Found, records: Sequence[Recorded]) -> None:
    """Give their group to records of a frame."""
    facts = found.frame.facts
    if facts is None or not records:
        return
    if facts.count > HELD_PER_RECORD * len(records):
        for record in records:
            again = _ReadAgain(state, record.position)
            force_setattr(record.event, "group", Group(facts, again.load, again.gone))
        return
    group = Group(facts, partial(stored_events, bytes(found.body)), state.gone)
    for record in records:
        force_setattr(record.event, "group", group)


class _ReadAgain:
    """The frame of one record, read again when its group is asked for what follows from it."""

    __slots__ = ("_position", "_state")

    def __init__(self, state: LogState, position: Position) -> None:
        self._state = state
        self._position = position

    def load(self) -> list[StoredEvent]:
        while True:
            try:
                found = frame_at(self._state, self._position)
            except SegmentReplaced:  # a purge has rewritten it, or it was packed
                self._state = self._state.again()
                continue
            stored = stored_events(found.body)
            if all(one.recorded.position != self._position for one in stored):
                raise AlreadyPurged(
                    f"the event at position {self._position} was purged after it was read",
                    why="what its commitment and its hash are computed from is gone",
                    hint="everlog log --purges",
                    position=self._position,
                )
            return stored

    def gone(self, origin: str, number: int) -> bytes | None:
        return self._state.gone(origin, number)


def frame_at(state: LogState, position: Position) -> Found:
    """Return the frame that covers a position. Raise Damaged if it cannot be read."""
    for segment in reversed(state.segments):
        for part in reversed(segment.parts):
            if not part.before < position <= part.head or not part.offsets:
                continue
            block = block_of_position(part, position)
            stretch = Stretch(segment, part.offsets[block], block_end(part, block), Position(part.befores[block]))
            with state.source(segment) as source:
                for found in frames(state, source, stretch, Position(position - 1), position):
                    if found.frame.before < position <= found.frame.head:
                        return found
    raise SegmentReplaced


# ---- groups in order, for those who need the bytes that are hashed


def by_frame(state: LogState, after: Position, upto: Position) -> Iterator[tuple[Frame | None, list[Purged]]]:
    """Return the readable frames with a group, in order, each with what purges left in the positions it covers.

    The last one has no frame. What a purge left has the signature of the group that it was in.
    """
    stubs = sorted((gone for gone in state.purged_at.values() if after < gone.position <= upto), key=_position)
    place = 0
    for stretch in stretches(state, EVERYTHING, after, upto):
        if stretch.gap is not None:
            continue
        with state.source(stretch.segment) as source:
            for found in steps(state, source, stretch):
                if not isinstance(found, Found):
                    continue
                frame = found.frame
                if frame.facts is None or frame.head <= after or frame.before >= upto:
                    continue
                first = place
                while place < len(stubs) and stubs[place].position <= frame.head:
                    place += 1
                yield frame, _signed(stubs[first:place], frame.facts)
    yield None, stubs[place:]


def _signed(stubs: list[Purged], facts: GroupFacts) -> list[Purged]:
    if not facts.signature or not stubs:
        return stubs
    numbers = range(facts.first_seq, facts.first_seq + facts.count)
    signed_with = (facts.first_seq, facts.count)
    return [
        replace(gone, signature=facts.signature, signed_with=signed_with)
        if gone.origin == facts.origin and gone.origin_seq in numbers
        else gone
        for gone in stubs
    ]


def group_of(state: LogState, frame: Frame) -> Group:
    """Return the group of a frame that is decoded already. Its records do not have it, so that there is no cycle."""
    assert frame.facts is not None
    return Group(frame.facts, partial(texts_of, visible(state, frame.records)), state.gone)


def groups(state: LogState, after: Position, upto: Position) -> Iterator[tuple[Position, Group | Purged]]:
    """Return every group, in order, and what purges left; with each, the last position that it accounts for.

    What a purge left of a group comes before the group. A group that has positions above `after` is given whole.
    """
    for frame, stubs in by_frame(state, after, upto):
        for gone in stubs:
            yield gone.position, gone
        if frame is not None:
            yield frame.head, group_of(state, frame)


def places(state: LogState, after: Position, upto: Position) -> Iterator[Packed | Purged]:
    """Return every slot as stored bytes, including purged ones. Damage is skipped: `verify` counts what is lost."""
    for frame, stubs in by_frame(state, after, upto):
        found: Iterator[Packed | Purged] = iter(stubs)
        if frame is not None:
            packed = group_of(state, frame).packed()
            found = merge(packed, stubs, key=_position) if stubs else packed
        for place in found:
            if after < place.position <= upto:
                yield place
