"""Reading records from the blocks that the index names, each frame under its own hash."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from everlog.core.codec import Packed, header_bytes, payload_bytes
from everlog.core.event import START, Position, Purged, Recorded
from everlog.core.ids import EventId
from everlog.core.query import EVERYTHING, Query
from everlog.errors import Damaged
from everlog.stores.segments.book import Book
from everlog.stores.segments.frame import Frame, mark_of
from everlog.stores.segments.inside import Inside
from everlog.stores.segments.lookup import Part, block_end, block_of_id, candidate_blocks
from everlog.stores.segments.segment import Lost, Segment, file_of_segment
from everlog.stores.segments.source import Source
from everlog.stores.segments.walk import Found, Gap, Tail, Walk

_BLOCKS_REMEMBERED_MAX = 256


class Stretch(msgspec.Struct, frozen=True, gc=False):
    """Neighbouring blocks to read, or damage that the reader must be told of."""

    segment: Segment
    start: int
    end: int
    before: Position
    gap: Gap | None = None
    inside: Inside | None = None  # it is one large frame, and this is known of its records


def stretches(book: Book, query: Query, after: Position, upto: Position, *, whole: bool = True) -> Iterator[Stretch]:
    """What has to be read for a query, in order; `whole` joins neighbours into long stretches."""
    lost = [one for one in book.lost if _holds_any(one.gap, after, upto)]
    for segment in book.segments:
        while lost and segment.parts and lost[0].gap.head <= segment.parts[0].before:
            yield _of_lost(lost.pop(0))
        for part in segment.parts:
            if part.head <= after or part.before >= upto:
                continue
            blocks = candidate_blocks(part, query, after, upto)
            found = list(_of_blocks(segment, part, blocks, whole=whole, into=bool(query.stream and part.inside)))
            found += [
                Stretch(segment, gap.start, gap.end, gap.before, gap)
                for gap in part.gaps
                if _holds_any(gap, after, upto)
            ]
            yield from sorted(found, key=_start) if part.gaps else found
    yield from map(_of_lost, lost)


def _of_lost(lost: Lost) -> Stretch:
    return Stretch(lost.segment, lost.gap.start, lost.gap.end, lost.gap.before, lost.gap)


def _start(stretch: Stretch) -> int:
    return stretch.start


def _of_blocks(segment: Segment, part: Part, blocks: Sequence[int], *, whole: bool, into: bool) -> Iterator[Stretch]:
    """The blocks, neighbours in one; with `into`, large frames by themselves, with what is inside them."""
    start, last = -1, -2
    for block in blocks:
        inside = part.inside.get(block) if into else None
        if inside is not None:
            if last >= 0:
                yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))
                start, last = -1, -2
            before = Position(part.befores[block])
            yield Stretch(segment, part.offsets[block], block_end(part, block), before, None, inside)
            continue
        if last >= 0 and not (whole and block == last + 1 and block_end(part, last) == part.offsets[block]):
            yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))
            start = block
        elif last < 0:
            start = block
        last = block
    if last >= 0:
        yield Stretch(segment, part.offsets[start], block_end(part, last), Position(part.befores[start]))


def frames(book: Book, stretch: Stretch, after: Position, upto: Position) -> Iterator[Frame]:
    """The frames of a stretch. It stops at damage that holds one of these positions, also if nobody knew of it."""
    if stretch.gap is not None:
        raise damage(book, stretch.segment, stretch.gap, after)
    with book.source(stretch.segment) as source:
        yield from _frames(book, source, stretch, after, upto)


def _frames(
    book: Book, source: Source, stretch: Stretch, after: Position, upto: Position, holding: Sequence[bytes] = ()
) -> Iterator[Frame]:
    for found in _walk(book, source, stretch, holding):
        if not isinstance(found, Gap):
            yield found
        elif _holds_any(found, after, upto):
            raise damage(book, stretch.segment, found, after)


def _holds_any(gap: Gap, after: Position, upto: Position) -> bool:
    """Whether a position in this range is lost: a frame may have held none, and then nothing is."""
    return gap.head > max(after, gap.before) and gap.before < upto


def _walk(book: Book, source: Source, stretch: Stretch, holding: Sequence[bytes] = ()) -> Iterator[Frame | Gap]:
    """The frames of a stretch, and a gap for whatever of it is none."""
    mark = mark_of(book.identity.log_id, stretch.segment.number)
    walk = Walk(source, mark=mark, start=stretch.start, head=stretch.before, limit=stretch.end, holding=holding)
    for found in walk:
        yield found if isinstance(found, Gap) else found.frame
    if walk.tail is not Tail.END or walk.end != stretch.end:
        yield Gap(walk.end, stretch.end, walk.head, _next_before(book, stretch))


def _next_before(book: Book, stretch: Stretch) -> Position:
    """The head before the first frame behind a stretch, as the index knows it: up to there everything is lost."""
    for segment in book.segments:
        if segment.number < stretch.segment.number:
            continue
        if segment.number > stretch.segment.number and segment.header is not None:
            return segment.header.before
        for part in segment.parts:
            block = bisect_left(part.offsets, stretch.end) if segment.number == stretch.segment.number else 0
            if block < len(part.offsets):
                return Position(part.befores[block])
    return book.head


def damage(book: Book, segment: Segment, gap: Gap, after: Position = START) -> Damaged:
    """The error of a reader that comes from `after` to positions that cannot be read: it says where to go on."""
    path = file_of_segment(book.layout, segment)
    first, last = max(gap.before, after) + 1, gap.head
    why = f"{path.name} is not there" if segment.missing else f"{path.name} is damaged from byte {gap.start} on"
    lost = f"position {last}" if last == first else f"positions {first} to {last}"
    return Damaged(
        f"{lost} of the log cannot be read",
        why=why,
        hint=f"everlog verify names all that is damaged; what follows can be read after position {last}",
        position=first,
        after=last,
        file=str(path.relative_to(book.layout.root)),
        segment=segment.number,
        offset=gap.start,
    )


def records(
    book: Book, query: Query, after: Position, upto: Position, *, newest_first: bool = False
) -> Iterator[list[Recorded]]:
    """What matches, in lists of a frame or a block each: one by one would cost as much as the decoding."""
    wanted = stretches(book, query, after, upto, whole=not newest_first)
    in_order: Iterable[Stretch] = reversed(list(wanted)) if newest_first else wanted
    for (segment, gap), mine in groupby(in_order, key=lambda stretch: (stretch.segment, stretch.gap)):
        if gap is not None:
            raise damage(book, segment, gap, after)
        with book.source(segment) as source:
            for stretch in mine:
                if newest_first:
                    yield from _newest_first(book, source, stretch, query, after, upto)
                else:
                    yield from _pieces(book, source, stretch, query, after, upto)


def _newest_first(
    book: Book, source: Source, stretch: Stretch, query: Query, after: Position, upto: Position
) -> Iterator[list[Recorded]]:
    """What matches in a stretch, the newest first; damage in it is met from its far side."""
    try:
        yield [record for piece in _pieces(book, source, stretch, query, after, upto) for record in piece][::-1]
    except Damaged:
        newer: list[Recorded] = []
        last: Gap | None = None
        for found in _walk(book, source, stretch):
            if isinstance(found, Gap):
                newer, last = ([], found) if _holds_any(found, after, upto) else (newer, last)
            else:
                newer += [r for r in found.records if _fits(book, r, query, after, upto, everything=False)]
        yield newer[::-1]
        if last is not None:
            raise damage(book, stretch.segment, last, after) from None


def _pieces(
    book: Book, source: Source, stretch: Stretch, query: Query, after: Position, upto: Position
) -> Iterator[list[Recorded]]:
    everything = query == EVERYTHING
    if stretch.inside is not None:
        found = stretch.inside.read(source, stretch.start, query.stream)
        if found is not None:
            yield [r for r in found if _fits(book, r, query, after, upto, everything=everything)]
            return
    # What a record of this query holds literally, so that others need not be decoded.
    holding = [name.encode() for name in ([query.stream] if query.stream else sorted(query.types))]
    for frame in _frames(book, source, stretch, after, upto, holding):
        found = frame.records
        if everything and not book.purged_at and frame.before >= after and frame.head <= upto:
            yield found
        else:
            yield [r for r in found if _fits(book, r, query, after, upto, everything=everything)]


def _fits(book: Book, record: Recorded, query: Query, after: Position, upto: Position, *, everything: bool) -> bool:
    return (
        after < record.position <= upto
        and record.position not in book.purged_at
        and (everything or query.matches(record))
    )


def with_headers(book: Book, query: Query, after: Position, upto: Position) -> Iterator[tuple[Recorded, bytes]]:
    """As `records`, each with the bytes of its header."""
    for stretch in stretches(book, query, after, upto):
        for frame in frames(book, stretch, after, upto):
            for record in frame.records:
                if _fits(book, record, query, after, upto, everything=False):
                    yield record, _header(frame, record)


def _header(frame: Frame, record: Recorded) -> bytes:
    kept = frame.rest.raw.get(record.position)
    return kept[0] if kept else header_bytes(record.event)


def find(book: Book, event_id: EventId) -> tuple[Recorded, bytes] | None:
    """The record of an id, with the bytes of its header; purged ones are not found."""
    for segment in reversed(book.segments):
        for part in reversed(segment.parts):
            if not part.id_lows or (event_id not in part.strays and not part.id_lows[0] < event_id <= part.id_max):
                continue
            block = block_of_id(part, event_id)
            if block < 0:
                continue
            stretch = Stretch(segment, part.offsets[block], block_end(part, block), Position(part.befores[block]))
            if event_id not in _ids_in(book, stretch):
                continue
            for frame in frames(book, stretch, START, book.head):
                for record in frame.records:
                    if record.event.id == event_id and record.position not in book.purged_at:
                        return record, _header(frame, record)
    if event_id not in book.purged:
        for lost in book.gaps():
            raise damage(book, lost.segment, lost.gap)  # it may have been there
    return None


def _ids_in(book: Book, stretch: Stretch) -> frozenset[EventId]:
    """The ids in a block. Those of the last blocks are remembered: who looks for many ids, as an import does, meets
    the same blocks again, and nearly always finds that the id is not there."""
    place = (stretch.segment.inode, stretch.start, stretch.end)
    found = book.ids_in.get(place)
    if found is None:
        wanted = frames(book, stretch, START, book.head)
        found = frozenset(record.event.id for frame in wanted for record in frame.records)
        if len(book.ids_in) >= _BLOCKS_REMEMBERED_MAX:
            book.ids_in.clear()
        book.ids_in[place] = found
    return found


def places(book: Book, after: Position, upto: Position) -> Iterator[Packed | Purged]:
    """Every place as stored bytes, purged ones included. It goes on behind damage: `verify` counts what is lost."""
    purged = sorted((gone for gone in book.purged_at.values() if after < gone.position <= upto), key=_position)
    waiting = iter(purged)
    gone = next(waiting, None)
    for place in _packed(book, after, upto):
        while gone is not None and gone.position < place.position:
            yield gone
            gone = next(waiting, None)
        yield place
    while gone is not None:
        yield gone
        gone = next(waiting, None)


def _position(place: Packed | Purged) -> Position:
    return place.position


def _packed(book: Book, after: Position, upto: Position) -> Iterator[Packed]:
    for stretch in stretches(book, EVERYTHING, after, upto):
        if stretch.gap is not None:
            continue
        with book.source(stretch.segment) as source:
            mark = mark_of(book.identity.log_id, stretch.segment.number)
            for found in Walk(source, mark=mark, start=stretch.start, head=stretch.before, limit=stretch.end):
                if isinstance(found, Found):
                    yield from _packed_of(book, found.frame, after, upto)


def _packed_of(book: Book, frame: Frame, after: Position, upto: Position) -> Iterator[Packed]:
    raw = frame.rest.raw
    for record in frame.records:
        position, event = record.position, record.event
        if not after < position <= upto or position in book.purged_at:
            continue
        kept = raw.get(position) if raw else None
        if kept is None:
            kept = header_bytes(event), payload_bytes(event.payload) if event.salt else b""
        yield Packed(position, record.sequence, record.received_us, *kept, event.salt, event.signature, event.path)
