"""After a purge: the purged events go from the segments, byte for byte.

The record of a purge is a frame like any other, and from then on nobody is shown what it removed. Then every segment
that still holds some of it is written anew beside itself and swapped in. Whoever finds a purge without the frame that
says "swept" finishes the work. Notes that were replaced since go as well: a stored response may repeat a payload.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from everlog.core.event import Position, Recorded
from everlog.files import Files, replace_file
from everlog.stores.segments.book import Book, Moved
from everlog.stores.segments.frame import Frame, Rest, encode_frame, mark_of
from everlog.stores.segments.header import END_MARK, Header, NoteValue, encode_header
from everlog.stores.segments.layout import Layout
from everlog.stores.segments.reading import damage
from everlog.stores.segments.segment import Segment
from everlog.stores.segments.walk import Found, Gap, Tail, Walk


def sweep(files: Files, layout: Layout, book: Book) -> None:
    """Write anew every segment before the live one that holds purged events or notes that are not current."""
    for segment in book.segments[:-1]:
        if _holds_purged(book, segment) or _holds_notes(segment):
            _write_anew(files, layout, book, segment)
    for torn in layout.torn_files(files):
        files.unlink(torn)
    files.fsync_dir(layout.segments)


def refuse_damage_under(book: Book, removed: Collection[Position]) -> None:
    """Refuse a purge, before it is recorded, if a segment that it would write anew is damaged: what cannot be read
    would be gone for good."""
    for segment in book.segments:
        if _holds(segment, removed) or _holds_notes(segment):
            for _ in _frames(book, segment):
                pass


def _frames(book: Book, segment: Segment) -> Iterator[Found]:
    """Every frame of a segment; damage stops it."""
    assert segment.header is not None  # else nobody may write
    mark = mark_of(book.identity.log_id, segment.number)
    try:
        with book.source(segment) as source:
            walk = Walk(source, mark=mark, start=segment.start, head=segment.header.before, limit=segment.limit)
            for found in walk:
                if isinstance(found, Gap):
                    raise damage(book, segment, _at_least_one(found))
                yield found
    except Moved as error:  # not by a writer: this one holds the lock
        raise damage(book, segment, Gap(0, segment.size, segment.header.before, segment.head)) from error
    if walk.tail is not Tail.END:
        raise damage(book, segment, _at_least_one(Gap(walk.end, segment.size, walk.head, segment.head)))


def _at_least_one(gap: Gap) -> Gap:
    return gap if gap.head > gap.before else replace(gap, head=Position(gap.before + 1))


def _holds_purged(book: Book, segment: Segment) -> bool:
    return _holds(segment, book.purged_at)


def _holds(segment: Segment, removed: Collection[Position]) -> bool:
    before = segment.parts[0].before if segment.parts else Position(0)
    return any(before < position <= segment.head for position in removed)


def _holds_notes(segment: Segment) -> bool:
    held = segment.header is not None and bool(segment.header.state.notes)
    return held or any(part.notes for part in segment.parts)


def _write_anew(files: Files, layout: Layout, book: Book, segment: Segment) -> None:
    header = segment.header
    following = next(each for each in book.segments if each.number == segment.number + 1)
    assert header is not None
    assert following.header is not None
    state = replace(header.state, notes=_current(header.state.notes, book))
    first_end = header.first_end or following.header.previous
    fresh = Header(
        header.format,
        header.identity,
        header.number,
        header.fence,
        header.before,
        header.opened_us,
        state,
        header.previous,
        header.generation + 1,
        first_end,
        END_MARK,
    )
    data = bytearray(encode_header(fresh))
    head_bytes = len(data)
    mark = mark_of(book.identity.log_id, segment.number)
    for found in _frames(book, segment):
        data += _without_purged(found, book, mark=mark, at=len(data))
    data[:head_bytes] = encode_header(replace(fresh, end_mark=END_MARK + len(data)))
    for start in layout.parts(files).get(segment.number, set()):
        files.unlink(layout.part(segment.number, start))
    replace_file(files, layout.segment(segment.number), bytes(data))
    if files.exists(layout.archive(segment.number)):  # also one that a failed packing left beside the plain one
        files.unlink(layout.archive(segment.number))
        files.fsync_dir(layout.segments)


def _without_purged(found: Found, book: Book, *, mark: int, at: int) -> bytes:
    frame = found.frame
    kept = [record for record in frame.records if record.position not in book.purged_at]
    rest = frame.rest
    rest = Rest(
        rest.kind,
        frame.before,
        frame.head,
        rest.claim_names,
        rest.claim_places,
        {key: value for key, value in rest.notes.items() if value[0] is None or book.notes.get(key) == value},
        rest.purges,
        rest.purged,
        {position: raw for position, raw in rest.raw.items() if position not in book.purged_at},
    )
    return encode_frame(mark, at, frame.fence, frame.clock, kept, None if _is_plain(frame, kept, rest) else rest)


def _is_plain(frame: Frame, kept: list[Recorded], rest: Rest) -> bool:
    """True when the records alone say all there is."""
    spans = bool(kept) and (kept[0].position - 1, kept[-1].position) == (frame.before, frame.head)
    return spans and rest == Rest(0, frame.before, frame.head) and len(kept) == len(frame.records)


def _current(notes: dict[str, NoteValue], book: Book) -> dict[str, NoteValue]:
    return {key: value for key, value in notes.items() if book.notes.get(key) == value}
