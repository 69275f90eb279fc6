"""Packing old segments: the same bytes in a third of the room, read where they are.

The packed file gets its name when it is whole and on the disk, and only then the plain one goes. A crash between
leaves both, and the plain one counts: it is the same, or a purge has written it anew since. The next writer makes
sure that it is whole and removes the packed one, so that a purge reaches every copy.
"""

from __future__ import annotations

from everlog.errors import Damaged
from everlog.files import Files, replace_file
from everlog.stores.segments.book import Book
from everlog.stores.segments.frame import mark_of
from everlog.stores.segments.layout import Layout
from everlog.stores.segments.source import PIECE_BYTES, PlainSource, member
from everlog.stores.segments.walk import Gap, Tail, Walk


def archive_segment(files: Files, layout: Layout, number: int) -> tuple[int, int]:
    """Pack one segment; its size before and after."""
    source = PlainSource(files, layout.segment(number))
    packed = bytearray()
    try:
        size = source.size
        for at in range(0, size, PIECE_BYTES):
            packed += member(source.read(at, PIECE_BYTES))
    finally:
        source.close()
    replace_file(files, layout.archive(number), bytes(packed))
    files.unlink(layout.segment(number))
    files.fsync_dir(layout.segments)
    return size, len(packed)


def remove_superseded(files: Files, layout: Layout, book: Book) -> None:
    """Finish what a crash cut off: of a segment that is there plain and packed, the packed one goes."""
    doubled = layout.doubled(files)
    for segment in book.segments:
        if segment.number not in doubled:
            continue
        path = layout.segment(segment.number)
        assert segment.header is not None  # the writer has looked
        mark = mark_of(book.identity.log_id, segment.number)
        with book.source(segment) as source:
            walk = Walk(source, mark=mark, start=segment.start, head=segment.header.before, limit=segment.limit)
            whole = not any(isinstance(found, Gap) for found in walk) and walk.tail is Tail.END
        if not whole:
            raise Damaged(
                f"{path} is damaged, and {layout.archive(segment.number).name} stands beside it",
                why="the packed file may be older than a purge, so that it does not take the place of the plain one",
                hint="everlog dump shows both; keep the one that is whole, or restore a backup",
            )
        files.unlink(layout.archive(segment.number))
    if doubled:
        files.fsync_dir(layout.segments)
