"""Remove purged events and erased payloads from the segments, byte for byte.

A purge or an erasure is recorded as a frame like any other. From then on no reader sees what it removes. After that,
every segment that still holds some of it is rewritten to a new file, which replaces the old one, and a frame "swept"
is written. A writer that finds a purge without a following "swept" finishes the work. Replaced notes are removed as
well, because a stored response may repeat a payload.

A group keeps what its events share, and its signature, also if no event is left. The event after a removed one gets
the hash before it as a value, so that it can be read without what the purge left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from everlog.core.codec import HEADER_FIELDS
from everlog.core.event import EVENT_FIELDS, Position, Purged
from everlog.files import Files, replace_file
from everlog.stores.contract import Erasure
from everlog.stores.segments.format.frame import (
    NOTHING_ELSE,
    decode_raw,
    decode_record,
    encode_frame,
    mark_of,
    position_of,
)
from everlog.stores.segments.format.frames import Found, Gap, TailKind, Walk
from everlog.stores.segments.format.header import END_MARK, NoteValue, SegmentHeader, encode_header
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.groups import erased_event
from everlog.stores.segments.loading import SegmentReplaced
from everlog.stores.segments.segment import Segment
from everlog.stores.segments.state import LogState
from everlog.stores.segments.stretches import damage

_PREVIOUS = HEADER_FIELDS.index("previous")


def sweep(files: Files, layout: Layout, state: LogState) -> None:
    """Rewrite each segment before the live one that holds purged events, erased payloads or outdated notes."""
    removed = {*state.purged_at, *state.erased_at}
    for segment in state.segments[:-1]:
        if _holds(segment, removed) or _holds_notes(segment):
            _rewrite(files, layout, state, segment)
    for torn in layout.torn_files(files):
        files.unlink(torn)
    files.fsync_dir(layout.segments)


def refuse_damage_under(state: LogState, removed: Collection[Position]) -> None:
    """Refuse a purge, before it is recorded, if a segment that it would rewrite is damaged: unreadable events would
    be lost permanently."""
    for segment in state.segments:
        if _holds(segment, removed) or _holds_notes(segment):
            for _ in _frames(state, segment):
                pass


def _frames(state: LogState, segment: Segment) -> Iterator[Found]:
    """Return every frame of a segment. Raise at damage."""
    assert segment.header is not None  # otherwise no write is accepted
    mark = mark_of(state.identity.log_id, segment.number)
    try:
        with state.source(segment) as source:
            walk = Walk(source, mark=mark, start=segment.start, head=segment.header.before, limit=segment.limit)
            for found in walk:
                if isinstance(found, Gap):
                    raise damage(state, segment, _at_least_one(found))
                yield found
    except SegmentReplaced as error:  # another writer cannot have done it: this one holds the lock
        raise damage(state, segment, Gap(0, segment.size, segment.header.before, segment.head)) from error
    if walk.tail is not TailKind.END:
        raise damage(state, segment, _at_least_one(Gap(walk.end, segment.size, walk.head, segment.head)))


def _at_least_one(gap: Gap) -> Gap:
    return gap if gap.head > gap.before else replace(gap, head=Position(gap.before + 1))


def _holds(segment: Segment, removed: Collection[Position]) -> bool:
    before = segment.parts[0].before if segment.parts else Position(0)
    return any(before < position <= segment.head for position in removed)


def _holds_notes(segment: Segment) -> bool:
    held = segment.header is not None and bool(segment.header.state.notes)
    return held or any(part.notes for part in segment.parts)


def _rewrite(files: Files, layout: Layout, state: LogState, segment: Segment) -> None:
    header = segment.header
    following = next(each for each in state.segments if each.number == segment.number + 1)
    assert header is not None
    assert following.header is not None
    start = replace(header.state, notes=_current(header.state.notes, state))
    first_end = header.first_end or following.header.previous
    fresh = SegmentHeader(
        header.format,
        header.identity,
        header.number,
        header.fence,
        header.before,
        header.opened_us,
        start,
        header.previous,
        header.generation + 1,
        first_end,
        END_MARK,
    )
    data = bytearray(encode_header(fresh))
    head_bytes = len(data)
    mark = mark_of(state.identity.log_id, segment.number)
    write_at = head_bytes
    for found in _frames(state, segment):
        if found.frame.write_at == found.start:
            write_at = len(data)
        data += _without_purged(found, state, mark=mark, at=len(data), write_at=write_at)
    data[:head_bytes] = encode_header(replace(fresh, end_mark=END_MARK + len(data)))
    for offset in layout.parts(files).get(segment.number, set()):
        files.unlink(layout.part(segment.number, offset))
    replace_file(files, layout.segment(segment.number), bytes(data))
    if files.exists(layout.archive(segment.number)):  # or a failed packing left it beside the plain one
        files.unlink(layout.archive(segment.number))
        files.fsync_dir(layout.segments)


def _without_purged(found: Found, state: LogState, *, mark: int, at: int, write_at: int) -> bytes:
    frame = decode_raw(found.body)
    kept = list(_kept(frame.records, state))
    rest = frame.rest
    notes = {key: value for key, value in rest.notes.items() if value[0] is None or state.notes.get(key) == value}
    if len(kept) != len(frame.records) or len(notes) != len(rest.notes):
        rest = replace(rest, before=found.frame.before, head=found.frame.head, notes=notes)
    batch = None if frame.batch is None else (at - write_at, frame.batch[1])
    rest = replace(rest, nonce=0)
    given = None if rest == NOTHING_ELSE else rest
    return encode_frame(mark, at, frame.fence, frame.clock, frame.facts, kept, given, batch=batch)


def _kept(records: Sequence[msgspec.Raw], state: LogState) -> Iterator[Any]:
    """Return the records that stay, most of them as the bytes that they are."""
    before: Purged | None = None
    for record in records:
        position = position_of(record)
        gone = state.purged_at.get(position)
        if gone is None:
            erasure = state.erased_at.get(position)
            yield record if before is None and erasure is None else _changed(record, before, erasure)
        before = gone


def _changed(record: msgspec.Raw, before: Purged | None, erasure: Erasure | None) -> tuple[Any, ...]:
    """Return a record with the hash before it, which a purge has removed, and without its payload if it is erased."""
    found = decode_record(record)
    event = found.event
    if erasure is not None and event.salt:
        event = erased_event(event, erasure)
    values = list(astuple(event)[: len(EVENT_FIELDS)])  # as they are stored
    if before is not None and values[_PREVIOUS] is None:
        values[_PREVIOUS] = before.hash
    return (found.position, found.sequence, 0, values)


def _current(notes: dict[str, NoteValue], state: LogState) -> dict[str, NoteValue]:
    return {key: value for key, value in notes.items() if state.notes.get(key) == value}
