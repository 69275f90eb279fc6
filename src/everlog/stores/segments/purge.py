"""Remove purged events from the segments, byte for byte.

A purge is recorded as a frame like any other. From then on no reader sees the purged events. After that, every
segment that still holds some of them is rewritten to a new file, which replaces the old one, and a frame "swept" is
written. A writer that finds a purge without a following "swept" finishes the work. Replaced notes are removed as
well, because a stored response may repeat a payload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from everlog.core.event import Position, Recorded
from everlog.files import Files, replace_file
from everlog.stores.segments.format.frame import Frame, Rest, encode_frame, mark_of
from everlog.stores.segments.format.frames import Found, Gap, TailKind, Walk
from everlog.stores.segments.format.header import END_MARK, NoteValue, SegmentHeader, encode_header
from everlog.stores.segments.format.layout import Layout
from everlog.stores.segments.reader import damage
from everlog.stores.segments.segment import Segment
from everlog.stores.segments.state import LogState, SegmentReplaced


def sweep(files: Files, layout: Layout, state: LogState) -> None:
    """Rewrite each segment before the live one that holds purged events or outdated notes."""
    for segment in state.segments[:-1]:
        if _holds_purged(state, segment) or _holds_notes(segment):
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


def _holds_purged(state: LogState, segment: Segment) -> bool:
    return _holds(segment, state.purged_at)


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
    for found in _frames(state, segment):
        data += _without_purged(found, state, mark=mark, at=len(data))
    data[:head_bytes] = encode_header(replace(fresh, end_mark=END_MARK + len(data)))
    for offset in layout.parts(files).get(segment.number, set()):
        files.unlink(layout.part(segment.number, offset))
    replace_file(files, layout.segment(segment.number), bytes(data))
    if files.exists(layout.archive(segment.number)):  # or a failed packing left it beside the plain one
        files.unlink(layout.archive(segment.number))
        files.fsync_dir(layout.segments)


def _without_purged(found: Found, state: LogState, *, mark: int, at: int) -> bytes:
    frame = found.frame
    kept = [record for record in frame.records if record.position not in state.purged_at]
    rest = frame.rest
    rest = Rest(
        rest.kind,
        frame.before,
        frame.head,
        rest.claim_names,
        rest.claim_places,
        {key: value for key, value in rest.notes.items() if value[0] is None or state.notes.get(key) == value},
        rest.purges,
        rest.purged,
        {position: raw for position, raw in rest.raw.items() if position not in state.purged_at},
    )
    return encode_frame(mark, at, frame.fence, frame.clock, kept, None if _is_plain(frame, kept, rest) else rest)


def _is_plain(frame: Frame, kept: list[Recorded], rest: Rest) -> bool:
    """Return whether the frame needs nothing besides its records."""
    spans = bool(kept) and (kept[0].position - 1, kept[-1].position) == (frame.before, frame.head)
    return spans and rest == Rest(0, frame.before, frame.head) and len(kept) == len(frame.records)


def _current(notes: dict[str, NoteValue], state: LogState) -> dict[str, NoteValue]:
    return {key: value for key, value in notes.items() if state.notes.get(key) == value}
